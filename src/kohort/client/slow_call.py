"""Tells where the application is when it does not poll.

In: notes of polls. Out: one sentence with the function, file and line. Must not know: the group,
arguments of functions.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

_KOHORT: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = tuple({sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib")})


class SlowCall:
    """The place of the thread or task that polled last."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[Any] | None = None

    def note(self) -> None:
        """The present thread, or the present task in it, polls."""
        self._thread = threading.current_thread()
        try:
            self._task = asyncio.current_task()
        except RuntimeError:
            self._task = None

    def __call__(self) -> str:
        """Where that thread or task is now; empty before the first poll. Any thread may ask."""
        if self._task is not None:
            name, codes = f"task {self._task.get_name()}", _codes(self._task.get_stack(limit=1))
        elif self._thread is not None:
            name = f"thread {self._thread.name}"
            frame = sys._current_frames().get(self._thread.ident or 0)
            codes = _codes(_frames(frame))
        else:
            return ""
        if not codes:
            return f"the {name} that polled has ended"
        mine = [code for code in codes if not code[0].co_filename.startswith(_LIBRARIES)]
        where = _place(*(mine or codes)[0])
        inside = f", in {_place(*codes[0])}" if mine and mine[0] is not codes[0] else ""
        return f"the {name} is in {where}{inside}"


def _frames(frame: FrameType | None) -> Iterable[FrameType]:
    """The frames of a thread, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _codes(frames: Iterable[FrameType]) -> list[tuple[CodeType, int]]:
    """Code and line of the frames that are not kohort's."""
    found = [(frame.f_code, frame.f_lineno) for frame in frames]
    return [(code, line) for code, line in found if not code.co_filename.startswith(_KOHORT)]


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{line})"
