"""Read the modules of this repository and what they import; used by test_imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("amp_runtime", "workers")

# What touches the world outside: not in layers 0 to 2, controller, workers/<kind>.
WORLD = {
    "asyncio", "datetime", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random",
    "select", "selectors", "shutil", "signal", "socket", "subprocess", "tempfile", "threading",
    "time", "zmq",
}  # fmt: skip
WORLD_IS_FOR_LOWER = {
    "amp_runtime.log",  # writes files with the time, and everything above it logs
    "amp_runtime.names",  # finds modules in a folder
}
PURE_ABOVE = {"amp_runtime.controller"}
LOWEST_WITH_WORLD = 3

# Who alone may import a library.
ONLY_IN = {
    "zmq": r"amp_runtime\.(transport|sockets|channel|\w+_loop)",
    "msgpack": r"amp_runtime\.(wire|header)",
    "yaml": r"amp_runtime\.yaml_reader",
}
# What would cost every worker 0.1 s and some MB, and only the controller needs.
NOT_IN_A_WORKER = {"pydantic", "yaml", "ruamel", "rich", "click"}

FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {
    ("os", "system"), ("os", "popen"), ("yaml", "load"), ("yaml", "full_load"),
    ("yaml", "unsafe_load"), ("yaml", "load_all"),
}  # fmt: skip
FORBIDDEN_METHODS = {"recv_pyobj", "send_pyobj"}
FORBIDDEN_KEYWORDS = {"shell", "allow_pickle"}


@dataclass(frozen=True)
class Module:
    """One module's name and source."""

    name: str
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def imports(self) -> frozenset[str]:
        """All imports, in functions and for type checkers too."""
        return frozenset(_imports(self, ast.walk(self.tree)))

    @cached_property
    def imports_on_load(self) -> frozenset[str]:
        """The imports that run when the module is imported."""
        return frozenset(_imports(self, _on_load(self.tree)))


def _on_load(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        checks_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        if not checks_types and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _on_load(child)


def _imports(module: Module, nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Yield `package.module` and `package.module.name`: the name may be a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.name.split(".")
            up = parts[: len(parts) - node.level + module.is_package] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def read_modules(root: Path) -> dict[str, Module]:
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = Module(name, path.read_text(), is_package)
    return found


def read_layers(text: str) -> dict[str, int]:
    """Return {entry: layer} from the table in ARCHITECTURE.md."""
    found = re.search(r"^## Import layers\n.*?^```\w*\n(.*?)^```", text, re.M | re.S)
    assert found, "ARCHITECTURE.md has no fenced block under '## Import layers'"
    layers = {}
    for line in found[1].splitlines():
        number, *entries = line.split() or [""]
        if number.isdecimal():
            layers |= dict.fromkeys(entries, int(number))
    return layers


def layer_of(module: Module, layers: dict[str, int]) -> int | None:
    """Return a module's layer; None where the table does not name it."""
    package, _, rest = module.name.partition(".")
    path = rest.replace(".", "/")
    if not path:
        # The package itself: below all when it imports nothing.
        return layers.get(package, 0 if not module.imports else None)
    if package == "workers":
        return layers.get(f"workers/{path}", layers.get("workers/<kind>"))
    return layers.get(path, layers.get(f"{path.split('/')[0]}/"))


# ----------------------------------------------------------------------------- checks


def imported_modules(module: Module, modules: dict[str, Module], *, on_load: bool) -> set[str]:
    names = module.imports_on_load if on_load else module.imports
    return {name for name in names if name in modules and name != module.name}


def layer_faults(modules: dict[str, Module], layers: dict[str, int]) -> list[str]:
    """Return what is wrong with the layers: unplaced modules and imports that go up."""
    placed = {name: layer_of(module, layers) for name, module in modules.items()}
    faults = [f"{name} is in no layer" for name, layer in placed.items() if layer is None]
    for name, module in modules.items():
        for other in sorted(imported_modules(module, modules, on_load=False)):
            mine, theirs = placed[name], placed[other]
            if mine is not None and theirs is not None and theirs > mine:
                faults.append(f"{name} (layer {mine}) imports {other} (layer {theirs})")
    return faults


def reached(start: str, modules: dict[str, Module], *, on_load: bool) -> dict[str, str]:
    """Return {module reached by imports from `start`: who imports it}."""
    found: dict[str, str] = {}
    todo = [start]
    while todo:
        name = todo.pop()
        for other in sorted(imported_modules(modules[name], modules, on_load=on_load)):
            if other not in found:
                found[other] = name
                todo.append(other)
    return found


def circles(modules: dict[str, Module]) -> list[str]:
    """Return the modules that import themselves, by way of others.

    A package and its own modules are one: it may gather them, they may share it.
    """
    return [
        f"{name} by way of {via[name]}"
        for name in modules
        if name in (via := reached(name, modules, on_load=False))
        and not via[name].startswith(f"{name}.")
        and not modules[name].is_package
    ]


def forbidden(module: Module) -> list[str]:
    """Return the uses of names that run data as code."""
    faults = []
    for node in ast.walk(module.tree):
        at = f"{module.name}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                faults.append(f"{at}: {name}()")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (
                owner,
                name,
            ) in FORBIDDEN_ATTRIBUTES:
                faults.append(f"{at}: {owner}.{name}")
            case ast.Attribute(attr=name) if name in FORBIDDEN_METHODS:
                faults.append(f"{at}: {name}")
            case ast.keyword(arg=name, value=value) if name in FORBIDDEN_KEYWORDS and not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                faults.append(f"{at}: {name}=")
    faults += [
        f"{module.name}: import {name}"
        for name in sorted(module.imports)
        if name.split(".")[0] in FORBIDDEN_MODULES
        or tuple(name.rsplit(".", 1)) in FORBIDDEN_ATTRIBUTES
    ]
    return faults


def libraries(module: Module, *, on_load: bool = False) -> set[str]:
    """Return the third-party packages that a module imports."""
    names = module.imports_on_load if on_load else module.imports
    tops = {name.split(".")[0] for name in names}
    return tops - set(sys.stdlib_module_names) - set(PACKAGES)
