"""Read the modules of this repository and what they import; used by test_imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("amp_runtime", "workers")

# What touches the world outside: not in what the table calls pure.
WORLD = {
    "asyncio", "datetime", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random",
    "select", "selectors", "shutil", "signal", "socket", "subprocess", "tempfile", "threading",
    "time", "zmq",
}  # fmt: skip
WORLD_ALL_THE_SAME = {
    ("amp_runtime.names", "pathlib"),  # finds modules in a folder
    ("amp_runtime.host.node_host", "time"),  # the default of its argument `clock`
}

# Who alone may import a library.
ONLY_IN = {
    "zmq": r"amp_runtime\.sockets\.\w+",
    "msgpack": r"amp_runtime\.wire\.\w+",
    "yaml": r"amp_runtime\.config\.yaml_reader",
}
# What would cost every worker 0.1 s and some MB, and only the controller needs.
NOT_IN_A_WORKER = {"pydantic", "yaml", "ruamel", "rich", "click"}
# What a worker never comes to load either: the standard library's larger parts (OpenSSL is
# _hashlib's and _ssl's), and of ours what builds and checks, or is only for the controller.
NEVER_IN_A_WORKER = NOT_IN_A_WORKER | {
    "_hashlib", "_ssl", "annotated_types", "asyncio", "concurrent", "email", "html", "http",
    "logging", "multiprocessing", "subprocess", "tempfile", "unittest", "xml",
    "amp_runtime.checking", "amp_runtime.config", "amp_runtime.control", "amp_runtime.data",
    "amp_runtime.graph.builder", "amp_runtime.graph.checks", "amp_runtime.prepare",
}  # fmt: skip

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


@dataclass(frozen=True)
class Entry:
    """A line of the table: its number from 1 on, and whether it is pure."""

    layer: int
    pure: bool = False


def read_layers(text: str) -> dict[str, Entry]:
    """Return {name: entry} from the table in ARCHITECTURE.md."""
    found = re.search(r"^## Import layers\n.*?^```\w*\n(.*?)^```", text, re.M | re.S)
    assert found, "ARCHITECTURE.md has no fenced block under '## Import layers'"
    layers: dict[str, Entry] = {}
    for number, line in enumerate(found[1].splitlines(), start=1):
        name, pure, *_ = line.split()
        assert pure in ("pure", "-"), f"neither pure nor -: {line}"
        assert name not in layers, f"{name} has two lines"
        layers[name] = Entry(number, pure == "pure")
    return layers


def entry_of(module: Module, layers: dict[str, Entry]) -> Entry | None:
    """Return a module's line of the table; None where it has none."""
    package, _, rest = module.name.partition(".")
    if not rest:  # the package itself: below all when it imports nothing
        return None if module.imports else Entry(0)
    path = rest.replace(".", "/")
    if package == "workers":
        names = (f"workers/{path}", "workers/<kind>")
    else:
        names = (path, f"{path.split('/')[0]}/")
    return next((layers[name] for name in names if name in layers), None)


# ----------------------------------------------------------------------------- checks


def imported_modules(module: Module, modules: dict[str, Module], *, on_load: bool) -> set[str]:
    """Return the modules that `module` names, and on load the packages they are in."""
    names = set(module.imports)
    if on_load:
        dotted = [name.split(".") for name in (module.name, *module.imports_on_load)]
        names = {name for parts in dotted for name in accumulate(parts, "{}.{}".format)}
    return {name for name in names if name in modules and name != module.name}


def layer_faults(modules: dict[str, Module], layers: dict[str, Entry]) -> list[str]:
    """Return what is wrong with the layers: unplaced modules and imports that go up."""
    placed = {name: entry_of(module, layers) for name, module in modules.items()}
    faults = [f"{name} is in no layer" for name, entry in placed.items() if entry is None]
    for name, module in modules.items():
        for other in sorted(imported_modules(module, modules, on_load=False)):
            mine, theirs = placed[name], placed[other]
            if mine is not None and theirs is not None and theirs.layer > mine.layer:
                faults.append(f"{name} (layer {mine.layer}) imports {other} (layer {theirs.layer})")
    return faults


def world_faults(modules: dict[str, Module], layers: dict[str, Entry]) -> list[str]:
    """Return where modules that should be pure touch the world."""
    faults = []
    for name, module in modules.items():
        entry = entry_of(module, layers)
        if entry is None or not entry.pure:
            continue
        world = {i.split(".")[0] for i in module.imports} & WORLD
        faults += [
            f"{name} imports {library}"
            for library in sorted(world)
            if (name, library) not in WORLD_ALL_THE_SAME
        ]
        faults += [
            f"{name}:{node.lineno} opens a file"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ]
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
    """Return the modules that import themselves, by way of others."""
    return [
        f"{name} by way of {via[name]}"
        for name in modules
        if name in (via := reached(name, modules, on_load=False))
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
