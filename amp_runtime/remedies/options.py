"""The options of `compensation`, and what of them goes together; checked when a graph is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from amp_runtime.limits import Ge, Gt, Le
from amp_runtime.optim import OPTIMIZERS

MOST_AHEAD = 1000


@dataclass(frozen=True, slots=True)
class Compensation:
    """The remedies of a node; each is off unless it is given."""

    predict: Annotated[
        Literal["none", "linear", "decaying", "last_update"],
        "weights that a forward computes with: those of some updates ahead, by the optimizer's "
        "momentum as it is, or as it decays, or by the last update again",
    ] = "none"
    horizon: Annotated[
        Literal["measured"] | Annotated[float, Gt(0), Le(MOST_AHEAD)],
        "updates ahead; measured: the node's mean staleness",
    ] = "measured"
    predict_after: Annotated[int, Ge(0), "updates of the node before it predicts"] = 0
    momentum: Annotated[
        Literal["as_given", "raised"],
        "raised: to at least 1 - 1 / (1 + 4 times the node's mean staleness), with smaller steps",
    ] = "as_given"
    step_size: Annotated[
        Literal["plain", "by_row", "by_node", "annealed"],
        "by_row: a row's gradient is divided by its staleness; by_node: the learning rate by "
        "the root of 1 + the node's; annealed: by the node's, and less and less so",
    ] = "plain"
    anneal_over: Annotated[int | None, Gt(0), "updates until step_size: annealed is plain"] = None
    drop_beyond: Annotated[
        int | None, Ge(0), "staleness above which a row's gradient is counted and dropped"
    ] = None

    def __post_init__(self) -> None:
        if self.predict == "none":
            given = {"horizon": self.horizon != "measured", "predict_after": self.predict_after}
            for name in (name for name, is_given in given.items() if is_given):
                raise ValueError(f"{name}: needs predict: linear, decaying or last_update")
        if (self.step_size == "annealed") != (self.anneal_over is not None):
            raise ValueError("step_size: annealed and anneal_over: UPDATES need each other")
        plain = (self.predict, self.momentum, self.step_size) == ("none", "as_given", "plain")
        if plain and self.drop_beyond is None:
            raise ValueError(
                "names no remedy: give predict, momentum, step_size or drop_beyond; or "
                "compensation: none"
            )


def misfit(compensation: Mapping[str, Any], optimizer: Mapping[str, Any]) -> str:
    """Say why checked options of both do not go together; '' if they do."""
    cls = OPTIMIZERS[optimizer["name"]]
    options = {name: value for name, value in optimizer.items() if name != "name"}
    if cls.momentum_of(cls.Options(**options)):
        return ""
    could = "momentum" in options
    keeps_none = f"{cls.name}{' without momentum' if could else ''} keeps none"
    fix = "give it a momentum, or use" if could else "use"
    if (form := compensation["predict"]) in ("linear", "decaying"):
        return (
            f"predict: {form} goes along the optimizer's momentum, and {keeps_none}; {fix} "
            "predict: last_update"
        )
    if compensation["momentum"] == "raised":
        return f"momentum: raised, but {keeps_none}; {fix} step_size: by_node"
    return ""
