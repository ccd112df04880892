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

_KOHORT: Final = str(Path(__file__).parents[2])
_LIBRARIES: Final = tuple({sysconfig.get_path(n) for n in ("stdlib", "platstdlib", "purelib")})


class SlowCall:
    """The place of the thread or task that polled last, or of the listener that works."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[Any] | None = None
        self.listener: object | None = None
        """The coroutine of a listener that works at present, in a task of kohort."""

    def note(self) -> None:
        """The present thread, or the present task in it, polls."""
        self._thread = threading.current_thread()
        try:
            self._task = asyncio.current_task()
        except RuntimeError:
            self._task = None

    def __call__(self) -> str:
        """Where that thread, task or listener is; empty before a poll. Any thread may ask."""
        if self._thread is None:
            return ""
        task, frames = self._task, list[FrameType]()
        if self.listener is not None:
            name, frames = "listener", _awaited_frames(self.listener)
        elif task is not None:
            name = f"task {task.get_name()}"
            if not task.done():
                frames = _awaited_frames(task.get_coro())
        else:
            name = f"thread {self._thread.name}"
        running = frames and frames[0].f_back is not None
        if (task is None and self.listener is None) or running:
            frames = _called_frames(sys._current_frames().get(self._thread.ident or 0))
        if not frames:
            return f"the {name} that polled has ended"
        codes = _codes(frames)
        if not codes:
            return f"the {name} waits in a call of kohort"
        mine = [code for code in codes if not code[0].co_filename.startswith(_LIBRARIES)]
        where = _place(*(mine or codes)[0])
        inside = f", in {_place(*codes[0])}" if mine and mine[0] is not codes[0] else ""
        return f"the {name} is in {where}{inside}"


def _called_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames of a thread, innermost first."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _awaited_frames(coroutine: object) -> list[FrameType]:
    """The frames of a coroutine and of those that it awaits, innermost first."""
    found: list[FrameType] = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        found.insert(0, frame)
        coroutine = getattr(coroutine, "cr_await", None)
    return found


def _codes(frames: Iterable[FrameType]) -> list[tuple[CodeType, int]]:
    """Code and line of the frames that are not kohort's."""
    found = [(frame.f_code, frame.f_lineno) for frame in frames]
    return [(code, line) for code, line in found if not code.co_filename.startswith(_KOHORT)]


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{line})"
