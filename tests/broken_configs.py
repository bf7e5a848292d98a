"""Kinds of broken configs, and what is said of each: `docs/broken_configs.md` is made from it.

`make docs` writes the page; `tests/pure/test_broken_configs.py` holds every case to what it
must say, and the page to what is said.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from amp_runtime.__main__ import main

FILE = "broken.yaml"
GOOD = """\
name: broken
model: {builder: rnn, hidden: 8}
data: {source: list_reduction, train: 20, valid: 5}
training:
  max_active_keys: 4
  optimizer: {name: adam, lr: 0.001}
"""
MODEL = "model: {builder: rnn, hidden: 8}"
DATA = "data: {source: list_reduction, train: 20, valid: 5}"
OPTIMIZER = "  optimizer: {name: adam, lr: 0.001}"
KEYS = "  max_active_keys: 4"
NAME = "name: broken"

BUILDER = """\
from amp_runtime.graph import PerExample

def build(graph):
    x = graph.input("x", each=PerExample, state={}, payload={"x": "pixels"})
"""
PICTURES = """\
def examples(split, seed):
    yield {"pixels": [[0.5, 0.5]], "label": 1}
"""
OWN = {
    MODEL: 'model: {builder: "my_model:build"}',
    DATA: 'data: {source: "my_data:examples"}',
}


@dataclass(frozen=True)
class Broken:
    """One kind of mistake.

    Attributes:
        changes: {lines of GOOD: what stands there instead}.
        says: parts of what is told, in order: the place, the value, what to do.
        text: the whole file, instead of `changes`.
        builder: lines behind BUILDER, in my_model.py.
        source: the text of my_data.py.
        make: makes what stands at FILE, instead of a file.
        settings: on the command line.
        written: what the page shows, where that is not the text itself.
    """

    what: str
    changes: Mapping[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    text: str | bytes = ""
    builder: str = ""
    source: str = ""
    make: Callable[[Path], None] | None = None
    settings: tuple[str, ...] = ()
    written: str = ""
    exit_code: int = 78

    @property
    def shown(self) -> str:
        """What the page shows of it."""
        if self.builder:
            return textwrap.dedent(self.builder).rstrip()
        if self.source:
            return self.source.rstrip()
        if isinstance(self.text, str) and self.text and not self.written:
            return self.text.rstrip()
        return self.written or "\n".join([*self.changes.values(), *self.settings])


def changed(old: str, new: str) -> dict[str, str]:
    return {old: new}


def own_model(what: str, lines: str, *says: str) -> Broken:
    return Broken(what, OWN, says, builder=lines, source="")


def own_data(what: str, text: str, *says: str) -> Broken:
    return Broken(what, OWN, says, source=text)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50_000_000)


CASES = (
    # ---- the file
    Broken("no such file", written="(no file)", make=lambda path: None, says=("no such file",)),
    Broken("a folder", written="(a folder)", make=Path.mkdir, says=("not a regular file",)),
    Broken("a pipe", written="(a pipe)", make=os.mkfifo, says=("not a regular file",)),
    Broken("an empty file", written="(nothing)", text=b"\n", says=("the file is empty",)),
    Broken("only comments", text="# name: broken\n", says=("the file is empty",)),
    Broken("a list at the top", text="- name: broken\n", says=("must be a mapping of keys",)),
    Broken(
        "two documents",
        text=f"{GOOD}---\n{GOOD}",
        written="name: broken\n...\n---\nname: broken\n...",
        says=(":7:", "second document"),
    ),
    Broken(
        "a tab as indent",
        changed(KEYS, "\tmax_active_keys: 4"),
        (":5:1:", "a tab; YAML is indented with spaces"),
    ),
    Broken("a quote that is not closed", changed(NAME, 'name: "broken'), (":1:7:", "quoted")),
    Broken(
        "text that is not UTF-8",
        text=b"name: caf\xe9\n",
        written="(name: café in Latin-1)",
        says=("byte 9: not UTF-8",),
    ),
    Broken(
        "text in UTF-16",
        text=GOOD.encode("utf-16"),
        written="(saved as UTF-16)",
        says=("this is UTF-16; save it as UTF-8",),
    ),
    Broken(
        "a NUL byte", text=b"name: a\0b\n", written="(a NUL byte)", says=("byte 7: a NUL byte",)
    ),
    Broken(
        "nesting without end",
        text="a: " + "[" * 10_000,
        written="a: [[[[[[[[[[...",
        says=("nested deeper than 16",),
    ),
    Broken(
        "a file of 50 MB",
        make=_large,
        written="(50 MB)",
        says=("is longer than 256 KiB",),
    ),
    # ---- YAML
    Broken(
        "a key twice",
        changed(KEYS, "  max_active_keys: 4\n  max_active_keys: 8"),
        (":6:", "training.max_active_keys", "duplicate key, first on line 5"),
    ),
    Broken(
        "an anchor and an alias",
        changed(KEYS, "  max_active_keys: &n 4\n  max_epochs: *n"),
        (":5:", "anchor &n", ":6:", "alias *n", "write the value out"),
    ),
    Broken(
        "a tag",
        changed(NAME, "name: !!python/object/apply:os.system [ls]"),
        (":1:", "tags are not allowed"),
    ),
    Broken(
        "a truth value of YAML 1.1",
        changed(NAME, "name: broken\nverify: no"),
        (":2:", "verify", "no is true or false to some readers"),
    ),
    Broken(
        "an octal number",
        changed(NAME, "name: broken\nseed: 010"),
        (":2:", "seed", "octal to some readers", "write 10 or 8"),
    ),
    Broken(
        "an exponent that may be text",
        changed(OPTIMIZER, "  optimizer: {name: adam, lr: 1e3}"),
        (":6:", "training.optimizer.lr", "1e3 is text to some readers", "1000.0"),
    ),
    Broken(
        "a number in base 60",
        changed(KEYS, "  max_minutes: 1:30"),
        (":5:", "training.max_minutes", "base 60", "quote it"),
    ),
    Broken(
        "a node whose name YAML turns into something else",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  no: {bias: false}\n  010: {bias: false}"},
        (":8:", "nodes.no", "quote it", ":9:", "nodes.010", "quote it"),
    ),
    # ---- keys and values
    Broken(
        "an unknown key",
        changed(KEYS, "  max_active_key: 4"),
        (":5:", "training.max_active_key", "did you mean 'max_active_keys'?"),
    ),
    Broken(
        "a key in the wrong section",
        changed(NAME, "name: broken\nmax_epochs: 3"),
        (":2:", "max_epochs", "it belongs in 'training'"),
    ),
    Broken("a key that is missing", changed(NAME, "seed: 1"), ("name", "is missing")),
    Broken(
        "text for a number",
        changed(KEYS, '  max_active_keys: "4"'),
        (":5:", "training.max_active_keys", "a whole number", "not '4'"),
    ),
    Broken(
        "a truth value for a number",
        changed(KEYS, "  max_active_keys: true"),
        (":5:", "a whole number", "not true"),
    ),
    Broken(
        "a float for a whole number",
        changed(KEYS, "  max_active_keys: 4.0"),
        (":5:", "a whole number", "not 4.0"),
    ),
    Broken("nothing for a value", changed(KEYS, "  max_active_keys:"), (":5:", "not null")),
    Broken(
        "a section that is no mapping",
        changed(MODEL, "model: rnn"),
        (":2:", "model", "must be a mapping, not 'rnn'"),
    ),
    Broken(
        "a value out of range",
        changed(KEYS, "  max_active_keys: 0\n  min_update_frequency: 0"),
        (":5:", "at least 1", "not 0", ":6:", "training.min_update_frequency", "at least 1"),
    ),
    Broken(
        "a number that is not finite",
        changed(OPTIMIZER, "  optimizer: {name: adam, lr: .nan}\n  max_minutes: 1.0e309"),
        (":6:", "training.optimizer.lr", "not a finite number", ":7:", "too large"),
    ),
    Broken(
        "a number of 40 digits",
        changed(NAME, f"name: broken\nseed: 1{'0' * 40}"),
        (":2:", "seed", "does not fit in 64 bits"),
    ),
    Broken(
        "too many examples in an instance",
        changed(DATA, "data: {source: list_reduction, batch: 2147483648}"),
        (":3:", "data.batch", "at most 1000000", "not 2147483648"),
    ),
    Broken(
        "a name that is no folder's",
        changed(NAME, "name: ../../x"),
        (":1:", "name", "letters, digits", "not '../../x'"),
    ),
    Broken(
        "a setting without a value",
        written="make check SET='training.max_epochs= seed'",
        settings=("training.max_epochs=", "seed"),
        says=("override 'training.max_epochs='", "no value", "override 'seed'", "key.key=value"),
    ),
    Broken(
        "a placement that does not exist",
        changed(NAME, "name: broken\nruntime: {placement: spread}"),
        (":2:", "runtime.placement", "'packed' or a mapping", "not 'spread'"),
    ),
    Broken(
        "groups of nodes that cannot be",
        changed(
            NAME,
            """\
