"""Imports go down the layers of ARCHITECTURE.md, and some names appear nowhere.

The table stands under the heading `## Import layers`, in a fenced block, as

    rows/           pure  what crosses an edge
    workers/<kind>  pure  the kinds
    __main__        -     the command line

A name is a module of amp_runtime, `name/` all modules of a folder of it, and
`workers/<kind>` every module of workers that is not named itself. A module may
import from its own line, as long as no circle comes of it, and from those before it.
"""

from __future__ import annotations

import configparser
import importlib.metadata
import re

import pytest
from import_checks import (
    NOT_IN_A_WORKER,
    ONLY_IN,
    PACKAGES,
    ROOT,
    WORLD_ALL_THE_SAME,
    Entry,
    Module,
    circles,
    forbidden,
    layer_faults,
    libraries,
    reached,
    read_layers,
    read_modules,
    world_faults,
)

# --------------------------------------------------------------------- what must hold


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules(ROOT)


@pytest.fixture(scope="module")
def layers() -> dict[str, Entry]:
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


def test_what_is_pure_knows_no_socket_clock_process_or_file(modules, layers):
    assert world_faults(modules, layers) == []


def test_every_exception_is_still_needed(modules):
    used = {(name, i.split(".")[0]) for name, module in modules.items() for i in module.imports}
    assert set(WORLD_ALL_THE_SAME) - used == set()


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
not_this  pure
```

## Import layers

Down only.

```
errors            pure  what goes wrong
graph/            pure
workers/<kind>    pure  the kinds
workers/registry  -
models/           -     ready models
loop              -
```
"""


def made(**sources: str) -> dict[str, Module]:
    """Return modules of given source; `a__b` is `a.b`."""
    names = {name.replace("__", "."): source for name, source in sources.items()}
    return {
        name: Module(name, source, name in PACKAGES or any(n.startswith(f"{name}.") for n in names))
        for name, source in names.items()
    }


def test_table_is_read_from_its_own_heading():
    assert read_layers(TABLE) == {
        "errors": Entry(1, pure=True),
        "graph/": Entry(2, pure=True),
        "workers/<kind>": Entry(3, pure=True),
        "workers/registry": Entry(4),
        "models/": Entry(5),
        "loop": Entry(6),
    }


@pytest.mark.parametrize("line", ["graph/  pure", "other/  maybe"])
def test_a_line_that_is_there_twice_or_does_not_say_whether_it_is_pure_is_refused(line):
    with pytest.raises(AssertionError, match=line.split()[0]):
        read_layers(TABLE.replace("loop  ", f"{line}\nloop  "))


@pytest.mark.parametrize(
    "line",
    [
        "import amp_runtime.loop",
        "from amp_runtime import loop",
        "from amp_runtime.loop import run",
        "from .. import loop",
        "from ..loop import run",
        "def f():\n    from amp_runtime.models.rnn import build",
        "if TYPE_CHECKING:\n    from amp_runtime.loop import Loop",
    ],
)
def test_import_that_goes_up_is_found(line):
    modules = made(
        amp_runtime="",
        amp_runtime__graph="",
        amp_runtime__graph__draft=line,
        amp_runtime__loop="",
        amp_runtime__models__rnn="",
    )
    (fault,) = layer_faults(modules, read_layers(TABLE))
    assert fault.startswith("amp_runtime.graph.draft (layer 2) imports amp_runtime.")


def test_module_without_a_layer_is_found():
    modules = made(
        amp_runtime="",
        amp_runtime__new="",
        amp_runtime__errors__more="",
        workers="import os",
        workers__relu="",
    )
    assert layer_faults(modules, read_layers(TABLE)) == [
        "amp_runtime.new is in no layer",
        "amp_runtime.errors.more is in no layer",
        "workers is in no layer",
    ]


@pytest.mark.parametrize("name", ["amp_runtime.errors", "amp_runtime.graph.x", "workers.relu"])
@pytest.mark.parametrize(
    "line", ["import time", "def f():\n    from os import path", "import zmq", "open('x')"]
)
def test_what_touches_the_world_and_should_be_pure_is_found(name, line):
    (fault,) = world_faults({name: Module(name, line)}, read_layers(TABLE))
    assert fault.startswith(name)


def test_what_is_not_pure_may_touch_the_world():
    modules = made(amp_runtime__loop="import zmq", workers__registry="import os; open('x')")
    assert world_faults(modules, read_layers(TABLE)) == []


@pytest.mark.parametrize(("name", "library"), sorted(WORLD_ALL_THE_SAME))
def test_an_exception_is_for_one_library_of_one_module(name, library):
    layers = read_layers((ROOT / "ARCHITECTURE.md").read_text())
    module = Module(name, f"import {library}, socket")
    assert world_faults({name: module}, layers) == [f"{name} imports socket"]


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


def test_a_module_loads_its_package_and_the_packages_of_what_it_imports():
    modules = made(
        amp_runtime__a="import amp_runtime.a.y",
        amp_runtime__a__x="import amp_runtime.b.z",
        amp_runtime__a__y="",
        amp_runtime__b="import yaml",
        amp_runtime__b__z="",
    )
    assert set(reached("amp_runtime.a.x", modules, on_load=True)) == set(modules) - {
        "amp_runtime.a.x"
    }


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
