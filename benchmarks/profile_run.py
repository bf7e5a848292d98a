"""Where the time of each worker goes: a run of a config with timers in its workers.

    python -m benchmarks.profile_run CONFIG [key=value ...]
    make profile CONFIG=configs/sentiment.yaml SET='runtime.placement=packed data.train=1000'

Printed is a table of each worker: CPU seconds by part, per batch and per row of all its nodes, and
a row for each node. Parts:

    compute      forward, backward and accumulate of the nodes
    host         queues, checks of rows, routes
    copy         rows merged into batches, arrays into shared memory and out of it, small frames
                 joined into one
    serialise, deserialise    messages to frames and back
    socket       sending and receiving frames; libzmq's own thread is told apart
    poll         looking whether something has come; what it waited is no CPU time
    records      control: structures, barriers, reports
    loop         what is left of the loop's thread

The runtime has no timers and no place where they are put: a call that does nothing would cost on
the hot path what is to be measured there. cProfile in each worker would time every call, at several
times the cost of small ones, and does not tell waiting from work. So a folder on PYTHONPATH has the
`sitecustomize` that Python imports at its start, which wraps the functions named in `timers.PARTS`
in workers alone; a run without it is not changed by a byte. A test holds the names to the code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timers import COMPUTE, LOOP, PARTS

ROOT = Path(__file__).parents[1]


def profile(config: str, settings: Sequence[str]) -> list[dict[str, Any]]:
    """Run `config`; return what each worker left.

    Raises:
        subprocess.CalledProcessError: the run failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "amp_runtime", "run", config, *settings]
        path = [str(Path(__file__).parent / "profiling"), str(ROOT)]
        path += filter(None, [os.environ.get("PYTHONPATH")])
        environment = {**os.environ, "AMP_PROFILE": folder, "PYTHONPATH": os.pathsep.join(path)}
        subprocess.run(
            [*command, "checkpoint.every=never", f"runtime.runs={folder}/runs"],
            check=True,
            env=environment,
            stdout=sys.stderr,
        )
        return [json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))]


def parts_of(worker: Mapping[str, Any]) -> dict[str, float]:
    """Return CPU seconds by part, `compute` for all nodes together."""
    cpu = worker["cpu_s"]
    compute = sum(s for name, s in cpu.items() if name.partition(" ")[0] in COMPUTE)
    named = {part: cpu.get(part, 0.0) for part in (*PARTS, LOOP)}
    thread = sum(cpu.values())
    return {"compute": compute, **named, "libzmq's thread": worker["process_cpu_s"] - thread}


def table(worker: Mapping[str, Any]) -> str:
    """Return what a worker did, as Markdown."""
    rows = sum(node["rows"] for node in worker["nodes"].values())
    batches = sum(node["batches"] for node in worker["nodes"].values())
    work = f"{batches:,} batches of {rows / max(batches, 1):.0f} rows"
    cost = worker["call_s"] * sum(worker["calls"].values())
    parts = parts_of(worker)
    whole = sum(parts.values())
    # libzmq's thread runs beside the loop's.
    off = worker["wall_s"] - worker["waited_s"] - sum(worker["cpu_s"].values())
    lines = [
        f"### {worker['worker']}",
        "",
        f"{worker['wall_s']:.1f} s, of which {worker['waited_s']:.1f} s waiting for messages and "
        f"{max(off, 0):.1f} s for a core; {whole:.1f} s of CPU; {work}; "
        f"timers took {cost:.1f} s of it",
        "",
        "| part | CPU, s | share | us a batch | us a row |",
        "|---|---|---|---|---|",
    ]

    def line(name: str, seconds: float, batches: int, rows: int) -> str:
        per = (1e6 * seconds / max(n, 1) for n in (batches, rows))
        a_batch, a_row = per
        share = 100 * seconds / whole if whole else 0
        return f"| {name} | {seconds:.2f} | {share:.0f} % | {a_batch:.1f} | {a_row:.2f} |"

    lines += [line(part, seconds, batches, rows) for part, seconds in parts.items()]
    for node, counts in worker["nodes"].items():
        own = sum(worker["cpu_s"].get(f"{name} {node}", 0.0) for name in COMPUTE)
        lines.append(line(f"- compute of {node}", own, counts["batches"], counts["rows"]))
    return "\n".join(lines)


def main() -> None:
    config, *settings = sys.argv[1:]
    print("\n\n".join(table(worker) for worker in profile(config, settings)))


if __name__ == "__main__":
    main()
