"""The start of ``kohort broker`` in a process of its own, with a limit of time.

In: the process, with a pipe as standard output; the files with its messages. Out: the address for
clients. Must not know: the reason for which a command needs a broker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from kohort.host.last_lines import last_lines
from kohort.model.errors import KohortError

READY: Final = "kohort broker ready on "
START_S: Final = 60.0


class BrokerNotReady(KohortError):
    """A broker did not start; the message has the last lines of its files."""


def wait_ready(
    process: subprocess.Popen[str], files: Sequence[Path], limit_s: float = START_S
) -> str:
    """Wait until clients can connect; returns ``host:port``. The caller kills the process.

    Args:
        process: runs ``kohort broker``; its standard output is a pipe.
        files: take the log and standard error of the process.
        limit_s: the longest wait, in seconds.

    Raises:
        BrokerNotReady: the broker ended, or was not ready within the limit.
    """
    assert process.stdout is not None
    in_time = bool(wait([process.stdout.fileno()], limit_s))
    said = process.stdout.readline() if in_time else ""
    if said.startswith(READY):
        return said.removeprefix(READY).split()[0]
    what = f"said {said.strip()!r}" if said else "ended" if in_time else f"waited {limit_s:g} s"
    raise BrokerNotReady(
        "\n".join(
            [
                f"the broker did not start: expected the line {READY.strip()!r}, but {what}",
                *(f"--- the last lines of {file}\n{last_lines(file)}" for file in files),
            ]
        )
    )
