"""Ready models: each is one builder function that is given a graph and options.

    def build(graph: Graph, *, option: type = default, ...) -> None:
        ...

The keys under `model:` in the config are its keyword options.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from amp_runtime import names
from amp_runtime.checking.function_options import function_options
from amp_runtime.checking.rules import ConfigProblemsError, Problem
from amp_runtime.errors import AmpError, GraphError, nearest
from amp_runtime.graph import Graph
from amp_runtime.models import child_sum, ggsnn, mlp, rnn, tree_lstm

Builder: TypeAlias = Callable[..., None]

BUILDERS: Mapping[str, Builder] = {
    "child_sum": child_sum.build,
    "ggsnn_graph": ggsnn.regress_graph,
    "ggsnn_node": ggsnn.select_node,
    "mlp": mlp.build,
    "rnn": rnn.build,
    "tree_lstm": tree_lstm.build,
}


def check_builder(
    builder: str, options: Mapping[str, Any], *, where: str = ""
) -> tuple[Builder, dict[str, Any]]:
    """Return a builder's function and its options, checked, without building anything.

    Args:
        builder: a name in `BUILDERS`, or `package.module:function`.
        options: the config's `model:` without `builder`.
        where: file and line of the config.
    Raises:
        ConfigProblemsError: unknown builder; all unknown, missing or mistyped options.
        FunctionNameError: `package.module:function` does not resolve, or does not take
            (graph).
    """
    if names.is_qualified(builder):
        function = names.resolve(builder, what="a model builder", where=where)
    elif builder in BUILDERS:
        function = BUILDERS[builder]
    else:
        said = f"no model builder {builder!r}{nearest(builder, BUILDERS)}"
        fix = (
            "`make kinds` (`python -m amp_runtime kinds`) lists all; or package.module:"
            "function for your own"
        )
        raise ConfigProblemsError.of([Problem(("builder",), f"{said}; {fix}")], where)
    what = f"model builder {builder!r}"
    return function, function_options(function, options, given=("graph",), what=what, where=where)


def build_model(graph: Graph, builder: str, options: Mapping[str, Any], *, where: str = "") -> None:
    """Let `builder` build its model into `graph`.

    Args:
        builder, options, where: as in `check_builder`, which is called first.
    Raises:
        ConfigProblemsError, FunctionNameError: as in `check_builder`.
        GraphError: what the builder does to the graph; an exception of a user's
            builder becomes one that names the line.
    """
    function, checked = check_builder(builder, options, where=where)
    try:
        function(graph, **checked)
    except AmpError:
        raise
    except (Exception, SystemExit) as error:  # nor may it end the program
        line = traceback.extract_tb(error.__traceback__)[-1]
        raise GraphError(
            f"model builder {builder!r} raised {type(error).__name__}: {error} "
            f"({line.filename}:{line.lineno})"
        ) from error
