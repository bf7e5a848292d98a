"""A few examples through a graph and back, in this process, before any worker starts.

A config, a model and its data are checked without running anything; what a user's node
kinds and functions on states do with rows is not. So the same nodes as in a run train on
one instance here, update, and evaluate one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from amp_runtime.config.schema import Config
from amp_runtime.data.dataset import Dataset
from amp_runtime.errors import GraphError, NodeError, blamed
from amp_runtime.host.node_host import NodeHost
from amp_runtime.nodes.node import Kinds
from amp_runtime.prepare import Prepared
from amp_runtime.reference import Reference

MOST_BATCHES, BATCHES_A_ROW = 200_000, 10
"""The larger limit of both is far more than an instance takes whose rows leave their loops. A tree
that is a chain takes the most: no two of its nodes are merged, so that each row of its fields
comes to two batches."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What one instance of training has shown.

    Attributes:
        metrics: of training.
        still: nodes with parameters that have not updated, nor any replica of them: no
            gradient came to them.
    """

    n_examples: int
    metrics: Mapping[str, float]
    still: Sequence[str]

    def words(self) -> str:
        examples = f"{self.n_examples} example{'s' if self.n_examples > 1 else ''}"
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())
        said = f"rehearsed with one instance of {examples}: {metrics}"
        if not np.isfinite(self.metrics.get("loss", 0)):
            said += "; a loss that is not finite will not train"
        if self.still:
            said += f"; no gradient came to {', '.join(self.still)}"
        return said


def rehearse(prepared: Prepared, kinds: Kinds) -> Rehearsal:
    """Train on one instance, update, evaluate another.

    Raises:
        AmpError: what a node, a function on states or a kind of the user's does wrong, with
            the line of it; or rows are left that nobody answers.
    """
    config = prepared.config
    batch = config.data.batch
    order = prepared.train.order(config.seed, 1)
    train, valid = _first(prepared.train, order, batch), _first(prepared.valid, None, batch)
    settings = replace(
        prepared.settings, max_epochs=1, max_examples=None, max_minutes=None, target=None
    )
    with blaming(config):
        run = Reference(
            prepared.wiring, kinds, train, valid, settings, parameters=prepared.parameters
        )
    with blaming(config, run.host):
        n_rows = sum(int(field.offsets[-1]) for field in train.fields.values())
        run.run(max(MOST_BATCHES, BATCHES_A_ROW * n_rows))
    reports = run.host.report().nodes
    trained = {node.ir_name for node in prepared.wiring.nodes if reports[node.name].updates}
    still = [name for name in prepared.wiring.parameterised if name not in trained]
    return Rehearsal(len(train), run.results[0].metrics, still)


def _first(dataset: Dataset, order: np.ndarray | None, n: int) -> Dataset:
    order = np.arange(len(dataset)) if order is None else order
    return dataset.subset(order[:n])


@contextmanager
def blaming(config: Config, host: NodeHost | None = None) -> Iterator[None]:
    """Add to an error the line of a user's code, the node that `host` works on, and the config's.

    Raises:
        AmpError: for any exception within.
    """
    try:
        yield
    except GraphError as error:
        raise (error.at(config.place("model")) if error.where else error) from error.__cause__
    except Exception as error:  # noqa: BLE001 - whatever a node raises is told
        failure = blamed(error, NodeError, str(config.folder))
        name = host.working_on if host else ""
        if host and name and f"node {name!r}" not in failure.where:
            kind = host.wiring.nodes[host.wiring.number[name]].kind
            failure = failure.at(f"node {name!r} (kind {kind})")
        raise failure.at(config.place("model")) from None