name: broken
runtime:
  placement:
    host:
      - {nodes: [embeding, loop]}
      - {nodes: [loop, step], name: loss}""",
        ),
        (
            ":5:",
            "host.0.nodes.0",
            "no node 'embeding'",
            "did you mean 'embedding'?",
            ":6:",
            "host.1.nodes.0",
            "node 'loop' is in host.0 already",
            ":6:",
            "host.1.name",
            "'loss' is a node",
        ),
    ),
    # ---- options
    Broken(
        "an option that the model does not have",
        changed(MODEL, "model: {builder: rnn, hiden: 8}"),
        (":2:", "model.hiden", "did you mean 'hidden'?"),
    ),
    Broken(
        "sequences too long for the state that the model declares",
        changed(MODEL, "model: {builder: rnn, hidden: 8, step_bits: 2}"),
        (":2:", "input 'tokens'", "'step' is to hold 8", "2 bits (0 to 3)", "declare more bits"),
    ),
    Broken(
        "layers that no memory holds",
        changed(MODEL, "model: {builder: rnn, hidden: 1000000000000}"),
        ("node 'linear-1'", "cannot be made", "make its layers smaller"),
    ),
    Broken(
        "an option of the data out of range",
        changed(DATA, "data: {source: list_reduction, train: -1}"),
        (":3:", "data.train", "at least 0", "not -1"),
    ),
    Broken(
        "an optimizer that does not exist",
        changed(OPTIMIZER, "  optimizer: {name: adma}"),
        (":6:", "training.optimizer.name", "'adma'", "did you mean 'adam'?"),
    ),
    Broken(
        "a node's optimizer that is no name",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  linear-1: {optimizer: {name: [3]}}"},
        (":8:", "nodes.linear-1.optimizer.name", "unknown optimizer [3]", "use one of"),
    ),
    Broken(
        "a node that the model does not have",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  linear-3: {bias: false}"},
        (":8:", "nodes.linear-3", "did you mean 'linear-", "its nodes are"),
    ),
    Broken(
        "an option that the node's kind does not have",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  linear-1: {lr: 0.1}"},
        (":8:", "nodes.linear-1.lr", "unknown option of kind linear", "it also takes optimizer"),
    ),
    Broken(
        "replicas of a node without parameters",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  more: {replicas: 2}"},
        (":8:", "nodes.more.replicas", "is for nodes with parameters, and kind cond has none"),
    ),
    Broken(
        "no replica at all",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  linear-1: {replicas: 0}"},
        (":8:", "nodes.linear-1.replicas", "must be a whole number or null (at least 1", "not 0"),
    ),
    Broken(
        "replicas that are no number",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  linear-1: {replicas: two}"},
        (":8:", "nodes.linear-1.replicas", "must be a whole number", "not 'two'"),
    ),
    Broken(
        "replicas of all nodes at once",
        {OPTIMIZER: OPTIMIZER + "\n  replicas: 2"},
        (":7:", "training.replicas", "it belongs in 'nodes.<name>'"),
    ),
    Broken(
        "averaging that does not exist",
        {OPTIMIZER: OPTIMIZER + "\n  averaging: {name: mena}"},
        (":7:", "training.averaging.name", "'mena'", "did you mean 'mean'?", "block_momentum"),
    ),
    Broken(
        "an option that the averaging does not have",
        {OPTIMIZER: OPTIMIZER + "\nnodes:\n  linear-1: {averaging: {name: elastic, lr: 0.5}}"},
        (":8:", "nodes.linear-1.averaging.lr", "unknown option of averaging elastic"),
    ),
    Broken(
        "averaging so often that it is never",
        {OPTIMIZER: OPTIMIZER + "\n  average_every: 0"},
        (":7:", "training.average_every", "must be 'epoch' or a whole number", "not 0"),
    ),
    Broken(
        "several mistakes",
        {
            NAME: "name: broken\nsed: 3",
            MODEL: "model: {builder: rnn, hidden: 0}",
            DATA: "data: {source: list_reduction, tran: 20}",
            OPTIMIZER: "  optimizer: {name: adam, lr: 0}\nnodes:\n  linear-1: {features: many}",
        },
        (
            "5 problems in the configuration",
            ":2: sed:",
            ":3: model.hidden",
            ":4: data.tran",
            ":7: training.optimizer.lr",
            ":9: nodes.linear-1.features",
        ),
    ),
    Broken(
        "a target that is no metric of the model",
        changed(KEYS, "  target: {metric: acuracy, at_least: 0.9}"),
        (":5", "training.target.metric", "'acuracy'", "did you mean 'accuracy'?"),
    ),
    Broken(
        "a target without a bound",
        changed(KEYS, "  target: {metric: accuracy}"),
        (":5", "training.target", "at_least or at_most"),
    ),
    # ---- names of functions
    Broken(
        "a model that does not exist",
        changed(MODEL, "model: {builder: rn}"),
        (":2", "'rn'", "did you mean 'rnn'?", "or package.module:function"),
    ),
    Broken(
        "a module that does not exist",
        changed(MODEL, 'model: {builder: "nowhere:build"}'),
        (":2", "no module 'nowhere'", "beside the config file"),
    ),
    Broken(
        "a function that does not exist",
        {MODEL: 'model: {builder: "my_model:built"}', DATA: OWN[DATA]},
        (":2", "my_model has no 'built'", "did you mean 'build'?"),
        written='model: {builder: "my_model:built"}',
    ),
    Broken(
        "a function that takes something else",
        {DATA: 'data: {source: "my_model:build"}'},
        (":3", "cannot be called with (split, seed)", "define it as f(split, seed"),
    ),
    Broken(
        "a file of digits that is not there",
        changed(DATA, "data: {source: pixels, path: digts.csv}"),
        ("digts.csv", "AMP_DATA"),
        exit_code=74,
    ),
    # ---- what one's own data gives
    own_data(
        "a source that gives nothing", "def examples(split, seed):\n    return []\n", "no examples"
    ),
    own_data(
        "a source that raises",
        'def examples(split, seed):\n    yield {"pixels": [1 / 0]}\n',
        "ZeroDivisionError",
        "my_data.py:2",
    ),
    own_data(
        "a value that is not finite",
        'def examples(split, seed):\n    yield {"pixels": [[0.5, float("nan")]], "label": 1}\n',
        "example 0",
        "'pixels'",
        "not finite",
    ),
    own_data(
        "examples that differ in their fields",
        "def examples(split, seed):\n"
        '    yield {"pixels": [[0.5]], "label": 1}\n'
        '    yield {"pixels": [[0.5]], "lable": 1}\n',
        "example 1",
        "lacks field 'label'",
        "'lable'",
    ),
    # ---- what one's own model builds
    own_model(
        "a builder that raises", '    return {}["hidden"]\n', ":2", "KeyError", "my_model.py:5"
    ),
    own_model(
        "a field that the data do not have",
        '    graph.add("softmax_cross_entropy", "loss", x, label="lable")\n',
        "node 'loss'",
        "no field 'lable'",
        "did you mean 'label'?",
    ),
    own_model(
        "a kind that does not exist",
        '    graph.add("linaer", "first", x, features=2)\n',
        "node 'first'",
        "unknown kind 'linaer'",
        "did you mean 'linear'?",
    ),
    own_model(
        "a port that does not exist",
        '    first = graph.add("linear", "first", x, features=2)\n'
        '    graph.add("softmax_cross_entropy", "loss", first["z"])\n',
        "node 'first'",
        "no output port 'z'",
        "['y']",
    ),
    own_model(
        "shapes that do not fit",
        '    first = graph.add("embedding", "first", x, entries=3, features=2)\n'
        '    graph.add("softmax_cross_entropy", "loss", first)\n',
        "node 'first'",
        "int32[rows]",
        "float32[rows, 2]",
    ),
    own_model(
        "two nodes of one name",
        '    first = graph.add("linear", "first", x, features=2)\n'
        '    graph.add("linear", "first", first, features=2)\n',
        "the name 'first' is taken",
    ),
    own_model(
        "a name that is not allowed",
        '    graph.add("linear", "First", x, features=2)\n',
        "'First' is not a valid name",
        "a-z, 0-9, _ and -",
    ),
    own_model(
        "an edge that leads nowhere",
        '    graph.add("linear", "first", x, features=2)\n',
        "node 'first'",
        "output port 'y' leads nowhere",
        "sink",
    ),
    own_model(
        "a loop in which no node changes the state",
        '    loop = graph.add("phi", "loop", x, inputs=("start", "again"))\n'
        '    first = graph.add("linear", "first", loop, features=2)\n'
        '    graph.connect(first, loop.port("again"))\n'
        '    graph.add("softmax_cross_entropy", "loss", first)\n',
        "loop -> first -> first-bcast -> loop",
        "put an isu into it",
    ),
    own_model(
        "a node that leads to no loss",
        '    loop = graph.add("phi", "loop", x, inputs=("start", "again"))\n'
        '    graph.connect(loop, loop.port("again"))\n',
        "node 'loop'",
        "no path leads from here to a loss",
    ),
    own_model(
        "a node that no row can reach",
        '    graph.add("sink", "end", x)\n'
        '    loop = graph.add("phi", "loop", inputs=("a", "b"))\n'
        '    stepped = graph.add("bcast", "copies", loop, outputs=("y", "z"))\n'
        '    graph.connect(stepped["y"], loop.port("a"))\n'
        '    graph.connect(stepped["z"], loop.port("b"))\n',
        "node 'loop'",
        "no row can reach",
    ),
)


def told(case: Broken) -> tuple[int, str]:
    """Return the exit status and what `check` prints to standard error."""
    with tempfile.TemporaryDirectory() as folder, _within(Path(folder)):
        path = Path(FILE)
        if case.make is not None:
            case.make(path)
        elif case.text:
            text = case.text
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        else:
            text = GOOD
            for old, new in case.changes.items():
                assert old in text, old
                text = text.replace(old, new)
            path.write_text(text)
        Path("my_model.py").write_text(BUILDER + case.builder)
        Path("my_data.py").write_text(case.source or PICTURES)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            status = main(["check", FILE, *case.settings])
        here = f"{Path(folder).resolve()}/"
        return status, said.getvalue().replace(here, "").replace(folder + "/", "")


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    """Work in `folder`, and forget the modules and the path that come of it."""
    before, path, data = Path.cwd(), list(sys.path), os.environ.pop("AMP_DATA", None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in ("my_model", "my_data"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        if data is not None:
            os.environ["AMP_DATA"] = data


HEAD = f"""\
# What is said of broken configs

A config is checked before anything starts: `make check CONFIG=...` checks it alone, `make
run` first. All that is wrong is told at once, each with file and line, key, value, rule, and
the nearest valid name; the last line begins with a code, and the exit status is 78 (74 where a
data file is not there). Each mistake below is made in this config:

```yaml
{GOOD}```

or, where Python is shown, in a model or in data of one's own named by it (`my_model.py`,
`my_data.py`). This page is made from `tests/broken_configs.py` by `make docs`; a test holds
every case.
"""


def page(results: Sequence[tuple[int, str]]) -> str:
    """Return `docs/broken_configs.md`, of what `told` returned for each case."""
    parts = [HEAD]
    for number, (case, (status, said)) in enumerate(zip(CASES, results, strict=True), start=1):
        language = "python" if case.builder or case.source else "yaml"
        lines = "\n".join(
            line if len(line) < 400 else f"{line[:397]}..." for line in said.splitlines()
        )
        parts.append(
            f"## {number}. {case.what}\n\n```{language}\n{case.shown}\n```\n\n"
            f"Exit status {status}:\n\n```\n{lines}\n```\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page([told(case) for case in CASES]))
