"""What tests make processes do at failpoints.

    AMP_TESTING=1 AMP_FAILPOINT="worker.after_apply:linear-1=kill@3,controller.after_retire=exit"

A comma between them, each `PLACE[:WORKER]=ACTION[@N]`: at the N-th time (1) that a process is
there, in its first incarnation; `@*`: every time, in all incarnations. Without AMP_TESTING=1
nothing is read.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from amp_runtime import failpoints
from amp_runtime.errors import UsageError, nearest

EXIT_STATUS = 3
SLEEP_S = 0.1
ACTIONS = ("kill", "exit", "raise", "stop", "sleep")
CONTROLLER = "controller"

_FORM = re.compile(r"([a-z._]+)(?::([\w.-]+))?=([a-z]+)(?:@(\d+|\*))?")


class FailpointError(RuntimeError):
    """What the action `raise` raises."""


@dataclass(slots=True)
class _Armed:
    """What happens at one place.

    Attributes:
        worker: the only one that it happens to; '': any.
        at: which time; 0: every time.
    """

    name: str
    worker: str
    action: str
    at: int
    times: int = 0


def arm(who: str, incarnation: int = 0, environ: Mapping[str, str] = os.environ) -> None:
    """Do in this process what the environment asks for.

    Args:
        who: the name of a worker, or CONTROLLER.
    Raises:
        UsageError: it asks for what there is not.
    """
    if environ.get("AMP_TESTING") != "1" or not (asked := environ.get("AMP_FAILPOINT")):
        return
    armed = [_read(one) for one in asked.split(",")]
    armed = [one for one in armed if one.worker in ("", who) and (not one.at or not incarnation)]

    def hit(name: str) -> None:
        for one in armed:
            if one.name == name:
                one.times += 1
                if one.at in (0, one.times):
                    _do(one.action, name)

    failpoints.hit = hit


def _read(text: str) -> _Armed:
    where = "AMP_FAILPOINT"
    found = _FORM.fullmatch(text.strip())
    if found is None:
        form = "PLACE[:WORKER]=ACTION[@N], as worker.after_apply:linear-1=kill@3"
        raise UsageError(f"{text!r} is not of the form {form}", where=where)
    name, worker, action, at = found.groups()
    if name not in failpoints.FAILPOINTS:
        known = ", ".join(failpoints.FAILPOINTS)
        close = nearest(name, failpoints.FAILPOINTS)
        raise UsageError(f"no place {name!r}{close}; there are {known}", where=where)
    if action not in ACTIONS:
        close = nearest(action, ACTIONS)
        raise UsageError(f"no action {action!r}{close}; use {', '.join(ACTIONS)}", where=where)
    if at == "0":
        raise UsageError(f"{text!r}: the first time is 1", where=where)
    return _Armed(name, worker or "", action, 0 if at == "*" else int(at or 1))


def _do(action: str, name: str) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(EXIT_STATUS)
        case "raise":
            raise FailpointError(f"failpoint {name}")
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(SLEEP_S)
