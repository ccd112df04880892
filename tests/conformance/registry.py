"""Scenarios over the wire: which there are, what they need, how all of them run at once."""

from __future__ import annotations

import asyncio
import secrets
import tomllib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.conformance.members import OTHER_TOPIC, TOPIC
from tests.conformance.profile import NEEDS, ORDINARY, ROOM, SETTINGS, Profile, is_ordinary
from tests.conformance.talk import Link, Restart, Talk

from kohort.wire.messages.k03_metadata import MetadataRequest
from kohort.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

AT_ONCE = 48
"""Scenarios under way at a time."""

BROKER_RESOURCE = 4
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Scenario:
    """A numbered sentence as a conversation."""

    number: int
    name: str
    play: Callable[[Talk], Awaitable[None]]
    needs: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.number:03}-{self.name}"

    def lacks(self, profile: Profile) -> str:
        """The setting that a broker would need and does not have; empty if it fits."""
        lacking = [NEEDS[need][0] for need in self.needs if not NEEDS[need][1](profile)]
        if not ROOM & set(self.needs) and not is_ordinary(profile):
            lacking.append(ORDINARY)
        return "; ".join(lacking)


@dataclass
class Verdict:
    """The end of a scenario: its failure, if any, and the differences from Kafka."""

    failure: BaseException | None = None
    lacks: str = ""
    differences: dict[str, str] = field(default_factory=dict)


SCENARIOS: dict[int, Scenario] = {}


def scenario(
    number: int, *needs: str
) -> Callable[[Callable[[Talk], Awaitable[None]]], Callable[[Talk], Awaitable[None]]]:
    """Register the conversation of one sentence; the function is named by the sentence."""

    def register(play: Callable[[Talk], Awaitable[None]]) -> Callable[[Talk], Awaitable[None]]:
        assert number not in SCENARIOS, f"{number} is there twice"
        assert set(needs) <= set(NEEDS)
        SCENARIOS[number] = Scenario(number, play.__name__, play, needs)
        return play

    return register


@cache
def _list() -> dict[str, Any]:
    return tomllib.loads((HERE / "scenarios.toml").read_text(encoding="utf-8"))


def listed() -> dict[int, dict[str, Any]]:
    """The project's list of scenarios, by number."""
    return {int(number): row for number, row in _list()["scenario"].items()}


def reasons() -> dict[str, str]:
    """Why a scenario may lack a test, by the word that the list uses."""
    return dict(_list()["reason"])


@cache
def differences() -> dict[str, dict[str, Any]]:
    """The intended differences from Kafka, by name."""
    return tomllib.loads((HERE / "differences.toml").read_text(encoding="utf-8"))


async def profile_of(address: str, *, restarts: bool = False) -> Profile:
    """A broker's settings, as the broker reports them, with Kafka's defaults for the rest.

    Makes the topics that the scenarios read and commit, and waits for them.
    """
    talk = Talk(Profile(address), "kohort-conformance")
    try:
        metadata = await talk.ask("Metadata", MetadataRequest(topics=[]))
        node = metadata.brokers[0].node_id
        resource = DescribeConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=str(node),
            configuration_keys=list(SETTINGS),
        )
        answer = await talk.ask("DescribeConfigs", DescribeConfigsRequest(resources=[resource]))
        told = {
            SETTINGS[config.name]: int(config.value)
            for result in answer.results
            for config in result.configs
            if config.name in SETTINGS and config.value is not None
        }
        await _make_topics(talk)
    finally:
        await talk.end()
    return Profile(address, nodes=len(metadata.brokers), restarts=restarts, **told)


async def _make_topics(talk: Talk) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=4, replication_factor=-1)
        for name in (TOPIC, OTHER_TOPIC)
    ]
    await talk.ask("CreateTopics", CreateTopicsRequest(topics=topics, timeout_ms=30_000))

    async def are_known() -> bool:
        await talk.begin()
        group = f"kohort-conformance-probe-{secrets.token_hex(3)}"
        errors = await talk.commit({f"{TOPIC}-3": 1, f"{OTHER_TOPIC}-3": 1}, group=group)
        await talk.delete(group)
        return errors == "NONE"

    await talk.until("topics", are_known)


async def play_all(
    address: str, chosen: Iterable[Scenario], restart: Callable[[], str] | None = None
) -> dict[int, Verdict]:
    """Play scenarios side by side, each in a group of its own; returns their verdicts.

    A scenario about the time of the initial delay that fails beside the others is played again by
    itself: its newcomers come too late on a busy machine.

    With ``restart``, which stops and starts the broker and returns its address, all of them must
    need a restart.
    """
    scenarios = list(chosen)
    profile = await profile_of(address, restarts=restart is not None)
    run, gate = secrets.token_hex(3), asyncio.Semaphore(AT_ONCE)
    shared = None if restart is None else Restart(restart, len(scenarios))

    async def play(one: Scenario) -> tuple[int, Verdict]:
        async with gate:
            verdict = await play_one(one, profile, run, shared)
            if shared is not None:
                await shared.ended()
            return one.number, verdict

    verdicts = dict(await asyncio.gather(*(play(one) for one in scenarios)))
    for one in scenarios:
        if shared is None and "a delay" in one.needs and verdicts[one.number].failure is not None:
            verdicts[one.number] = await play_one(one, profile, f"{run}-alone")
    return verdicts


async def play_one(
    one: Scenario, profile: Profile, run: str, restart: Restart | None = None
) -> Verdict:
    lacks = one.lacks(profile)
    if lacks:
        return Verdict(lacks=lacks)
    talk = Talk(profile, f"conformance-{run}-{one.number:03}")
    talk.restart = restart
    verdict = Verdict(differences=talk.differences)
    try:
        await talk.begin()
        if {"a delay", "a size"} & set(one.needs):
            # A group with an offset is not swept away while its first member takes two steps.
            await talk.commit({f"{TOPIC}-3": 0})
        await one.play(talk)
    except Exception as failure:
        verdict.failure = failure
    try:
        await talk.end()
    except Exception as failure:
        verdict.failure = verdict.failure or failure
    return verdict


async def raw_frame(address: str, frame: bytes) -> bytes:
    """One frame sent and one received, outside what the codec allows."""
    link = await Link.to(address)
    try:
        link.send(frame)
        return await link.frame()
    finally:
        link.close()
