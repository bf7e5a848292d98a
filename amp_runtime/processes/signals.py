"""SIGINT, SIGTERM and SIGHUP: raised while this process works alone, collected while it
has workers to stop first."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from amp_runtime.errors import AmpError, Interrupted, Terminated, UnexpectedError, blamed

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalReceived(BaseException):
    """This process is asked to end. No Exception: whoever catches those must not hold it up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """The signals that came, in order.

    Attributes:
        fd: readable when one has come.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.numbers: list[int] = []

    def take(self) -> list[int]:
        """Return those that came since the last time."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 512)
        taken, self.numbers = self.numbers, []
        return taken


def error_of(number: int, what: str = "", where: str = "") -> AmpError:
    """Return the error that ends a run which signal `number` stopped; `what` says more."""
    cls = Interrupted if number == signal.SIGINT else Terminated
    more = f"{': ' if what else ''}{what}"
    return cls(f"stopped by {signal.Signals(number).name}{more}", where=where)


def as_error(error: BaseException) -> AmpError:
    """Return what ends a command as one of our errors: a signal, or a bug of ours."""
    match error:
        case AmpError():
            return error
        case SignalReceived(number=number):
            return error_of(number, "while no worker ran")
        case _:
            return blamed(error, UnexpectedError)


@contextmanager
def raised() -> Iterator[None]:
    """Raise SignalReceived where the program happens to be."""

    def handle(number: int) -> None:
        raise SignalReceived(number)

    with _handling(handle):
        yield


@contextmanager
def collected() -> Iterator[Signals]:
    """Only note signals; the program looks at them when it can."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signals = Signals(read)
    try:
        with _handling(lambda number: signals.numbers.append(number)):
            before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            try:
                yield signals
            finally:
                signal.set_wakeup_fd(before)
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def _handling(handle: Callable[[int], None]) -> Iterator[None]:
    before = {n: signal.signal(n, lambda n, _: handle(n)) for n in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
