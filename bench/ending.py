"""Ends a measurement on SIGTERM as on an error: with every process that it started.

In: nothing. Out: SystemExit in the main thread. Must not know: measurements.
"""

from __future__ import annotations

import signal
import sys

TERMINATED = 128 + signal.SIGTERM


def end_with_children() -> None:
    """Let SIGTERM raise SystemExit, so that ``with`` and ``finally`` end the child processes."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
