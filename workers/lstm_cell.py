"""The memory cell that all LSTM kinds share: gates, and the memories of any number of rows.

A row has n memories c_1 ... c_n that come before it: 1 in a sequence, 2 at a branch of a
binary tree, none at a leaf. From its inputs side by side,

    i, f_1 ... f_n, g, o = inputs @ weight + bias        blocks of `features` columns
    c = sum_k sigmoid(f_k) * c_k + sigmoid(i) * tanh(g) + carried
    h = sigmoid(o) * tanh(c)

where `carried` is what passed a forget gate elsewhere, if anything did.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from amp_runtime.errors import ShapeMismatchError
from amp_runtime.nodes.node import NodeContext
from amp_runtime.nodes.parameterised import Parameterised, uniform
from amp_runtime.nodes.schema_checks import vectors
from amp_runtime.rows.message import Payload
from amp_runtime.rows.spec import Array, PortSpec

OVERHEAD = 5.0
"""Microseconds that a row costs beside its products."""


class LstmCell(Parameterised):
    """A kind whose output `y` is {h: [rows, features], c: [rows, features]}.

    Parameters: weight [in, (3 + n) * features] from a uniform distribution within
    1 / sqrt(features), bias [(3 + n) * features] of zeros but for the forget gates'. A kind
    writes what goes into the cell, and what becomes of its gradient:

        gather(payload) -> (inputs [rows, in], memories [rows, n, features], carried)
        spread(to_inputs, to_memories, to_carried) -> the gradient of the payload

    Args:
        n_in: width of the inputs.
        n_before: memories of a row.
        features: width of h and c.
    """

    def __init__(self, context: NodeContext, n_in: int, n_before: int, features: int) -> None:
        self._shape = (n_in, n_before, features)
        super().__init__(context)
        _, _, n = self._shape
        # sigmoid(x) = (1 + tanh(x / 2)) / 2, so one tanh does for all gates.
        scale = np.full(self.parameters["bias"].shape, 0.5, context.dtype)
        scale[-2 * n : -n] = 1
        self._scale, self._shift = scale, 1 - scale
        self._slope = 2 * self._shift, 2 * scale - 1

    @abstractmethod
    def gather(self, payload: Payload) -> tuple[Array, Array, Array | None]:
        """Return inputs [rows, in], memories [rows, n, features], carried [rows, features]."""

    @abstractmethod
    def spread(self, to_inputs: Array, to_memories: Array, to_carried: Array) -> Payload:
        """Return the gradient of a payload from those of what `gather` made of it."""

    def initial_parameters(self, generator: np.random.Generator) -> dict[str, Array]:
        n_in, n_before, n = self._shape
        bias = np.zeros((3 + n_before) * n)
        bias[n : (1 + n_before) * n] = getattr(self.options, "forget_bias", 0.0)
        weight = uniform(generator, 1 / np.sqrt(n), (n_in, (3 + n_before) * n))
        return {"weight": weight, "bias": bias}

    def compute(self, payload: Payload) -> tuple[Payload, Payload]:
        inputs, memories, carried = self.gather(payload)
        gates = self.product(inputs, self.parameters["weight"])
        gates += self.parameters["bias"]
        gates *= self._scale
        np.tanh(gates, out=gates)
        gates *= self._scale
        gates += self._shift
        i, f, g, o = self._blocks(gates)
        c = i * g
        if f.shape[1]:
            c += np.einsum("rkn,rkn->rn", f, memories)
        if carried is not None:
            c += carried
        squashed = np.tanh(c)
        saved = {"inputs": inputs, "memories": memories, "gates": gates, "squashed": squashed}
        return {"h": o * squashed, "c": c}, saved

    def backpropagate(self, saved: Payload, gradient: Payload, wants_input: bool) -> Payload | None:
        gates, squashed = saved["gates"], saved["squashed"]
        i, f, g, o = self._blocks(gates)
        to_h, to_c = both(gradient, i)
        to_c = to_c + to_h * o * (1 - squashed * squashed)
        # dy/dx of all gates at once: y - y^2 of a sigmoid, 1 - y^2 of the tanh.
        factor, offset = self._slope
        to_gates = gates * factor
        to_gates += offset
        to_gates -= gates * gates
        to_i, to_f, to_g, to_o = self._blocks(to_gates)
        to_i *= to_c * g
        to_f *= to_c[:, np.newaxis] * saved["memories"]
        to_g *= to_c * i
        to_o *= to_h * squashed
        self.terms.add(saved["inputs"], to_gates)
        if not wants_input:
            return None
        to_memories = to_c[:, np.newaxis] * f
        return self.spread(self.product_back(to_gates, "weight"), to_memories, to_c)

    def read_backward(self, wants_input: bool) -> tuple[str, ...]:
        return ("weight",) if wants_input else ()

    def add_gradients(self, into: Any) -> None:
        inputs, to_gates = self.terms.take()
        into["weight"][...] += inputs.T @ to_gates
        into["bias"][...] += to_gates.sum(axis=0)

    def _blocks(self, gates: Array) -> tuple[Array, Array, Array, Array]:
        """Return i [rows, n], f [rows, n_before, n], g and o [rows, n] as views of `gates`."""
        _, n_before, n = self._shape
        forget = gates[:, n : (1 + n_before) * n].reshape(len(gates), n_before, n)
        start = (1 + n_before) * n
        return gates[:, :n], forget, gates[:, start : start + n], gates[:, start + n :]


class StateCell(LstmCell):
    """A cell of input `x` {x: [rows, in], h: [rows, features], c: [rows, features]}.

    Class attributes:
        n_before: memories of a row: 1, c; or 0, where c is carried.
    """

    n_before: ClassVar[int]

    @classmethod
    def infer(cls, options: Any, inputs: Mapping[str, PortSpec], dtype: str) -> dict[str, PortSpec]:
        return {"y": state_spec(inputs["x"], dtype)}

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        n_in, n = state_widths(inputs["x"])
        return cell_load(n_in + n, cls.n_before, n)

    def __init__(self, context: NodeContext) -> None:
        self._n_in, n = state_widths(context.inputs["x"])
        super().__init__(context, self._n_in + n, self.n_before, n)

    def gather(self, payload: Payload) -> tuple[Array, Array, Array | None]:
        inputs, c = np.concatenate([payload["x"], payload["h"]], axis=1), payload["c"]
        memories = c[:, np.newaxis][:, : self.n_before]
        return inputs, memories, None if self.n_before else c

    def spread(self, to_inputs: Array, to_memories: Array, to_carried: Array) -> Payload:
        to_c = to_memories[:, 0] if self.n_before else to_carried
        return {"x": to_inputs[:, : self._n_in], "h": to_inputs[:, self._n_in :], "c": to_c}


def cell_load(n_in: int, n_before: int, features: int) -> float:
    """Return the microseconds that a row costs, forward and backward, as a linear's do."""
    return OVERHEAD + 6.0 * n_in * (3 + n_before) * features / 50e3


def state_spec(spec: PortSpec, dtype: str) -> PortSpec:
    """Return {h, c} of what comes to a kind that takes {x, h, c}.

    Raises:
        ShapeMismatchError: other arrays come, not floats [rows, n], or h and c differ.
    """
    _, width_h, width_c = vectors(spec, ("x", "h", "c"), dtype)
    if width_h != width_c:
        raise ShapeMismatchError(f"its h and c are of one width, but it is given {spec}")
    return PortSpec({name: spec.arrays[name] for name in ("h", "c")}, spec.schema)


def state_widths(spec: PortSpec) -> tuple[int, int]:
    """Return the widths of x and of h."""
    (n_in,), (n,) = (spec.arrays[name].shape for name in ("x", "h"))
    return n_in, n


def both(gradient: Payload, like: Array) -> tuple[Array, Array]:
    """Return dL/dh and dL/dc; zeros as `like` for the one that is missing."""
    h, c = (gradient[n] if n in gradient else np.zeros_like(like) for n in ("h", "c"))
    return h, c
