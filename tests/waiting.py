"""The one way in which tests wait: for a condition, with a deadline, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable


def _rest() -> None:
    time.sleep(0.01)


def until(
    condition: Callable[[], object],
    what: str | Callable[[], object],
    timeout_s: float = 30.0,
    *,
    between: Callable[[], object] = _rest,
) -> None:
    """Wait for a condition; fail with its name.

    Args:
        condition: true when the wait is over.
        what: the name of the condition, or a function that tells the present state.
        timeout_s: longest wait.
        between: called between two looks, such as a poll of the consumer that is waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {timeout_s:g} s: {told}")
        between()
