"""Patterns that the offsets topic alone shows: each generation names its members."""

from __future__ import annotations

from typing import Final, TypeAlias

from tests.explain.test_generations import parts

from kohort.explain.amounts import Known
from kohort.explain.events import Place
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.findings import Finding
from kohort.explain.offsets_topic.generations import Settled, SettledMember


def member(client: str, process: int, owns: int) -> SettledMember:
    name = f"{client}-{process}"
    return SettledMember(member=name, instance="", client=client, partitions=parts(str(owns)))


Generation: TypeAlias = tuple[float, list[SettledMember]]
LOOP: Final[list[Generation]] = [
    (5.0 * n, [member("svc", 1, 0), member("job", n, 1)]) for n in range(10)
]
"""Another process of a client in each generation."""


def deployment() -> list[Generation]:
    """Three processes that leave and come back, one after the other."""
    steps: list[Generation] = [(-100.0, [member(f"pod{n}", 1, n) for n in range(3)])]
    for pod in range(3):
        others = [member(f"pod{n}", 2 if n < pod else 1, n) for n in range(3) if n != pod]
        steps.append((20.0 * pod, others))
        steps.append((20.0 * pod + 8, [*others, member(f"pod{pod}", 2, pod)]))
    return steps


def explained(*generations: Generation) -> Explained:
    explainer = Explainer()
    for number, (at, members) in enumerate(generations, 1):
        record = Settled(
            group="g",
            generation=number,
            at=1e9 + at,
            protocol="range",
            members=tuple(members),
            place=Place("__consumer_offsets-7", number),
        )
        explainer.feed(record)
    (explained,) = explainer.finish()
    return explained


def found(*generations: Generation) -> dict[str, Finding]:
    return {finding.name: finding for finding in explained(*generations).findings}


def test_a_member_that_is_another_one_in_each_generation_is_a_storm_and_a_crash_loop() -> None:
    patterns = found(*LOOP)
    assert list(patterns) == ["storm", "crash loop"]
    assert "one every 5.0 s" in patterns["storm"].says
    loop = patterns["crash loop"]
    assert loop.says == "Clients named 'job' joined 9 times with new member ids."
    assert loop.known is Known.BOUNDED
    assert loop.evidence[0] == Place("__consumer_offsets-7", 2)


def test_a_deployment_without_instance_ids_is_seen() -> None:
    patterns = found(*deployment())
    assert list(patterns) == ["deploy without static ids"]
    deploy = patterns["deploy without static ids"]
    assert deploy.says.startswith(
        "3 members left or expired, and members with the same client ids joined"
    )
    assert [place.line for place in deploy.evidence] == [2, 4, 6]


def test_processes_that_start_together_are_no_pattern() -> None:
    starts = ((3.0 * n, [member("svc", p, p) for p in range(n + 1)]) for n in range(5))
    assert found(*starts) == {}
