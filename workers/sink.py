"""Where rows end: answers null at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from amp_runtime.nodes.end import End
from amp_runtime.rows.message import Answer, Emission, Mode, Payload, Rows
from amp_runtime.rows.spec import PortSpec


class Sink(End):
    """Input `x`, no output."""

    kind = "sink"

    @dataclass(frozen=True, slots=True)
    class Options:
        predict: Annotated[bool, "whether what ends here is told as predictions"] = False

    @classmethod
    def predicts(cls, options: Any) -> bool:
        return bool(options.predict)

    @classmethod
    def load(cls, options: Any, inputs: Mapping[str, PortSpec]) -> float:
        return 0.5

    def predictions(self, rows: Rows) -> Payload:
        return rows.payload

    def forward(self, port: str, rows: Rows, mode: Mode) -> Sequence[Emission | Answer]:
        wanted = self.options.predict and self.context.evaluation.predicts
        if wanted and mode is Mode.EVALUATE:
            self.predict(rows)
        return (Answer(rows.return_to, None),)
