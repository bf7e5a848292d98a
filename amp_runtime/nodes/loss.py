"""Nodes where the backward begins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from amp_runtime.nodes.node import Node, NodeContext
from amp_runtime.nodes.statistics import Metrics, MetricSum, add_metrics
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.spec import PortSpec


class Loss(Node):
    """Answers each row at once: with dL/dx in training, with null in evaluation.

    Losses sum over their rows. A kind writes

        measure(rows, wants_gradient) -> (metrics of these rows, dL/dx or None)
    """

    outputs = ()
    is_end = True

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._metrics: dict[Mode, Metrics] = {mode: {} for mode in Mode}

    @classmethod
    def infer(
        cls, options: object, inputs: Mapping[str, PortSpec], dtype: str
    ) -> dict[str, PortSpec]:
        return {}

    @abstractmethod
    def measure(self, rows: Rows, wants_gradient: bool) -> tuple[Metrics, Payload | None]:
        """Return the sums of the metrics over `rows`, `loss` among them, and dL/dx."""

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        wants = mode is Mode.TRAIN and port in self.context.wants_gradient
        metrics, gradient = self.measure(rows, wants)
        add_metrics(self._metrics[mode], metrics)
        return (Answer(rows.return_to, gradient),)

    def take_metrics(self, mode: Mode) -> Metrics:
        return {n: MetricSum(m.total, m.count) for n, m in self._metrics[mode].items()}

    def reset_metrics(self) -> None:
        for metrics in self._metrics.values():
            metrics.clear()
