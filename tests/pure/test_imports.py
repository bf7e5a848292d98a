"""Imports go down the layers of ARCHITECTURE.md, and some names appear nowhere.

The table stands under the heading `## Import layers`, in a fenced block, as

    4  launch  controller_loop  report       worker_loop  workers/registry
    3  config  models/  data/                workers/<kind>

A name is a module of amp_runtime, `name/` all modules of a folder of it, and
`workers/<kind>` every module of workers that is not named itself. A module may
import from its own layer, as long as no circle comes of it, and from those below.
"""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import re

import pytest
from import_checks import (
    LOWEST_WITH_WORLD,
    NOT_IN_A_WORKER,
    ONLY_IN,
    PACKAGES,
    PURE_ABOVE,
    ROOT,
    WORLD,
    WORLD_IS_FOR_LOWER,
    Module,
    circles,
    forbidden,
    layer_faults,
    layer_of,
    libraries,
    reached,
    read_layers,
    read_modules,
)

# --------------------------------------------------------------------- what must hold


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules(ROOT)


@pytest.fixture(scope="module")
def layers() -> dict[str, int]:
    return read_layers((ROOT / "ARCHITECTURE.md").read_text())


def test_every_module_is_in_a_layer_and_imports_go_down(modules, layers):
    assert layer_faults(modules, layers) == []


def test_table_names_only_what_exists(modules, layers):
    paths = {name.replace(".", "/").removeprefix("amp_runtime/") for name in modules}
    entries = {entry.rstrip("/") for entry in layers} - {"workers/<kind>"}
    assert entries - paths == set()


def test_no_imports_go_in_a_circle(modules):
    assert circles(modules) == []


def test_library_never_imports_workers(modules):
    faults = {
        name
        for name, module in modules.items()
        if name.startswith("amp_runtime")
        and any(i.split(".")[0] == "workers" for i in module.imports)
    }
    assert faults == set()


def test_lower_layers_and_kinds_know_no_socket_clock_process_or_file(modules, layers):
    faults = []
    for name, module in modules.items():
        low = (layer_of(module, layers) or 0) < LOWEST_WITH_WORLD
        is_kind = name.startswith("workers.") and name.replace(".", "/") not in layers
        if (low and name not in WORLD_IS_FOR_LOWER) or is_kind or name in PURE_ABOVE:
            world = {i.split(".")[0] for i in module.imports} & WORLD
            faults += [f"{name} imports {library}" for library in sorted(world)]
            faults += [
                f"{name}:{node.lineno} opens a file"
                for node in ast.walk(module.tree)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "open"
            ]
    assert faults == []


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_library_stays_in_its_module(modules, library):
    users = {name for name, module in modules.items() if library in libraries(module)}
    assert {name for name in users if not re.fullmatch(ONLY_IN[library], name)} == set()


def test_worker_loads_no_library_that_only_the_controller_needs(modules):
    # A worker also loads models, by name: functions on states stand beside the builder.
    entered = [n for n in modules if n.startswith(("workers", "amp_runtime.models"))]
    faults = []
    for start in entered:
        for name in [start, *reached(start, modules, on_load=True)]:
            heavy = libraries(modules[name], on_load=True) & NOT_IN_A_WORKER
            faults += [f"{start} loads {library}, by way of {name}" for library in sorted(heavy)]
    assert faults == []


def test_every_library_is_declared_in_setup_cfg(modules):
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = "\n".join(
        [
            setup["options"]["install_requires"],
            *(
                text
                for extra, text in setup["options.extras_require"].items()
                if extra not in ("test", "lint")
            ),
        ]
    )
    declared = {_distribution(line) for line in wanted.splitlines() if line.strip()}
    provided_by = importlib.metadata.packages_distributions()
    faults = [
        f"{name} imports {library}"
        for name, module in modules.items()
        for library in sorted(libraries(module))
        if not {_distribution(d) for d in provided_by.get(library, [library])} & declared
    ]
    assert faults == []


def _distribution(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement.strip())
    assert name, requirement
    return name[0].lower().replace("_", "-")


def test_data_is_never_run_as_code(modules):
    assert [fault for module in modules.values() for fault in forbidden(module)] == []


# ------------------------------------------------------------ and that the checks can fail

TABLE = """\
## Words

```
9  not_this
```

## Import layers

Down only.

```
3  loop  models/     workers/registry
2  graph             workers/<kind>
0  errors
```
"""


def made(**sources: str) -> dict[str, Module]:
    """Return modules of given source; `a__b` is `a.b`."""
    names = {name.replace("__", "."): source for name, source in sources.items()}
    return {name: Module(name, source, name in PACKAGES) for name, source in names.items()}


def test_table_is_read_from_its_own_heading():
    assert read_layers(TABLE) == {
        "loop": 3,
        "models/": 3,
        "workers/registry": 3,
        "graph": 2,
        "workers/<kind>": 2,
        "errors": 0,
    }


@pytest.mark.parametrize(
    "line",
    [
        "import amp_runtime.loop",
        "from amp_runtime import loop",
        "from amp_runtime.loop import run",
        "from . import loop",
        "from .loop import run",
        "def f():\n    from amp_runtime.models.rnn import build",
        "if TYPE_CHECKING:\n    from amp_runtime.loop import Loop",
    ],
)
def test_import_that_goes_up_is_found(line):
    modules = made(
        amp_runtime="", amp_runtime__graph=line, amp_runtime__loop="", amp_runtime__models__rnn=""
    )
    (fault,) = layer_faults(modules, read_layers(TABLE))
    assert fault.startswith("amp_runtime.graph (layer 2) imports amp_runtime.")


def test_module_without_a_layer_is_found():
    modules = made(amp_runtime="", amp_runtime__new="", workers="import os", workers__relu="")
    assert layer_faults(modules, read_layers(TABLE)) == [
        "amp_runtime.new is in no layer",
        "workers is in no layer",
    ]


def test_circle_within_a_layer_is_found():
    modules = made(
        amp_runtime__a="import amp_runtime.b",
        amp_runtime__b="import amp_runtime.c",
        amp_runtime__c="import amp_runtime.a",
        amp_runtime__d="import amp_runtime.a",
    )
    assert [fault.split()[0] for fault in circles(modules)] == [
        "amp_runtime.a",
        "amp_runtime.b",
        "amp_runtime.c",
    ]


def test_import_within_a_function_does_not_run_on_load():
    (module,) = made(
        workers__x="import json\ndef f():\n    import yaml\nif TYPE_CHECKING:\n    import rich\n"
    ).values()
    assert libraries(module) == {"yaml", "rich"}
    assert libraries(module, on_load=True) == set()


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import dill",
        "eval('1')",
        "exec('1')",
        "yaml.load(text)",
        "from yaml import load",
        "os.system('ls')",
        "socket.recv_pyobj()",
        "subprocess.run('ls', shell=True)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
    ],
)
def test_code_that_runs_data_is_found(line):
    assert forbidden(Module("amp_runtime.x", line)) != []


def test_code_that_only_reads_data_passes():
    text = "yaml.safe_load(t); np.load(p, allow_pickle=False); re.compile('x'); model.eval()"
    assert forbidden(Module("amp_runtime.x", text)) == []
