"""What a launched worker is told: one JSON file in the run folder, read by all workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amp_runtime.errors import StartError
from amp_runtime.graph.placement import Placement, WorkerPlace
from amp_runtime.graph.wiring import Wiring

PLAN_FORMAT = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How one run is laid out over processes.

    Attributes:
        run: 32 hex digits, new at each launch.
        folder: of the config file: functions are looked up there too.
        trace: folder in which each worker records what it does; '': nowhere.
    """

    run: str
    name: str
    seed: int
    verify: bool
    schedule: str
    update_every: int
    evaluation: str
    folder: str
    trace: str
    socket_directory: str
    controller_pid: int
    placement: Placement
    wiring: Wiring

    def write(self, path: Path) -> None:
        plain = {
            "format": PLAN_FORMAT,
            **{name: getattr(self, name) for name in _PLAIN},
            "workers": [asdict(worker) for worker in self.placement.workers],
            "wiring": self.wiring.to_plain(),
        }
        path.write_text(json.dumps(plain, indent=1))

    @staticmethod
    def read(path: Path) -> Plan:
        """Read a plan.

        Raises:
            StartError: it is not there, is damaged, or of another version.
        """
        try:
            plain: Mapping[str, Any] = json.loads(path.read_text())
            if (given := plain["format"]) == PLAN_FORMAT:
                return Plan._from_plain(plain)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            said = f"{'lacks ' * isinstance(error, KeyError)}{error}"
            raise StartError(f"cannot read the plan: {said}", where=str(path)) from error
        raise StartError(
            f"a plan of format {given}, not {PLAN_FORMAT}",
            where=str(path),
            fix="workers and controller must be of one version",
        )

    @staticmethod
    def _from_plain(plain: Mapping[str, Any]) -> Plan:
        workers = tuple(
            WorkerPlace(w["name"], tuple(w["nodes"]), tuple(w["cores"])) for w in plain["workers"]
        )
        return Plan(
            **{name: plain[name] for name in _PLAIN},
            placement=Placement(workers),
            wiring=Wiring.from_plain(plain["wiring"]),
        )


_PLAIN = (
    "run",
    "name",
    "seed",
    "verify",
    "schedule",
    "update_every",
    "evaluation",
    "folder",
    "trace",
    "socket_directory",
    "controller_pid",
)
