"""Plans and actions are data: they go to JSON and come back, and nonsense is refused by name."""

from __future__ import annotations

import json

import pytest
from tests.examples import seeds

from kohort.lab import actions
from kohort.lab.plan import Behaviour, Plan, PodPlan, TopicPlan
from kohort.lab.random_plans import MODES, draw
from kohort.model.errors import ConfigError


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", seeds(25))
def test_a_plan_goes_to_json_and_comes_back(seed: int, mode: str) -> None:
    plan = draw(seed, mode)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_every_kind_of_act_is_drawn_sooner_or_later() -> None:
    drawn = {type(action).__name__ for seed in range(200) for action in draw(seed).actions}
    assert drawn == actions.ACTIONS.keys() - {"StartPod"}


def test_the_same_seed_draws_the_same_plan_and_another_one_another() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(7) != draw(7, "liveness")


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"pods": []}, "pods must be between 1"),
        ({"pods": [{"name": "a"}, {"name": "a"}]}, "two pods have one name"),
        ({"pods": [{"name": "a"}], "duration_ms": 0}, "duration_ms must be between"),
        ({"pods": [{"name": "a"}], "topics": [{"name": "t", "partitions": 0}]}, "of topic t"),
        ({"pods": [{"name": "a"}], "actions": [{"action": "Bang"}]}, "known: CrashBroker"),
        ({"pods": [{"name": "a"}], "actions": [{"action": "Rejoin", "when": 3}]}, "no field when"),
        (
            {"pods": [{"name": "a"}], "actions": [{"action": "Rejoin", "at_ms": 1, "pod": "b"}]},
            "a pod that the plan does not have",
        ),
        ({"pods": [{"name": "a", "behaviour": {"strategy": "best"}}]}, "known: range"),
        ({"pods": [{"name": "a"}], "core": ["b"]}, "core names pods"),
        ({"pods": 3}, "this is no plan"),
        ({"pods": [{"name": "a"}], "weather": "fine"}, "weather"),
    ],
)
def test_nonsense_is_refused_by_name(broken: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Plan.from_json({"seed": 1, **broken})


def test_an_unknown_mode_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="known: safety, liveness"):
        draw(1, "fun")


def test_partitions_are_those_of_the_start() -> None:
    plan = Plan(
        seed=1,
        topics=(TopicPlan(name="b", partitions=2), TopicPlan(name="a", partitions=1)),
        pods=(PodPlan(name="p", behaviour=Behaviour(topics=("a", "b"))),),
    )
    assert [str(tp) for tp in plan.partitions] == ["b-0", "b-1", "a-0"]
