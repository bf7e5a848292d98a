"""Turns examples into rows to inject, many instances at a time.

Rows and structure are prepared in blocks of some hundred examples, so that admitting
one instance costs a few array slices, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import DataError, KeyOverflowError
from amp_runtime.graph.wiring import InputSpec, PerExample, Wiring
from amp_runtime.rows.message import ADDRESS_COLUMNS, Payload, dealt
from amp_runtime.rows.spec import EXAMPLE, INSTANCE, POSITION, Array, Int32, Int64

BLOCK_EXAMPLES = 512


@dataclass(frozen=True, slots=True)
class InputRows:
    """Rows for one input of the graph; the address columns are still to be stamped."""

    columns: Int32
    payload: Payload
    instances: Int32

    def dealt(self, ports: Sequence[int]) -> Iterator[tuple[int, InputRows]]:
        """Yield the rows that are for each of `ports`, one a replica; none without a row."""
        if len(ports) == 1 or not len(self.columns):
            yield from [(ports[0], self)] if len(self.columns) else []
            return
        for replica, index in dealt(self.instances, len(ports)):
            yield ports[replica], self if index is None else self._take(index)

    def _take(self, index: Array) -> InputRows:
        payload = {name: array[index] for name, array in self.payload.items()}
        return InputRows(self.columns[index], payload, self.instances[index])


@dataclass(frozen=True, slots=True)
class Injection:
    """A run of consecutive instances.

    Attributes:
        instances: int32 [k].
        n_examples: int32 [k], examples of each.
        n_rows: int64 [k], rows of each, over all inputs.
        inputs: the rows, in the order of the graph's inputs.
        structure: {field: values, "#" + field: int32 counts per example}.
    """

    instances: Int32
    n_examples: Int32
    n_rows: Int64
    inputs: tuple[InputRows, ...]
    structure: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class _Block:
    """Prepared instances; `*_ends` are cumulative per instance, starting with 0."""

    instances: Int32
    n_examples: Int32
    n_rows: Int64
    columns: tuple[Int32, ...]
    payloads: tuple[Payload, ...]
    input_ends: tuple[Int64, ...]
    example_ends: Int64
    values: Mapping[str, tuple[Array, Int32, Int64]]


class Feed:
    """The instances of one stage, in order.

    Args:
        dataset: with float fields in the run's dtype.
        order: int64 [examples]: which examples, in which order.
        first_instance: number of the first instance.
        left_out: instances that are not injected; their numbers stay free.
        taken: examples that are behind: of whole instances.
    Attributes:
        first_instance: as given.
        n_left_out: examples of instances that are not injected.
    Raises:
        DataError: as `check_lengths`.
    """

    def __init__(
        self,
        wiring: Wiring,
        dataset: Dataset,
        order: Int64,
        first_instance: int,
        left_out: Collection[int] = (),
        taken: int = 0,
    ) -> None:
        check_lengths(wiring, dataset)
        batch, n = wiring.batch, len(order)
        first_left = (np.array(sorted(left_out), np.int64) - first_instance) * batch
        first_left = first_left[(first_left >= 0) & (first_left < n)]
        self._left_out = (first_left // batch + first_instance).astype(np.int32)
        self.n_left_out = int(np.minimum(n - first_left, batch).sum())
        self._wiring = wiring
        self._dataset = dataset
        self._order = order
        self.first_instance = first_instance
        self._block_examples = max(batch, BLOCK_EXAMPLES // batch * batch)
        # Of the block that was begun, all is prepared: what goes together stays the same.
        self._prepared = n if taken >= n else taken // self._block_examples * self._block_examples
        self._next_instance = first_instance + self._prepared // batch
        self._begin = first_instance + taken // batch
        self._block: _Block | None = None
        self._at = 0

    @property
    def n_examples(self) -> int:
        return len(self._order)

    @property
    def next_instance(self) -> int:
        """The number of the next prepared instance; `upcoming` must have shown one."""
        assert self._block is not None
        return int(self._block.instances[self._at])

    @property
    def end_instance(self) -> int:
        """The number after that of the last instance."""
        return self.first_instance + -(-len(self._order) // self._wiring.batch)

    @property
    def passed(self) -> int:
        """How many examples are behind: taken, or left out."""
        if not len(self.upcoming()[0]):
            return len(self._order)
        return (self.next_instance - self.first_instance) * self._wiring.batch

    def upcoming(self) -> tuple[Int64, Int32]:
        """Return rows and examples of the next prepared instances; empty at the end."""
        while self._block is None or self._at == len(self._block.instances):
            if self._prepared >= len(self._order):
                return np.zeros(0, np.int64), np.zeros(0, np.int32)
            self._block = self._prepare()
            self._at = int(np.searchsorted(self._block.instances, self._begin))
        return self._block.n_rows[self._at :], self._block.n_examples[self._at :]

    def take(self, k: int) -> Injection:
        """Return the next `k` instances; `upcoming` must have shown as many."""
        block, start, end = self._block, self._at, self._at + k
        if block is None or end > len(block.instances):
            raise IndexError(f"{k} instances asked for, more than are prepared")
        self._at = end
        inputs = []
        for columns, payload, ends in zip(
            block.columns, block.payloads, block.input_ends, strict=True
        ):
            rows = slice(ends[start], ends[end])
            arrays = {name: array[rows] for name, array in payload.items()}
            inputs.append(InputRows(columns[rows], arrays, columns[rows, ADDRESS_COLUMNS]))
        examples = slice(block.example_ends[start], block.example_ends[end])
        structure: dict[str, Array] = {}
        for name, (values, counts, ends) in block.values.items():
            structure[name] = values[ends[examples.start] : ends[examples.stop]]
            structure[f"#{name}"] = counts[examples]
        return Injection(
            block.instances[start:end],
            block.n_examples[start:end],
            block.n_rows[start:end],
            tuple(inputs),
            structure,
        )

    def _prepare(self) -> _Block:
        batch = self._wiring.batch
        examples = self._order[self._prepared : self._prepared + self._block_examples]
        self._prepared += len(examples)
        k = -(-len(examples) // batch)
        instances = np.arange(self._next_instance, self._next_instance + k, dtype=np.int32)
        self._next_instance += k
        example_ends = np.minimum(np.arange(k + 1) * batch, len(examples))
        if (left_out := np.isin(instances, self._left_out)).any():
            examples = examples[~np.repeat(left_out, np.diff(example_ends))]
            instances, n_examples = instances[~left_out], np.diff(example_ends)[~left_out]
            example_ends = np.concatenate([[0], np.cumsum(n_examples)])
            k = len(instances)

        columns, payloads, ends = [], [], []
        for spec in self._wiring.inputs:
            matrix, payload = self._input_rows(spec, examples, instances)
            columns.append(matrix)
            payloads.append(payload)
            at = np.searchsorted(instances, matrix[:, ADDRESS_COLUMNS])
            rows = np.bincount(at, minlength=k)
            ends.append(np.concatenate([[0], np.cumsum(rows)]))
        values = {}
        for name in self._wiring.fields:
            array, counts = self._values(name, examples)
            values[name] = (array, counts, np.concatenate([[0], np.cumsum(counts)]))
        n_rows = np.sum([np.diff(e) for e in ends], axis=0)
        if len(n_rows) and not n_rows.all():
            raise DataError(
                f"example {int(examples[int(np.argmin(n_rows)) * batch])} would inject no row",
                where=self._dataset.where,
                fix="leave empty examples out",
            )
        return _Block(
            instances,
            np.diff(example_ends).astype(np.int32),
            n_rows,
            tuple(columns),
            tuple(payloads),
            tuple(ends),
            example_ends,
            values,
        )

    def _input_rows(
        self, spec: InputSpec, examples: Int64, instances: Int32
    ) -> tuple[Int32, Payload]:
        """Return all columns (addresses zero) and the payload for one input."""
        k = len(examples)
        if spec.each == PerExample:
            row_example = np.arange(k, dtype=np.int32)
            position = np.zeros(k, np.int32)
        else:
            gathered = self._dataset.gather(spec.each, examples)
            row_example, position = gathered.row_example, gathered.position
        schema, batch = spec.spec.schema, self._wiring.batch
        matrix = np.zeros((len(row_example), ADDRESS_COLUMNS + len(schema.names)), np.int32)
        for at, name in enumerate(schema.names, start=ADDRESS_COLUMNS):
            if name == INSTANCE:
                matrix[:, at] = instances[row_example // batch]
            elif name == EXAMPLE:
                matrix[:, at] = row_example % batch
            elif (source := spec.state[name]) == POSITION:
                matrix[:, at] = position
            elif isinstance(source, int):
                matrix[:, at] = source
            else:
                matrix[:, at] = self._aligned(source, examples)
        payload = {}
        for array, field in spec.payload.items():
            array_spec = spec.spec.arrays[array]
            if field is None:
                shape = (len(row_example), *array_spec.shape)
                payload[array] = np.zeros(shape, array_spec.numpy_dtype)
            else:
                payload[array] = self._aligned(field, examples)
        try:
            schema.pack(matrix[:, ADDRESS_COLUMNS:])
        except KeyOverflowError as error:
            raise error.at(f"{self._dataset.where}, input {spec.name!r}") from None
        return matrix, payload

    def _aligned(self, field: str, examples: Int64) -> Array:
        """Return a field's values: as many rows as the input has, says `check_lengths`."""
        return self._values(field, examples)[0]

    def _values(self, name: str, examples: Int64) -> tuple[Array, Int32]:
        if name.startswith("len("):
            counts = self._dataset.field(name[4:-1]).counts[examples]
            return counts, np.ones(len(examples), np.int32)
        gathered = self._dataset.gather(name, examples)
        return gathered.values, gathered.counts


