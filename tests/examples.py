"""The number of Hypothesis examples of a test that needs another number than the profile's.

In: the number in an ordinary run. Out: settings. The search profile multiplies this number as it
multiplies all others, so that no test is searched less than the rest (``tests/conftest.py``).
"""

from __future__ import annotations

from hypothesis import settings

ORDINARY = 100
"""Examples of a test in the ordinary profile, which is Hypothesis' own number."""


def examples(number: int) -> settings:
    """Settings for a test with this many examples in an ordinary run, more in a search."""
    return settings(max_examples=max(1, number * settings().max_examples // ORDINARY))
