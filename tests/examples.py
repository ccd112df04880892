"""The number of examples of a test that draws: with Hypothesis, or with seeds of its own.

In: the number in an ordinary run. Out: settings, or seeds. The search profile multiplies the
examples of Hypothesis, so that no test is searched less than the rest; the quick profile takes a
tenth of the examples and of the seeds (``tests/conftest.py``).
"""

from __future__ import annotations

from hypothesis import settings

ORDINARY = 100
"""Examples of a test in the ordinary profile, which is Hypothesis' own number."""


def examples(number: int) -> settings:
    """Settings for a test with this many examples in an ordinary run, more in a search."""
    return settings(max_examples=max(1, number * settings().max_examples // ORDINARY))


def seeds(number: int) -> range:
    """The seeds from 0 to ``number``; the quick profile takes each tenth one."""
    return range(0, number, max(1, ORDINARY // settings().max_examples))
