"""Which weights the backward of a parameterised node is computed with.

    live        dL/dx with the weights of now, all else from what the forward kept: the
                gradient of no function, but nothing is kept twice or computed twice
    stashed     everything with the weights of the row's own forward: the gradient there
    recompute   everything with the weights of now, by a forward computed anew from the
                inputs, which are all that is kept: the gradient here, at inputs of then

Without delay between a row's forward and its answer the three are one. A kind does not
know: `backpropagate` reads `self.parameters`, whichever they are.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from amp_runtime.errors import InvariantError, NodeError
from amp_runtime.remedies.weight_versions import WeightVersions, put_together, split
from amp_runtime.rows.message import ADDRESS_COLUMNS, Mode, Payload, Rows
from amp_runtime.rows.saved import Saved
from amp_runtime.rows.spec import Array, Int32


class BackwardWeights(enum.StrEnum):
    LIVE = "live"
    STASHED = "stashed"
    RECOMPUTE = "recompute"


class Differentiable(Protocol):
    """What is used here of a parameterised node."""

    parameters: dict[str, Array]
    version: int

    @property
    def forward_parameters(self) -> Mapping[str, Array]: ...
    def transform(self, rows: Rows, mode: Mode) -> tuple[Payload, Payload]: ...
    def backpropagate(
        self, saved: Payload, gradient: Payload, wants_input: bool
    ) -> Payload | None: ...
    def add_gradients(self, into: Mapping[str, Any]) -> None: ...


class LiveWeights:
    """The weights of now, whatever they were at the forward.

    Attributes:
        versions: past weights that are held; None where none are.
    """

    def __init__(self, node: Differentiable) -> None:
        self.node = node
        self.versions: WeightVersions | None = None

    def to_keep(self, rows: Rows, saved: Payload, version: int) -> Payload:
        """Return what to keep of rows at their forward, of which `compute` said `saved`.

        Args:
            version: of the weights that they were computed with, which the node still has in
                its `parameters`.
        """
        return saved

    def backpropagate(
        self, kept: Payload, versions: Int32, gradient: Payload, wants_input: bool
    ) -> Payload | None:
        """Return dL/dx of rows, for whose parameters `add_gradients` is called then.

        Args:
            kept: what `to_keep` returned for them.
            versions: of the weights at their forward, [rows].
        """
        return self.node.backpropagate(kept, gradient, wants_input)

    def add_gradients(self, into: Mapping[str, Any]) -> None:
        """Add the gradients of all rows since the last time to `into`."""
        self.node.add_gradients(into)

    def answered(self, versions: Int32) -> None:
        """Note that rows of these versions [rows] will be asked for no more."""

    def before_step(self, copy: Mapping[str, Array] | None) -> None:
        """Do what must be done before the weights are overwritten.

        Args:
            copy: of what rows of this version were computed with, which stays as it is; None:
                nobody has made one.
        """

    def assert_drained(self, where: str) -> None:
        """Assert that nothing is held: no row is in flight.

        Raises:
            InvariantError: rows refer to weights, or copies are held.
        """

    def save(self) -> Saved:
        """Return what it goes on from; no row is in flight."""
        return Saved()

    def restore(self, saved: Saved) -> None:
        """Go on from what `save` returned."""


class RecomputedWeights(LiveWeights):
    """The weights of now, for all: the forward is computed again."""

    def to_keep(self, rows: Rows, saved: Payload, version: int) -> Payload:
        # A kind's forward may depend on the state; an array may have any name.
        return {"state": rows.state} | {f"x.{name}": x for name, x in rows.payload.items()}

    def backpropagate(
        self, kept: Payload, versions: Int32, gradient: Payload, wants_input: bool
    ) -> Payload | None:
        state = kept["state"]
        no_address = np.zeros((len(state), ADDRESS_COLUMNS), np.int32)
        payload = {name[2:]: array for name, array in kept.items() if name != "state"}
        rows = Rows(np.concatenate([no_address, state], axis=1), payload, state.shape[1])
        _, saved = self.node.transform(rows, Mode.TRAIN)
        return self.node.backpropagate(saved, gradient, wants_input)


class StashedWeights(LiveWeights):
    """The weights of each row's own forward.

    Args:
        where: the node, for errors.
        versions: with the names of the parameters that `backpropagate` reads.
    """

    versions: WeightVersions

    def __init__(self, node: Differentiable, where: str, versions: WeightVersions) -> None:
        super().__init__(node)
        self._where = where
        self.versions = versions

    def to_keep(self, rows: Rows, saved: Payload, version: int) -> Payload:
        self.versions.refer(version, len(rows))
        if version != self.node.version:  # a past one, injected: a copy that stays as it is
            self.versions.keep(version, self.node.parameters, is_copy=True)
        return saved

    def backpropagate(
        self, kept: Payload, versions: Int32, gradient: Payload, wants_input: bool
    ) -> Payload | None:
        if (versions == versions[0]).all():
            answer = self._backpropagate_at(int(versions[0]), kept, gradient, wants_input)
        else:
            parts = []
            for version, places in split(versions):
                saved, delta = (
                    {name: array[places] for name, array in arrays.items()}
                    for arrays in (kept, gradient)
                )
                part = self._backpropagate_at(version, saved, delta, wants_input)
                if part is not None:
                    parts.append((places, part))
            answer = put_together(parts, len(versions)) if parts else None
        self.answered(versions)
        return answer

    def _backpropagate_at(
        self, version: int, kept: Payload, gradient: Payload, wants_input: bool
    ) -> Payload | None:
        with self._parameters_are(self.versions.at(version, self.node.forward_parameters)):
            return self.node.backpropagate(kept, gradient, wants_input)

    def add_gradients(self, into: Mapping[str, Any]) -> None:
        with self._parameters_are({}):  # the rows are of any versions, some freed by now
            super().add_gradients(into)

    def answered(self, versions: Int32) -> None:
        self.versions.release(versions)

    def before_step(self, copy: Mapping[str, Array] | None) -> None:
        weights = self.node.forward_parameters if copy is None else copy
        self.versions.keep(self.node.version, weights, is_copy=copy is not None)

    def assert_drained(self, where: str) -> None:
        if self.versions.rows or self.versions.held:
            raise InvariantError(
                f"{self.versions.rows} rows refer to past weights, of which "
                f"{self.versions.held} copies are held, though nothing is in flight",
                where=where,
            )

    def save(self) -> Saved:
        return Saved({"peak": self.versions.peak, "peak_bytes": self.versions.peak_bytes})

    def restore(self, saved: Saved) -> None:
        # A run may go on with weights stashed that were not before.
        self.versions.peak = saved.numbers.get("peak", 0)
        self.versions.peak_bytes = saved.numbers.get("peak_bytes", 0)

    @contextmanager
    def _parameters_are(self, arrays: Mapping[str, Array]) -> Iterator[None]:
        live = self.node.parameters
        self.node.parameters = _Kept(arrays, self._where)
        try:
            yield
        finally:
            self.node.parameters = live


class _Kept(dict[str, Array]):
    """The parameters of a version that were kept; reading another one is an error."""

    def __init__(self, arrays: Mapping[str, Array], where: str) -> None:
        super().__init__(arrays)
        self._where = where

    def __missing__(self, name: str) -> Array:
        raise NodeError(
            f"parameter {name!r} is read in the backward of rows whose weights are stashed, "
            "but is not kept",
            where=self._where,
            fix="read_backward must name what backpropagate reads; add_gradients may read "
            "nothing: let backpropagate keep what it needs",
        )
