"""Scenarios over the wire: the initial delay, and groups that are full."""

from __future__ import annotations

import asyncio
import time

from tests.conformance.members import Joined, Member, MemberSettings, rejoin, stable
from tests.conformance.registry import scenario
from tests.conformance.talk import Talk


class Window:
    """The initial window of a group: times in units of the broker's initial delay."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.delay = talk.profile.initial_delay_ms / 1_000
        self.start = 0.0
        self._answered: list[float] = []

    async def opens(self, member: Member) -> asyncio.Task[Joined]:
        if member.instance is None:
            await member.knocks()
        self.start = time.monotonic()
        return self.watches(member.joins(None if member.instance is None else ""))

    def watches(self, task: asyncio.Task[Joined]) -> asyncio.Task[Joined]:
        """Note when this is answered."""
        task.add_done_callback(lambda _: self._answered.append(time.monotonic()))
        return task

    async def at(self, delays: float) -> None:
        await asyncio.sleep(self.start + delays * self.delay - time.monotonic())

    async def closes(self, *tasks: asyncio.Task[Joined]) -> float:
        """How many delays after its opening the first was answered; all are in generation 1."""
        answers = [await self.talk.within(task) for task in tasks]
        assert [a.error for a in answers] == ["NONE"] * len(answers)
        assert {a.generation for a in answers} == {1}
        return (min(self._answered) - self.start) / self.delay


@scenario(35, "a delay")
async def a_lone_member_joins_when_the_delay_is_over_and_not_before(t: Talk) -> None:
    window = Window(t)
    assert 0.99 < await window.closes(await window.opens(Member(t, "a"))) < 1.9


@scenario(36, "a delay")
async def a_second_member_in_the_window_extends_it_once(t: Talk) -> None:
    window = Window(t)
    first = await window.opens(Member(t, "a"))
    await window.at(0.5)
    second = window.watches(await Member(t, "b").enters())
    assert 1.99 < await window.closes(first, second) < 2.9


@scenario(37, "a delay")
async def newcomers_hold_the_window_open_for_the_rebalance_timeout_at_most(t: Talk) -> None:
    window = Window(t)
    how: MemberSettings = {"rebalance": int(window.delay * 2_300)}
    tasks = [await window.opens(Member(t, "a", **how))]
    for number, name in enumerate("bcd"):
        await window.at(number * 0.9 + 0.3)
        tasks.append(window.watches(await Member(t, name, **how).enters()))
    assert 2.29 < await window.closes(*tasks) < 2.95


@scenario(38, "a delay")
async def a_delay_as_long_as_the_rebalance_timeout_is_never_extended(t: Talk) -> None:
    window = Window(t)
    how: MemberSettings = {"rebalance": t.profile.initial_delay_ms}
    first = await window.opens(Member(t, "a", **how))
    await window.at(0.4)
    second = window.watches(await Member(t, "b", **how).enters())
    assert 0.99 < await window.closes(first, second) < 1.9


@scenario(39, "no delay")
async def without_a_delay_a_lone_member_joins_at_once(t: Talk) -> None:
    a = Member(t, "a")
    await a.knocks()
    start = time.monotonic()
    assert (await t.within(a.joins())).generation == 1
    assert time.monotonic() - start < 2.5


@scenario(40, "a delay")
async def an_id_that_was_only_handed_out_does_not_extend_the_window(t: Talk) -> None:
    window = Window(t)
    task = await window.opens(Member(t, "a"))
    await window.at(0.4)
    await Member(t, "b").knocks()
    assert 0.99 < await window.closes(task) < 1.9


@scenario(41, "a delay")
async def the_window_runs_out_though_everybody_is_there(t: Talk) -> None:
    window = Window(t)
    first = await window.opens(Member(t, "a"))
    second = window.watches(await Member(t, "b").enters())
    assert await window.closes(first, second) > 0.99


@scenario(42)
async def a_group_of_one_handed_out_id_is_empty_when_that_has_expired(t: Talk) -> None:
    await Member(t, "a", session=t.profile.brief_ms).knocks()
    await asyncio.sleep(t.profile.brief_ms / 1_000 + 1)
    described = await t.described()
    assert (described.group_state, described.members) == ("Empty", [])
    assert (await t.within(await Member(t, "b").enters())).generation == 1


@scenario(44, "a delay")
async def the_delay_applies_again_after_the_group_fell_empty(t: Talk) -> None:
    a = Member(t, "a")
    await stable(a)
    assert await a.leave() == "NONE"
    window = Window(t)
    joined = await t.within(await window.opens(Member(t, "b")))
    assert time.monotonic() - window.start > 0.99 * window.delay
    assert joined.generation == 3


@scenario(45, "a delay")
async def a_static_member_replaced_in_the_window_finishes_with_the_window(t: Talk) -> None:
    first, second = (Member(t, "a", instance="i-a") for _ in range(2))
    window = Window(t)
    window.start = time.monotonic()
    replaced = first.joins("")
    await asyncio.sleep(0.4 * window.delay)
    waiting = window.watches(second.joins(""))
    assert (await t.within(replaced)).error == "FENCED_INSTANCE_ID"
    assert 0.9 < await window.closes(waiting) < 2.9


# -- groups that are full ----------------------------------------------------------------------


def _crowd(t: Talk) -> list[Member]:
    return [Member(t, f"m{n}") for n in range(t.profile.max_size)]


async def _is_refused(member: Member, *, version: int | None = None) -> None:
    joined = await member.talk.within(member.joins(version=version))
    assert (joined.error, joined.me) == ("GROUP_MAX_SIZE_REACHED", "")


@scenario(46, "a size", "a delay")
async def ids_are_handed_out_beyond_the_size_but_only_so_many_may_join(t: Talk) -> None:
    crowd, late = _crowd(t), Member(t, "late")
    for member in (*crowd, late):
        await member.knocks()
    tasks = [member.joins() for member in crowd]
    await t.until_members(len(crowd))
    await _is_refused(late)
    assert {(await t.within(task)).error for task in tasks} == {"NONE"}


@scenario(47, "a size", "a delay")
async def one_more_old_client_than_the_size_is_refused(t: Talk) -> None:
    tasks = [member.joins(version=3) for member in _crowd(t)]
    await t.until_members(len(tasks))
    await _is_refused(Member(t, "late"), version=3)
    assert {(await t.within(task)).error for task in tasks} == {"NONE"}


@scenario(48, "a size", "a delay")
async def one_more_static_member_than_the_size_is_refused(t: Talk) -> None:
    crowd = [Member(t, f"m{n}", instance=f"i-{n}") for n in range(t.profile.max_size)]
    tasks = [member.joins() for member in crowd]
    await t.until_members(len(tasks))
    await _is_refused(Member(t, "late", instance="i-late"))
    assert {(await t.within(task)).error for task in tasks} == {"NONE"}


@scenario(49, "a size")
async def a_member_of_a_full_group_may_rejoin(t: Talk) -> None:
    crowd = _crowd(t)
    await stable(*crowd)
    assert (await t.within(crowd[-1].joins())).generation == 2
    await rejoin(*crowd)
    assert {member.generation for member in crowd} == {3}


@scenario(50, "a size")
async def a_stranger_at_a_full_stable_group_is_refused_and_nobody_notices(t: Talk) -> None:
    crowd = _crowd(t)
    await stable(*crowd)
    await _is_refused(Member(t, "late"))
    assert {await member.beat(2) for member in crowd} == {"NONE"}


@scenario(52, "a size", "a delay")
async def a_member_that_waits_in_a_full_round_may_join_again(t: Talk) -> None:
    crowd = _crowd(t)
    tasks = [await member.enters() for member in crowd]
    await t.until_members(len(crowd))
    again = crowd[0].joins()
    assert (await t.within(again)).generation == 1
    assert {(await t.within(task)).error for task in tasks[1:]} == {"NONE"}


@scenario(53, "a size")
async def a_member_refused_for_the_size_is_told_no_id(t: Talk) -> None:
    crowd = _crowd(t)
    await stable(*crowd)
    await _is_refused(Member(t, "late"))
    await _is_refused(Member(t, "late"), version=3)
    await _is_refused(Member(t, "late", instance="i-late"))
