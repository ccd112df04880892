"""Random events for a few groups: the promises hold in every order.

After every step ``check()`` asserts the invariants (``World`` calls it), no request is answered
twice, and readers and a restarted coordinator see the content of the log. In the end, when the
log has settled and time has passed, no request is left without an answer.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinator.world import World, subscription, tp

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.group import Group
from kohort.coordinator.interface import (
    AppendFailed,
    DeleteGroups,
    JoinAnswer,
    Loaded,
    Observe,
    OffsetDelete,
    Replay,
    Stalled,
    TopicsDeleted,
)
from kohort.coordinator.records import CommittedOffset, GroupRecord, OffsetRecord, Record
from kohort.model.errors import ErrorCode
from kohort.model.facts import GroupDeleted, JoinPhaseCompleted
from kohort.model.group_state import GroupState
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.instants import Instant

GROUPS = st.sampled_from(["g", "h"])
CLIENTS = st.sampled_from("abcd")
INSTANCES = st.sampled_from(["x", "y"])
GENERATIONS = st.integers(min_value=-1, max_value=4)
OFFERS = st.sampled_from(
    [
        {"range": subscription("t")},
        {"range": subscription("u")},
        {"range": b"\x00\x00\x7f\xff\xff\xff"},
        {"range": b"", "rr": b"x"},
        {"rr": b"x", "range": b""},
        {"rr": b""},
    ]
)
TIMEOUTS = st.sampled_from([6_000, 10_000, 45_000])
ERRORS = st.sampled_from(
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR]
)
PARTITIONS = st.sampled_from(["t-0", "t-1", "u-0"])


class RandomLife(RuleBasedStateMachine):
    """Clients that mostly behave, a log that mostly writes, and time."""

    world: World

    @initialize(
        delay=st.sampled_from([0, 3_000]),
        size=st.sampled_from([2, 100]),
        retention=st.sampled_from([1, 10_000]),
    )
    def begin(self, delay: int, size: int, retention: int) -> None:
        self.world = World(
            delay=delay,
            max_size=size,
            offsets_retention_minutes=retention,
            offsets_retention_check_interval_ms=30_000,
        )
        self.world.reservations_wait = True
        self.world.feed(Loaded())
        self.ids: dict[tuple[str, str], list[str]] = {}
        self.generations: dict[str, tuple[int, int]] = {}
        self.told: dict[str, set[int]] = {}
        """Generations by group, since it was made."""
        self.looked_at = 0
        self.lost: set[str] = set()

    # -- what clients do -----------------------------------------------------------------------

    def known_id(self, group: str, client: str, pick: int) -> str:
        """One of the ids a client has been given in a group, or one it made up."""
        given = self.ids.get((group, client), [])
        return given[-1 - pick % len(given)] if given else f"{client}-made-up"

    @rule(
        group=GROUPS,
        client=CLIENTS,
        offer=OFFERS,
        session=TIMEOUTS,
        rebalance=TIMEOUTS,
        fresh=st.booleans(),
        old=st.booleans(),
        pick=st.integers(0, 1),
    )
    def joins(
        self,
        *,
        group: str,
        client: str,
        offer: dict[str, bytes],
        session: int,
        rebalance: int,
        fresh: bool,
        old: bool,
        pick: int,
    ) -> None:
        member_id = "" if fresh else self.known_id(group, client, pick)
        before = len(self.world.answers)
        self.world.join(
            client,
            member_id,
            group=group,
            protocols=offer,
            session=session,
            rebalance=rebalance,
            old=old,
        )
        for answer in list(self.world.answers.values())[before:]:
            if isinstance(answer, JoinAnswer) and answer.member_id:
                owner = answer.member_id.rpartition("-")[0]
                ids = self.ids.setdefault((group, owner), [])
                if answer.member_id not in ids:
                    ids.append(answer.member_id)

    def join_as(self, group: str, client: str, member_id: str, *, old: bool = False) -> None:
        self.joins(
            group=group,
            client=client,
            offer={"range": subscription("t")},
            session=10_000,
            rebalance=10_000,
            fresh=member_id == "",
            old=old,
            pick=0,
        )

    @rule(group=GROUPS, name=INSTANCES, offer=OFFERS, session=TIMEOUTS, skips=st.booleans())
    def a_static_process_starts(
        self, group: str, name: str, offer: dict[str, bytes], session: int, *, skips: bool
    ) -> None:
        """Anew, or in the place of one that ran or still runs."""
        self.world.join(
            name,
            "",
            group=group,
            protocols=offer,
            session=session,
            rebalance=session,
            instance=f"i-{name}",
            skips=skips,
        )

    @rule(group=GROUPS, name=INSTANCES, generation=GENERATIONS, serial=st.integers(1, 4))
    def a_static_process_speaks(self, group: str, name: str, generation: int, serial: int) -> None:
        """The present one or a former one."""
        who: dict[str, Any] = {"member_id": f"i-{name}-{serial}", "instance": f"i-{name}"}
        held = self.group(group)
        if held is not None and generation > 1:
            generation = held.generation_id
        self.world.beat(name, generation, group=group, **who)
        self.world.sync(name, generation, {}, group=group, **who)
        self.world.commit(name, generation, {"t-0": 1}, group=group, **who)

    @rule(group=GROUPS, name=INSTANCES)
    def an_instance_is_removed(self, group: str, name: str) -> None:
        self.world.leave_ids("", group=group, instance=f"i-{name}")

    @rule(group=GROUPS, clients=st.lists(CLIENTS, min_size=1, max_size=3, unique=True))
    def newcomers_form_a_generation(self, group: str, clients: list[str]) -> None:
        """Well-behaved clients and a working log, so that random lives reach Stable often."""
        for client in clients:
            self.join_as(group, client, "", old=True)
        self.everybody_rejoins(group)
        self.world.wait(self.world.config.initial_rebalance_delay_ms)

    @rule(group=GROUPS, written=st.booleans())
    def everybody_rejoins_and_syncs(self, group: str, written: bool) -> None:
        self.everybody_rejoins(group)
        self.everybody_syncs(group, {"a": b"1", "b": b"2"})
        if written:
            self.the_log_writes_everything()

    @rule(group=GROUPS, partition=PARTITIONS, offset=st.integers(0, 99))
    def everybody_commits(self, group: str, partition: str, offset: int) -> None:
        held = self.group(group)
        for member_id in self.members(group):
            assert held is not None
            self.world.commit(
                member_id[0],
                held.generation_id,
                {partition: offset},
                group=group,
                member_id=member_id,
            )

    @rule(group=GROUPS)
    def everybody_rejoins(self, group: str) -> None:
        """Lets random steps reach generations more often."""
        for member_id in list(self.members(group)):
            self.world.join(member_id.rpartition("-")[0], member_id, group=group)

    @rule(group=GROUPS, plan=st.dictionaries(CLIENTS, st.binary(max_size=3)))
    def everybody_syncs(self, group: str, plan: dict[str, bytes]) -> None:
        held = self.group(group)
        if held is None:
            return
        for member_id in list(held.members):
            client = member_id.rpartition("-")[0]
            named = {f"{c}-1": a.hex().encode() for c, a in plan.items()}
            self.world.sync(
                client,
                held.generation_id,
                named,
                group=group,
                member_id=member_id,
                protocol_name=None,
                names_protocol=False,
            )

    @rule(group=GROUPS, client=CLIENTS, generation=GENERATIONS, pick=st.integers(0, 1))
    def syncs(self, group: str, client: str, generation: int, pick: int) -> None:
        member_id = self.known_id(group, client, pick)
        self.world.sync(client, generation, {}, group=group, member_id=member_id)

    @rule(group=GROUPS, client=CLIENTS, generation=GENERATIONS, pick=st.integers(0, 1))
    def beats(self, group: str, client: str, generation: int, pick: int) -> None:
        member_id = self.known_id(group, client, pick)
        self.world.beat(client, generation, group=group, member_id=member_id)

    @rule(group=GROUPS)
    def everybody_beats(self, group: str) -> None:
        held = self.group(group)
        for member_id in list(self.members(group)):
            assert held is not None
            self.world.beat(member_id[0], held.generation_id, group=group, member_id=member_id)

    @rule(group=GROUPS, clients=st.lists(CLIENTS, max_size=3), pick=st.integers(0, 1))
    def leaves(self, group: str, clients: list[str], pick: int) -> None:
        self.world.leave_ids(*(self.known_id(group, c, pick) for c in clients), group=group)

    @rule(
        group=GROUPS,
        client=CLIENTS,
        generation=GENERATIONS,
        offsets=st.dictionaries(PARTITIONS, st.integers(0, 99), min_size=1),
        pick=st.integers(0, 1),
    )
    def commits(
        self, group: str, client: str, generation: int, offsets: dict[str, int], pick: int
    ) -> None:
        member_id = "" if generation < 0 else self.known_id(group, client, pick)
        self.world.commit(client, generation, offsets, group=group, member_id=member_id)

    @rule(group=GROUPS, partition=PARTITIONS)
    def deletes_offsets(self, group: str, partition: str) -> None:
        event = OffsetDelete(
            token=self.world.token("delete"), group_id=GroupId(group), partitions=(tp(partition),)
        )
        self.world.feed(event)

    @precondition(lambda self: self.world.now % 7 == 0)
    @rule(groups=st.lists(GROUPS, max_size=3))
    def deletes_groups(self, groups: list[str]) -> None:
        """Only at some instants: a group that is deleted too often tests little."""
        ids = tuple(GroupId(g) for g in groups)
        self.world.feed(DeleteGroups(token=self.world.token("delete"), group_ids=ids))

    @rule()
    def a_topic_goes(self) -> None:
        self.world.feed(TopicsDeleted(topics=frozenset({"u"})))

    # -- what the world does -------------------------------------------------------------------

    @rule(millis=st.sampled_from([0, 1, 500, 3_000, 6_000, 10_000, 60_000, 300_000]))
    def time_passes(self, millis: int) -> None:
        self.world.wait(millis)

    @rule(millis=st.sampled_from([100, 60_000]))
    def the_process_sleeps(self, millis: int) -> None:
        self.world.now = Instant(self.world.now + millis * 1_000)
        self.world.feed(Stalled(micros=millis * 1_000))

    @precondition(lambda self: self.world.unwritten)
    @rule(pick=st.integers(0, 3))
    def the_log_writes(self, pick: int) -> None:
        """Mostly the oldest; partitions of the log are synced each by itself."""
        self.world._write(self.world.unwritten[pick % len(self.world.unwritten)])

    @rule()
    def the_log_writes_everything(self) -> None:
        while self.world.unwritten:
            self.the_log_writes(0)

    @precondition(lambda self: self.world.unwritten)
    @rule(error=ERRORS, pick=st.integers(0, 3))
    def the_log_refuses(self, error: ErrorCode, pick: int) -> None:
        ticket = self.world.unwritten.pop(pick % len(self.world.unwritten))
        self.world.feed(AppendFailed(ticket=ticket, error=error))

    @rule(pick=st.integers(0, 20))
    def a_connection_is_lost(self, pick: int) -> None:
        waiting = [n for n in self.world.tokens.values() if n not in self.world.answers]
        if waiting:
            name = waiting[-1 - pick % len(waiting)]
            self.world.lose(name)
            # A write under way may still answer this request; no client receives the answer.
            self.lost.add(name)

    @precondition(lambda self: self.world.now % 5 == 0)
    @rule()
    def the_process_crashes(self) -> None:
        """Records that were not durable are lost, and so are all connections."""
        self.no_generation_is_told_twice()
        for name in set(self.world.tokens.values()) - set(self.world.answers):
            self.world.answers[name] = "its connection is gone"
        self.world.restart()
        self.generations.clear()
        for group_id in list(self.told):
            if self.group(group_id) is None:
                last = [r for r in self.world.log if r.group_id == group_id][-1]
                assert not isinstance(last, OffsetRecord)
                assert last.value is None, "a group that told a generation is gone"
                del self.told[group_id]

    @rule(group=GROUPS)
    def a_round_is_told_before_a_crash_and_one_after_it(self, group: str) -> None:
        for _ in range(2):
            self.everybody_rejoins(group)
            self.the_log_writes_everything()
            self.no_generation_is_told_twice()
            self.world.now = Instant(self.world.now + 5 - self.world.now % 5)
            self.the_process_crashes()

    # -- what must hold ------------------------------------------------------------------------

    def group(self, group: str) -> Group | None:
        return self.world.coordinator._registry.groups.get(GroupId(group))

    def members(self, group: str) -> list[str]:
        held = self.group(group)
        return list(held.members) if held is not None else []

    @invariant()
    def stable_means_durable(self) -> None:
        for held in self.world.coordinator._registry.groups.values():
            if held.state is not GroupState.STABLE:
                continue
            value = self.last_record(held.group_id)
            assert isinstance(value, GroupRecord)
            assert value.value is not None
            assert value.value.generation_id == held.generation_id
            # A static member's new id may not be durable yet; its assignment is durable.
            kept = {m.group_instance_id or m.member_id: m.assignment for m in value.value.members}
            for member in held.members.values():
                assert kept[member.group_instance_id or member.member_id] == member.assignment

    @invariant()
    def generations_never_fall_while_a_group_lives(self) -> None:
        for held in self.world.coordinator._registry.groups.values():
            known, generation = self.generations.get(held.group_id, (0, 0))
            if known == id(held):
                assert held.generation_id >= generation
            self.generations[held.group_id] = (id(held), held.generation_id)
            self._keep_alive = [*getattr(self, "_keep_alive", []), held]

    @invariant()
    def no_generation_is_told_twice(self) -> None:
        for effect in self.world.effects[self.looked_at :]:
            if isinstance(effect, Observe) and isinstance(effect.fact, GroupDeleted):
                self.told.pop(effect.fact.group_id, None)
            elif isinstance(effect, Observe) and isinstance(effect.fact, JoinPhaseCompleted):
                fact = effect.fact
                told = self.told.setdefault(fact.group_id, set())
                assert fact.generation_id not in told, f"{fact} was told before"
                told.add(fact.generation_id)
        self.looked_at = len(self.world.effects)

    def last_record(self, group_id: GroupId) -> Record | None:
        return next(
            (
                record
                for ticket in sorted(self.world.durable, reverse=True)
                for record in reversed(self.world.durable[ticket])
                if isinstance(record, GroupRecord) and record.group_id == group_id
            ),
            None,
        )

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for _ in range(3):
            if self.world.unwritten:
                self.the_log_writes_everything()
            # Two whole rounds of the longest timers that there are.
            self.world.wait(2 * 300_000 + 2 * 45_000)
        parked = set(self.world.tokens.values()) - set(self.world.answers) - self.lost
        assert not parked, f"never answered: {parked}"
        self.readers_see_what_the_log_says()

    def readers_see_what_the_log_says(self) -> None:
        if self.world.unwritten:
            self.the_log_writes_everything()
        offsets: dict[tuple[GroupId, TopicPartition], CommittedOffset] = {}
        for ticket in sorted(self.world.durable):
            for record in self.world.durable[ticket]:
                if isinstance(record, OffsetRecord):
                    key = (record.group_id, record.partition)
                    if record.value is None:
                        offsets.pop(key, None)
                    else:
                        offsets[key] = record.value
        groups = self.world.coordinator._registry.groups
        seen = {(g.group_id, p): o for g in groups.values() for p, o in g.offsets.durable.items()}
        assert seen == offsets
        records = [r for ticket in sorted(self.world.durable) for r in self.world.durable[ticket]]
        fresh = Coordinator(self.world.config, lambda prefix: prefix)
        fresh.handle(Replay(records=tuple(records)), self.world.now)
        fresh.handle(Loaded(), self.world.now)
        fresh.check()
        again = {
            (g.group_id, p): o
            for g in fresh._registry.groups.values()
            for p, o in g.offsets.durable.items()
        }
        assert again == offsets


# A quarter of the profile's examples: each of them is a life of forty steps.
RandomLife.TestCase.settings = settings(
    max_examples=settings().max_examples // 4, stateful_step_count=40
)


TestRandomLife = RandomLife.TestCase
"""The machine above, as pytest runs it."""
