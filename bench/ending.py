"""Ends a measurement on SIGTERM as on an error: with every process that it started.

In: nothing. Out: SystemExit in the main thread. Must not know: measurements.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import Final

import psutil

TERMINATED: Final = 128 + signal.SIGTERM
_WAIT_S: Final = 30


def end_with_children() -> None:
    """Let SIGTERM end the child processes, and raise SystemExit for ``with`` and ``finally``."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_signal: object) -> None:
    # SystemExit alone would miss a child that subprocess.Popen is just starting.
    children = psutil.Process().children()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    psutil.wait_procs(children, timeout=_WAIT_S)
    sys.exit(TERMINATED)
