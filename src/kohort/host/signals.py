"""Signals that wait until a call of C code has returned.

In: the signals of the process. Out: the same signals, a moment later. Must not know: the calls.

confluent-kafka loses an exception that a signal handler raises in a delivery callback: the call
then raises SystemError. So no handler may run before the call has returned.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Call the handlers of SIGINT and SIGTERM after the block, for signals that came within it.

    Handlers run in the main thread only: in other threads nothing changes. The block must be
    short, because no signal ends it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: dict[int, None] = {}

    def note(number: int, _frame: FrameType | None) -> None:
        came[number] = None

    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {
        number: handler for number in _ENDING if callable(handler := signal.getsignal(number))
    }
    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            handlers[number](number, None)
