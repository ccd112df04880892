"""Tells one machine from another, and a machine that was started again from another machine.

In: files of Linux, the host's name, the environment variable ``KOHORT_HOST``. Out: a
``HostIdentity``. Must not know: tables.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "KOHORT_HOST"
"""The environment variable with a name for this host, where the machine cannot be identified."""

_MACHINE: Final = Path("/etc/machine-id")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIdentity:
    """A machine, as one of its processes sees it.

    Attributes:
        name: the host's name; a container has one of its own, often a random one.
        machine: the machine id; None if there is none, as in most containers.
        boot: the id of this start of the kernel, the same in all containers on a machine; None
            where there is no Linux.
    """

    name: str
    machine: str | None = None
    boot: str | None = None

    def is_same(self, other: HostIdentity) -> bool:
        """Whether both are one machine, perhaps before and after it was started again."""
        if self.boot is not None and self.boot == other.boot:
            return True
        if self.machine is not None and other.machine is not None:
            return self.machine == other.machine
        return self.name == other.name


def this_host() -> HostIdentity:
    """The identity of this machine. ``KOHORT_HOST`` replaces everything that was found."""
    named = os.environ.get(VARIABLE)
    if named:
        return HostIdentity(name=named)
    return HostIdentity(name=socket.gethostname(), machine=_first(_MACHINE), boot=_first(_BOOT))


def _first(path: Path) -> str | None:
    """The text in a file; None if it is missing or empty."""
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
