"""The end of a consumer or a member that was dropped without ``close()`` or ``leave()``.

In: the parts of the consumer, from the garbage collector. Out: a ``ResourceWarning`` and a line in
the log that name the place where the object was made; the member leaves its group; everything is
closed. Must not know: records, listeners.

The garbage collector calls from any thread and at any line, so nothing here waits in its thread.
Nothing is committed, because nobody knows which records were processed: the next owner begins at
the last commit.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kohort.client.connections.driver_thread import LEAVE_S, DriverThread
from kohort.client.consuming.partition_reader import PartitionReader
from kohort.client.recording import ConsumerRecorder
from kohort.member.states import BEATING

LOG: Final = logging.getLogger("kohort.client.consumer")

T = TypeVar("T")

_BETWEEN: Final = (__name__.rpartition(".")[0], "typing")
"""Modules between the application and this one; ``typing`` calls ``Consumer[str, Order](…)``."""


class Place(NamedTuple):
    """A place in the application's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def place_of_caller() -> Place:
    """The first place outside this room, on the stack of the calling thread."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def end_when_dropped(
    consumer: object,
    thread: DriverThread[Any],
    reader: PartitionReader,
    recorder: ConsumerRecorder | None,
    run: Callable[[Callable[[], None]], object],
    *,
    has_group: bool,
) -> weakref.finalize[..., object]:
    """End these parts when the garbage collector takes the consumer; ``detach`` after a close.

    Args:
        consumer: no part may refer to it strongly.
        thread: the driver; its member leaves the group.
        reader: the fetcher in it is closed.
        recorder: is closed, as that of a killed process.
        run: calls a function that waits, in another thread.
        has_group: whether the settings of the consumer name a group.
    """
    place = place_of_caller()
    of_group = f" of group {thread.group_id}" if has_group else ""
    made = f"the consumer{of_group} made at {place}"
    ends = weakref.finalize(consumer, _dropped, made, place, thread, reader, recorder, run)
    ends.atexit = False  # the end of the process is no mistake; the session runs out
    return ends


class WeakLink(Generic[T]):
    """The way from the threads of an object to the object, which does not keep it alive.

    Args:
        owner: the object. Its ``__del__`` has to call ``settle``.
    """

    def __init__(self, owner: T) -> None:
        self._find = weakref.ref(owner)
        self._settled = threading.Event()
        self._kept: T | None = None

    def __call__(self) -> T | None:
        """The object; None if it is gone.

        The garbage collector clears weak references shortly before it calls ``__del__``, which may
        keep the object for an orderly end: wait for its decision.
        """
        found = self._find()
        if found is None:
            self._settled.wait()
            found = self._kept
        return found

    def settle(self, kept: T | None) -> None:
        """Answer waiting threads: the object that is kept alive, or None if it is gone."""
        self._kept = kept
        self._settled.set()

    def method(self, name: str) -> Callable[..., Any]:
        """A function that calls this method of the object; None when the object is gone."""

        def call(*args: Any) -> Any:
            owner = self()
            return None if owner is None else getattr(owner, name)(*args)

        return call


def leave_when_dropped(name: str, place: Place, leave: Callable[[], None]) -> None:
    """Warn of a member that was dropped without ``leave()``, and let it leave in a thread.

    Args:
        name: the kind of the member, and its group.
        place: where the member was made.
        leave: ends the member in an orderly way; keeps it alive until then.
    """
    text = (
        f"the {name} made at {place} was dropped without leave(): it leaves the group. Use it in a "
        "with block, or call leave()"
    )
    LOG.warning("%s", text)
    in_thread(leave)
    warnings.warn_explicit(text, ResourceWarning, place.file, place.line)


def in_thread(work: Callable[[], None]) -> None:
    """Call a function in a thread of its own."""
    threading.Thread(target=work, name="kohort-dropped", daemon=True).start()


def _dropped(  # noqa: PLR0917 - the parts of a consumer
    made: str,
    place: Place,
    thread: DriverThread[Any],
    reader: PartitionReader,
    recorder: ConsumerRecorder | None,
    run: Callable[[Callable[[], None]], object],
) -> None:
    if thread.is_forked:
        return
    is_member = thread.driver.member.core.state in BEATING
    lost = ": it leaves the group, and records since the last commit come again" * is_member
    text = f"{made} was dropped without close(){lost}. Use it in a with block, or call close()"

    def end() -> None:
        LOG.warning("%s", text)
        thread.leave(f"the consumer made at {place} was dropped without close()")
        thread.has_left.wait(2 * LEAVE_S)
        reader.close()
        if recorder is not None:
            recorder.close(in_order=False)

    run(end)
    warnings.warn_explicit(text, ResourceWarning, place.file, place.line)
