"""What can be named in a model and in a config, from the classes and functions themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amp_runtime import names
from amp_runtime.checking.function_options import describe_function
from amp_runtime.checking.options import OptionDescription, describe_options
from amp_runtime.data import SOURCES
from amp_runtime.errors import UsageError, nearest
from amp_runtime.graph.asking import asking
from amp_runtime.graph.training_options import TRAINING_OPTIONS
from amp_runtime.models import BUILDERS
from amp_runtime.nodes.initializers import INITIALIZERS
from amp_runtime.nodes.node import Kinds, Node
from amp_runtime.optim import OPTIMIZERS
from amp_runtime.optim.averaging import AVERAGING
from amp_runtime.optim.lr_schedules import LR_SCHEDULES
from amp_runtime.output.table import text_table

HEADERS = ("option", "type", "range", "default", "meaning")


def listed(kinds: Kinds) -> str:
    """Return all names, each with its first sentence."""
    groups: dict[str, dict[str, Any]] = {
        "node kinds (graph.add)": {name: kinds.load(name) for name in kinds.names()},
        "optimizers (training.optimizer.name)": dict(OPTIMIZERS),
        "learning-rate schedules (training.lr_schedule.name)": dict(LR_SCHEDULES),
        "initializers (training.initializer)": dict(INITIALIZERS),
        "averaging of replicas (training.averaging.name)": dict(AVERAGING),
        "models (model.builder)": dict(BUILDERS),
        "data sources (data.source)": dict(SOURCES),
    }
    width = max(len(name) for group in groups.values() for name in group)
    lines = []
    for title, group in groups.items():
        lines += [
            f"{title}:",
            *(f"  {n:<{width}}  {_first_sentence(o)}" for n, o in group.items()),
            "",
        ]
    return "\n".join([*lines, "`kinds NAME` shows ports and options"])


def described(name: str, kinds: Kinds) -> str:
    """Return what one kind takes and gives, and all its options; of all things of that name.

    Raises:
        UsageError: nothing has that name.
        FunctionNameError: `package.module:name` does not resolve.
    """
    given = {**dict.fromkeys(BUILDERS, ("graph",)), **dict.fromkeys(SOURCES, ("split", "seed"))}
    functions: dict[str, Callable[..., Any]] = {**BUILDERS, **SOURCES}
    if names.is_qualified(name):
        found = names.resolve(name, what="a node kind, a model or a data source")
        if isinstance(found, type) and issubclass(found, Node):
            return _node_kind(name, found)
        try:
            parameters = list(inspect.signature(found).parameters)
        except (TypeError, ValueError):
            raise UsageError(
                f"{name!r} is {found!r:.80}, no node kind and no function",
                fix="name a node kind, a model or a data source",
            ) from None
        n_given = 2 if parameters[:2] == ["split", "seed"] else 1
        return _page(name, found, describe_function(found, n_given))
    pages = []
    if name in kinds.names():
        pages.append(_node_kind(name, kinds.load(name)))
    with_options: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("optimizer", OPTIMIZERS),
        ("averaging", AVERAGING),
    )
    for what, classes in with_options:
        if name in classes:
            cls = classes[name]
            pages.append(_page(f"{what} {name}", cls, describe_options(cls.Options)))
    for what, table in (("lr_schedule", LR_SCHEDULES), ("initializer", INITIALIZERS)):
        if name in table:
            pages.append(_page(f"{what} {name}", table[name], describe_options(table[name])))
    if name in functions:
        what = "model" if name in BUILDERS else "data source"
        options = describe_function(functions[name], len(given[name]))
        pages.append(_page(f"{what} {name}", functions[name], options))
    if pages:  # a schedule and an initializer are both called constant
        return "\n\n\n".join(pages)
    tables = (OPTIMIZERS, LR_SCHEDULES, INITIALIZERS, AVERAGING, functions)
    every = [*kinds.names(), *(known for table in tables for known in table)]
    raise UsageError(
        f"nothing is called {name!r}{nearest(name, every)}",
        fix=f"names are {', '.join(every)}; or package.module:name for one of yours",
    )


def _node_kind(name: str, cls: type[Node]) -> str:
    with asking(cls, "inputs and outputs", f"kind {name}"):
        inputs = _ports(cls, "input_ports", cls.inputs)
        outputs = _ports(cls, "output_ports", cls.outputs)
    facts = [f"inputs: {inputs}", f"outputs: {'none' if cls.is_end else outputs}"]
    if metrics := getattr(cls, "metrics", ()):
        facts.append(f"metrics: {', '.join(metrics)}")
    if cls.parameterised:
        facts.append(f"has parameters, so it also takes {', '.join(TRAINING_OPTIONS)}")
    if cls.changes_state:
        facts.append("changes the state, so a loop may hold it alone")
    with asking(cls, "Options", f"kind {name}"):
        options = describe_options(cls.Options)
    return _page(f"node kind {name}", cls, options, facts)


def _ports(cls: type[Node], method: str, fixed: Sequence[str]) -> str:
    own = getattr(cls, method).__func__ is not getattr(Node, method).__func__
    return "as the options say" if own else ", ".join(fixed)


def _page(
    title: str, described: Any, options: Sequence[OptionDescription], facts: Sequence[str] = ()
) -> str:
    doc = (inspect.getdoc(described) or "").partition("\n\nArgs:")[0]  # those are in the table
    parts = [title, doc]
    parts += ["\n".join(facts)] if facts else []
    rows = [(o.name, o.type, o.range, o.default or "required", o.doc) for o in options]
    table = "\n".join(text_table(HEADERS, rows, len(HEADERS))) if rows else "it takes no options"
    return "\n\n".join(filter(None, [*parts, table]))


def _first_sentence(described: Any) -> str:
    paragraph = (inspect.getdoc(described) or "").split("\n\n")[0].replace("\n", " ")
    return paragraph.split(". ")[0].removesuffix(".")
