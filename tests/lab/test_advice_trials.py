"""The advice of ``kohort explain`` has the effect in the lab that it tells."""

from __future__ import annotations

import pytest

from kohort.explain.tried_advice import TRIED
from kohort.lab.advice_trials import TRIALS, sentence


@pytest.mark.parametrize("name", TRIALS)
def test_the_effect_that_a_finding_tells_is_that_of_the_lab(name: str) -> None:
    assert TRIED[name] == sentence(name)


def test_every_tried_finding_has_a_trial() -> None:
    assert TRIED.keys() == TRIALS.keys()
