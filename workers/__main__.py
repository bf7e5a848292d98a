"""A worker process: `python -m workers --plan FILE --worker N`. Started by the launcher.

One that is started again is told which incarnation of the worker it is, and in which
generation of the run it begins: `--incarnation I --generation G`. `--rows FD` is the memory
that arrays of rows pass through.

Its standard output and error are its log file. It ignores SIGINT, dumps all stacks on
SIGUSR1, and dies with its controller.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path

from amp_runtime import names
from amp_runtime.errors import StartError, blamed
from amp_runtime.loops.worker_loop import WorkerLoop, rss_bytes
from amp_runtime.output.log import Log
from amp_runtime.processes.blas import blas_kernel
from amp_runtime.processes.plan import Plan
from amp_runtime.wire.protocol import Hello
from workers.registry import Registry

_PR_SET_PDEATHSIG = 1
_NUMBERS = ("--worker", "--incarnation", "--generation", "--rows")


def main() -> int:
    file, worker, incarnation, generation, rows_fd = _arguments(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    log = Log(f"worker-{worker}")
    folder = ""
    try:
        plan = Plan.read(file)
        _die_with(plan.controller_pid)
        place = plan.placement.workers[worker]
        log = Log(place.name)
        nodes = ",".join(plan.wiring.nodes[i].name for i in place.nodes)
        _set_title(f"amp {plan.name} {place.name}{f' ({nodes})' if len(place.nodes) > 1 else ''}")
        folder = plan.folder
        names.search_also(folder)
        if os.environ.get("AMP_TESTING") == "1":
            _arm_failpoints(place.name, incarnation)
        os.sched_setaffinity(0, place.cores)
        loop = WorkerLoop(plan, worker, Registry(), log, incarnation, generation, rows_fd)
        # After all imports: libraries reset or inherit the mask.
        os.sched_setaffinity(0, place.cores)
    except Exception as error:  # noqa: BLE001 - whatever a node's constructor raises is reported
        # The launcher reads the last line of a worker that failed to start.
        log.raw(traceback.format_exc())
        failure = blamed(error, StartError, folder)
        print(failure.line(), file=sys.stderr, flush=True)
        return failure.exit_code
    threads, kernel = blas_kernel()
    log.info(
        "started",
        pid=os.getpid(),
        cores=list(place.cores),
        kinds=",".join(plan.wiring.nodes[i].kind for i in place.nodes),
        blas=kernel,
        blas_threads=threads,
        rss_mb=rss_bytes() / 1e6,
        incarnation=incarnation,
        generation=generation,
    )
    cores = sorted(os.sched_getaffinity(0))
    return loop.run(Hello(worker, os.getpid(), cores, threads, kernel, rss_bytes()))


def _arguments(given: list[str]) -> tuple[Path, int, int, int, int | None]:
    """Return plan, worker, incarnation, generation and the descriptor, if there is one.

    Without argparse, which takes 0.4 MB.
    """
    named = dict(zip(given[::2], given[1::2], strict=False))
    file = named.pop("--plan", "")
    numbers = {"--incarnation": "0", "--generation": "0"} | named
    if (
        not file
        or len(given) != 2 * len(named) + 2
        or not {"--worker"} <= numbers.keys() <= set(_NUMBERS)
        or not all(number.isdecimal() for number in numbers.values())
    ):
        form = "--plan FILE --worker N [--incarnation I --generation G] [--rows FD]"
        sys.exit(f"usage: python -m workers {form}, not {' '.join(given)}")
    worker, incarnation, generation = (int(numbers[name]) for name in _NUMBERS[:3])
    rows = numbers.get("--rows")
    return Path(file), worker, incarnation, generation, None if rows is None else int(rows)


def _die_with(controller_pid: int) -> None:
    """Have the kernel kill this process when the controller ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != controller_pid:  # it ended before we asked
        sys.exit(1)


def _arm_failpoints(worker: str, incarnation: int) -> None:
    # Imported here: a worker has what it needs in a run.
    from amp_runtime.processes.failing import arm

    arm(worker, incarnation)


def _set_title(title: str) -> None:
    from setproctitle import setproctitle

    setproctitle(title)


if __name__ == "__main__":
    sys.exit(main())