def check_lengths(wiring: Wiring, dataset: Dataset) -> None:
    """Assert that every example fits the graph's inputs.

    Raises:
        DataError: the fields of an input differ in length, or hold fewer elements than it
            must have; names the first such example.
    """
    for spec in wiring.inputs if len(dataset) else ():
        rows = _lengths(dataset, spec.each)
        if (few := rows < spec.at_least).any():
            at = int(np.flatnonzero(few)[0])
            raise DataError(
                f"example {at} has {int(rows[at])} rows in field {spec.each!r}, but input "
                f"{spec.name!r} needs {spec.at_least} at least",
                where=dataset.where,
                fix="leave such examples out",
            )
        sources = (*spec.state.values(), *spec.payload.values())
        for field in (s for s in sources if isinstance(s, str) and s != POSITION):
            lengths = _lengths(dataset, field)
            if (wrong := lengths != rows).any():
                at = int(np.flatnonzero(wrong)[0])
                raise DataError(
                    f"example {at} has {int(lengths[at])} rows in field {field!r}, but input "
                    f"{spec.name!r} injects {int(rows[at])}",
                    where=dataset.where,
                    fix=f"the fields of an input must be as long as {spec.each!r}",
                )


def _lengths(dataset: Dataset, field: str) -> Int32:
    """Return how many rows a field has in each example, int32 [examples]."""
    if field == PerExample or field.startswith("len("):
        return np.ones(len(dataset), np.int32)
    return dataset.field(field).counts


def mean_rows_per_example(wiring: Wiring, dataset: Dataset) -> float:
    """Return how many rows an example injects on average; 1 for an empty data set."""
    if not len(dataset):
        return 1.0
    return sum(
        1.0 if spec.each == PerExample else float(dataset.field(spec.each).counts.mean())
        for spec in wiring.inputs
    )
