"""What ends a process from outside, as an exception, so that everything is put in order on the way
out."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

# Ctrl-C, the order to end, and the terminal that is closed (which not every system knows)
ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Stopped(BaseException):  # no error, and nothing that handles errors should see it
    """A signal asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number  # what a shell calls it


def stop(number: int, frame: FrameType | None) -> NoReturn:
    """The handler of a signal that ends the process. Libraries that are only half imported do not
    stand an exception; nothing is begun then that had to be put in order."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"fedmap: stopped\n")
            os._exit(128 + number)
        frame = frame.f_back
    raise Stopped(number)


def ending_handlers() -> dict[signal.Signals, Any]:
    """Stop at every signal that asks for it, but for those that somebody ignores on purpose
    (nohup)."""
    return {number: stop for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN}


@contextmanager
def on_signals(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Inside, these signals do this. Only the main thread can say so; others change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
