"""Parameters before training, by name: the distributions of torch.nn.init.

A weight is [in, out] here: its fan-in is the product of all axes but the last, its fan-out
the last. So a table has fan-in `entries`, and the gates of a fused cell, side by side in
one array, count together in its fan-out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from amp_runtime.errors import BadOptionError, UnknownOptionError, nearest
from amp_runtime.limits import Gt
from amp_runtime.rows.spec import Array

if TYPE_CHECKING:
    from numpy.random import Generator

ALL_WEIGHTS = "*"
"""Stands for all parameters that are no vectors and are not named."""

Shape = tuple[int, ...]
Nonlinearity = Literal["linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]


class Initializer(ABC):
    """Makes one parameter array; its fields are its options.

    Class attributes:
        least_axes: that an array must have.
    """

    name: ClassVar[str]
    least_axes: ClassVar[int] = 0

    @abstractmethod
    def make(self, shape: Shape, generator: Generator) -> Array:
        """Return float64 `shape`, new memory."""


def fans(shape: Shape) -> tuple[int, int]:
    """Return (fan-in, fan-out)."""
    return math.prod(shape[:-1]), shape[-1]


@dataclass(frozen=True)
class Zeros(Initializer):
    """0 everywhere."""

    name = "zeros"

    def make(self, shape: Shape, generator: Generator) -> Array:
        return np.zeros(shape)


@dataclass(frozen=True)
class Ones(Initializer):
    """1 everywhere."""

    name = "ones"

    def make(self, shape: Shape, generator: Generator) -> Array:
        return np.ones(shape)


@dataclass(frozen=True)
class Constant(Initializer):
    """`value` everywhere."""

    name = "constant"
    value: Annotated[float, "of every component"]

    def make(self, shape: Shape, generator: Generator) -> Array:
        return np.full(shape, self.value, np.float64)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Between a and b."""

    name = "uniform"
    a: Annotated[float, "lower bound"] = 0.0
    b: Annotated[float, "upper bound"] = 1.0

    def __post_init__(self) -> None:
        _check_order(self.a, self.b)

    def make(self, shape: Shape, generator: Generator) -> Array:
        return generator.uniform(self.a, self.b, shape)


@dataclass(frozen=True)
class Normal(Initializer):
    """Normal distribution."""

    name = "normal"
    mean: Annotated[float, "mean"] = 0.0
    std: Annotated[float, Gt(0), "standard deviation"] = 1.0

    def make(self, shape: Shape, generator: Generator) -> Array:
        return generator.normal(self.mean, self.std, shape)


