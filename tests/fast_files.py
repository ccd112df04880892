"""Tells which files have a fast test, so that a run of the fast tests leaves out the other files.

In: the text of a test file. Out: whether each test of the file is slow or long. Must not know: the
tests.
"""

from __future__ import annotations

import re
from typing import Final

FAST_TESTS: Final = "not slow and not long"
"""The expression of marks that `make check` and the run on a second Python use."""

_ALL_SLOW = re.compile(r"^pytestmark = (?:\[[^]]*)?pytest\.mark\.(?:slow|long)\b", re.MULTILINE)


def all_slow(text: str) -> bool:
    """Whether all tests of a file have the mark ``slow`` or ``long``."""
    return _ALL_SLOW.search(text) is not None
