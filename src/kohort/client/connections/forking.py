"""Tells the objects of this room that their process is a child of ``os.fork``.

In: objects with threads or sockets. Out: a call of each one in the child. Must not know: the
objects.

A fork copies no thread and shares every socket. So a consumer that was made before must not be used
in the child: its calls would wait for threads that do not exist, or use the parent's sockets.
"""

from __future__ import annotations

import logging
import os
from typing import Final, Protocol
from weakref import WeakSet

LOG: Final = logging.getLogger(__name__)

FORKED: Final = (
    "made in the parent process, before os.fork(): make a new one in this process. The object in "
    "the parent process still works; its records and commits belong to the parent process"
)


class Forkable(Protocol):
    """An object that cannot be used in a child process."""

    def _after_fork(self) -> None:
        """Refuse every further call, because this process is the child."""
        ...


_alive: Final[WeakSet[Forkable]] = WeakSet()


def watch(made: Forkable) -> None:
    """Call ``_after_fork`` in every child of this process, as long as the object lives."""
    _alive.add(made)


def _call_in_child() -> None:
    for each in list(_alive):
        try:
            each._after_fork()
        except Exception:  # the others must be told, too
            LOG.exception("%r cannot be told that this process is a child", each)


os.register_at_fork(after_in_child=_call_in_child)
