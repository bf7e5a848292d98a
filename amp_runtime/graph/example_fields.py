"""What the builder of a model may ask about the examples that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_runtime.errors import GraphError, nearest
from amp_runtime.rows.spec import Array, ArraySpec


class ExampleFields:
    """The fields of a data set's examples, and what their source says of them.

    Args:
        specs: {field: spec}.
        entries: {field: how many values}, of fields of ids with a vocabulary.
        unseen: {field: those of its values that no training example holds}.
        vectors: {field: [values, features]}, pre-trained vectors of the values of such fields.
        scales: {field: {metric: factor of an absolute error of its values}}.
        dtype: of floating payloads.
    """

    def __init__(
        self,
        specs: Mapping[str, ArraySpec],
        entries: Mapping[str, int],
        unseen: Mapping[str, Sequence[int]],
        vectors: Mapping[str, Array],
        scales: Mapping[str, Mapping[str, float]],
        dtype: str,
    ) -> None:
        self.specs = dict(specs)
        self._entries = dict(entries)
        self._unseen = dict(unseen)
        self._vectors = dict(vectors)
        self._scales = dict(scales)
        self._dtype = dtype

    def spec(self, name: str, where: str = "") -> ArraySpec:
        """Return what a field, or `len(field)`, holds per row, floats in the run's dtype.

        Raises:
            GraphError: no such field.
        """
        if not isinstance(name, str):
            raise GraphError(f"{name!r:.80} is no field: a field is text", where=where)
        if name.startswith("len(") and name.endswith(")"):
            self.spec(name[4:-1], where)
            return ArraySpec((), "int32")
        if name not in self.specs:
            raise GraphError(
                f"the data have no field {name!r}{nearest(name, self.specs)}",
                where=where,
                fix=f"their fields are {', '.join(sorted(self.specs))}",
            )
        spec = self.specs[name]
        return spec if spec.dtype == "int32" else ArraySpec(spec.shape, self._dtype)

    def entries(self, field: str) -> int:
        """Return how many values a field of ids takes.

        Raises:
            GraphError: no such field, or the data source does not say.
        """
        spec = self.spec(field)
        if field not in self._entries:
            raise GraphError(
                f"the data source does not say how many values field {field!r} ({spec}) takes",
                fix="set it as an option of the model",
            )
        return self._entries[field]

    def unseen(self, field: str) -> tuple[int, ...]:
        """Return the ids among a field's values that no training example holds, if known.

        Raises:
            GraphError: no such field.
        """
        self.spec(field)
        return tuple(self._unseen.get(field, ()))

    def vectors(self, field: str) -> Array | None:
        """Return pre-trained vectors of a field's values, if there are any.

        Raises:
            GraphError: no such field.
        """
        self.spec(field)
        return self._vectors.get(field)

    def scales(self, field: str) -> Mapping[str, float]:
        """Return {metric: factor of an absolute error of a field's values}, {} if none is told.

        Raises:
            GraphError: no such field.
        """
        self.spec(field)
        return self._scales.get(field, {})
