"""The advice of ``kohort explain`` has the effect in the lab that it tells."""

from __future__ import annotations

import pytest
from tests.lab.advice_trials import TRIALS, sentence, tried

from kohort.explain.tried_advice import TRIED

QUICK = {"crash loop", "poll interval", "polls near the limit"}


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TRIALS],
)
def test_the_effect_that_a_finding_tells_is_that_of_the_lab(name: str) -> None:
    before, after = tried(name)
    assert TRIED[name] == sentence(name, before, after)
    lowered = TRIALS[name].lowers
    assert getattr(after, lowered) < getattr(before, lowered), "the advice helps"


def test_every_tried_finding_has_a_trial() -> None:
    assert TRIED.keys() == TRIALS.keys()