@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal, drawn again wherever it is not between a and b."""

    name = "truncated_normal"
    mean: Annotated[float, "mean of the whole distribution"] = 0.0
    std: Annotated[float, Gt(0), "standard deviation of the whole distribution"] = 1.0
    a: Annotated[float, "lower bound"] = -2.0
    b: Annotated[float, "upper bound"] = 2.0

    def __post_init__(self) -> None:
        _check_order(self.a, self.b)
        low, high = ((x - self.mean) / (self.std * math.sqrt(2)) for x in (self.a, self.b))
        if math.erf(high) - math.erf(low) < 0.02:
            raise ValueError("less than 1 % of the distribution is between a and b")

    def make(self, shape: Shape, generator: Generator) -> Array:
        drawn = generator.normal(self.mean, self.std, shape)
        while (outside := (drawn < self.a) | (drawn > self.b)).any():
            drawn[outside] = generator.normal(self.mean, self.std, int(outside.sum()))
        return drawn


@dataclass(frozen=True)
class XavierUniform(Initializer):
    """Within gain * sqrt(6 / (fan-in + fan-out)) of 0. Glorot and Bengio, 2010."""

    name = "xavier_uniform"
    least_axes = 2
    gain: Annotated[float, Gt(0), "factor"] = 1.0

    def make(self, shape: Shape, generator: Generator) -> Array:
        bound = self.gain * math.sqrt(6 / sum(fans(shape)))
        return generator.uniform(-bound, bound, shape)


@dataclass(frozen=True)
class XavierNormal(Initializer):
    """With standard deviation gain * sqrt(2 / (fan-in + fan-out)). Glorot and Bengio, 2010."""

    name = "xavier_normal"
    least_axes = 2
    gain: Annotated[float, Gt(0), "factor"] = 1.0

    def make(self, shape: Shape, generator: Generator) -> Array:
        return generator.normal(0, self.gain * math.sqrt(2 / sum(fans(shape))), shape)


@dataclass(frozen=True)
class _Kaiming(Initializer):
    """He et al., arXiv:1502.01852."""

    least_axes = 2
    a: Annotated[float, "slope below 0 of leaky_relu"] = 0.0
    mode: Annotated[Literal["fan_in", "fan_out"], "whose variance is kept"] = "fan_in"
    nonlinearity: Annotated[Nonlinearity, "what follows"] = "leaky_relu"

    def std(self, shape: Shape) -> float:
        fan_in, fan_out = fans(shape)
        fan = fan_in if self.mode == "fan_in" else fan_out
        return _gain(self.nonlinearity, self.a) / math.sqrt(fan)


@dataclass(frozen=True)
class KaimingUniform(_Kaiming):
    """Within gain * sqrt(3 / fan) of 0."""

    name = "kaiming_uniform"

    def make(self, shape: Shape, generator: Generator) -> Array:
        bound = math.sqrt(3) * self.std(shape)
        return generator.uniform(-bound, bound, shape)


@dataclass(frozen=True)
class KaimingNormal(_Kaiming):
    """With standard deviation gain / sqrt(fan)."""

    name = "kaiming_normal"

    def make(self, shape: Shape, generator: Generator) -> Array:
        return generator.normal(0, self.std(shape), shape)


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """Orthonormal rows or columns, whichever are fewer. Saxe et al., arXiv:1312.6120."""

    name = "orthogonal"
    least_axes = 2
    gain: Annotated[float, Gt(0), "factor"] = 1.0

    def make(self, shape: Shape, generator: Generator) -> Array:
        n_in, n_out = fans(shape)
        tall = generator.normal(size=(max(n_in, n_out), min(n_in, n_out)))
        q, r = np.linalg.qr(tall)
        q *= np.sign(np.diag(r))  # else they would not be uniformly distributed
        matrix: Array = self.gain * (q if n_in >= n_out else q.T)
        return matrix.reshape(shape)


INITIALIZERS: Mapping[str, type[Initializer]] = {
    cls.name: cls
    for cls in (
        Zeros, Ones, Constant, Uniform, Normal, TruncatedNormal, XavierUniform, XavierNormal,
        KaimingUniform, KaimingNormal, Orthogonal,
    )
}  # fmt: skip


def make_initializer(options: Mapping[str, Any]) -> Initializer:
    """Return the initialiser for validated `options`, `name` among them."""
    values = dict(options)
    return INITIALIZERS[values.pop("name")](**values)


def initial_values(
    given: Mapping[str, Any], parameters: Mapping[str, Array], generator: Generator, where: str
) -> dict[str, Array]:
    """Return the values of the parameters that are not to begin with the kind's own.

    Args:
        given: the options of one initialiser, for all weights: parameters that are no
            vectors, as a bias or a gain is; or {parameter: options}, where ALL_WEIGHTS
            stands for those weights that are not named.
        where: the node, for errors.
    Raises:
        UnknownOptionError: no such parameter; the node's are named.
        BadOptionError: a fan of a vector is asked for, or there are only vectors.
    """
    fix = f"its parameters are {', '.join(f'{n}{list(a.shape)}' for n, a in parameters.items())}"
    weights = [name for name, array in parameters.items() if array.ndim > 1]
    named = dict(given)
    if isinstance(given.get("name"), str):
        if not weights:
            what = "option 'initializer': one for all weights, and it has vectors only"
            raise BadOptionError(what, where=where, fix=f"{fix}; give one by name")
        named = {ALL_WEIGHTS: given}
    if rest := named.pop(ALL_WEIGHTS, None):
        named = dict.fromkeys(weights, rest) | named
    values = {}
    for name, options in named.items():
        if name not in parameters:
            what = f"option 'initializer': no parameter {name!r}{nearest(name, parameters)}"
            raise UnknownOptionError(what, where=where, fix=fix)
        initializer, array = make_initializer(options), parameters[name]
        if array.ndim < initializer.least_axes:
            raise BadOptionError(
                f"option 'initializer': {initializer.name} needs a fan-in and a fan-out, and "
                f"{name!r} is a vector",
                where=where,
                fix=fix,
            )
        values[name] = initializer.make(array.shape, generator)
    return values


def _gain(nonlinearity: Nonlinearity, a: float) -> float:
    """Return torch.nn.init.calculate_gain."""
    match nonlinearity:
        case "tanh":
            return 5 / 3
        case "relu":
            return math.sqrt(2)
        case "leaky_relu":
            return math.sqrt(2 / (1 + a * a))
        case "selu":
            return 3 / 4
    return 1.0


def _check_order(a: float, b: float) -> None:
    if a >= b:
        raise ValueError(f"a must be below b, but {a:g} is not below {b:g}")
