"""Promises of every core, whatever its protocol (style.md 6.4)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World, subscription

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.group import TRANSITIONS, Group
from kohort.coordinator.interface import (
    Appended,
    Heartbeat,
    Stalled,
)
from kohort.coordinator.member import topics_of
from kohort.coordinator.partitions import java_hash, partition_for
from kohort.coordinator.registry import mapped_append_error
from kohort.model.errors import ConfigError, ErrorCode, InvariantViolation
from kohort.model.group_config import GroupConfig
from kohort.model.group_state import GroupState
from kohort.model.ids import GenerationId, GroupId, MemberId, Ticket, Token
from kohort.model.instants import Instant, WallMillis


def test_an_event_does_not_overtake_a_deadline_that_has_passed() -> None:
    world = World()
    world.stable("a", session=10_000)
    world.now = Instant(world.now + 10_000_000)
    event = Heartbeat(
        token=Token(99),
        group_id=GroupId("g"),
        generation_id=GenerationId(1),
        member_id=MemberId("a-1"),
        group_instance_id=None,
    )
    world.tokens[event.token] = "beat"
    assert world.feed(event)[-1] == "beat <- UNKNOWN_MEMBER_ID"


def test_a_stall_of_the_process_itself_expires_nobody() -> None:
    world = World()
    world.stable("a", session=10_000)
    world.now = Instant(world.now + 60_000_000)
    assert world.feed(Stalled(micros=60_000_000)) == []
    assert world.wait(9_999) == []
    assert world.wait(1)[0] == "fact MemberExpired generation=1 a-1"


def test_advancing_too_early_or_twice_is_harmless_and_asking_changes_nothing() -> None:
    world = World()
    world.enter("a")
    deadlines = {world.coordinator.next_deadline() for _ in range(3)}
    assert deadlines == {Instant(3_000_000)}
    assert world.coordinator.advance(Instant(1)) == []
    assert world.coordinator.advance(Instant(1)) == []
    assert {world.coordinator.next_deadline()} == deadlines


def test_a_coordinator_without_groups_has_nothing_to_wait_for() -> None:
    world = World()
    assert world.coordinator.next_deadline() is None


def test_a_ticket_comes_back_once() -> None:
    world = World()
    world.join("a", "")
    world.written()
    with pytest.raises(InvariantViolation, match="ticket 1"):
        world.feed(Appended(ticket=Ticket(1)))


def test_until_the_time_of_day_is_known_stored_timestamps_say_so() -> None:
    coordinator = Coordinator(GroupConfig(), lambda prefix: f"{prefix}-1")
    world = World()
    world.coordinator = coordinator
    world.commit("", -1, {"t-0": 1})
    world.written()
    world.fetch("t-0")
    kept = world.answers["fetch"].groups[0].offsets[0][1]
    assert kept.commit_timestamp == -1


@pytest.mark.parametrize("target", GroupState)
def test_a_group_moves_only_as_the_table_of_transitions_allows(target: GroupState) -> None:
    for state in GroupState:
        group = Group(group_id=GroupId("g"), state=state)
        if state in TRANSITIONS[target]:
            group.move_to(target, WallMillis(5))
            assert (group.state, group.current_state_timestamp) == (target, 5)
        else:
            with pytest.raises(InvariantViolation, match=f"group 'g' in state {state}"):
                group.move_to(target, WallMillis(5))


def test_a_violation_reports_the_history_of_the_group() -> None:
    world = World()
    world.stable("a")
    group = world.coordinator._registry.groups[GroupId("g")]
    group.parked_joins = 3
    with pytest.raises(InvariantViolation, match=r"3 parked joins are counted.*GroupStabilized"):
        world.coordinator.check()


# -- small functions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("demo-group", 1762578965),
        ("polygenelubricants", -(2**31)),
        ("Grüße", 69215351),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_javas_over_utf16(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_a_groups_partition_is_the_one_a_real_brokers_log_names() -> None:
    """Kafka 4 with 50 partitions logged ``demo-group`` under partition=15."""
    assert partition_for("demo-group", 50) == 15


def test_the_partition_of_the_least_hash_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (subscription(), frozenset()),
        (subscription("t", "u"), frozenset({"t", "u"})),
        (b"", None),
        (b"\x00\x00\x00", None),
        (b"\xff\xff" + subscription("t")[2:], None),
        (b"\x00\x00\xff\xff\xff\xff", None),
        (b"\x00\x00\x7f\xff\xff\xff", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x05ab", None),
        (b"\x00\x00\x00\x00\x00\x01\xff\xffab", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01\xff", None),
    ],
)
def test_topics_are_read_or_unknown_but_nothing_is_raised(
    metadata: bytes, topics: frozenset[str] | None
) -> None:
    assert topics_of(metadata) == topics


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
def test_log_errors_reach_clients_as_in_kafka(logged: ErrorCode, told: ErrorCode) -> None:
    assert mapped_append_error(logged) is told


def test_settings_have_kafkas_names_and_defaults() -> None:
    config = GroupConfig.from_settings({"group.initial.rebalance.delay.ms": "0", "other": "x"})
    assert config == GroupConfig(initial_rebalance_delay_ms=0)
    assert GroupConfig().initial_rebalance_delay_ms == 3_000
    config = GroupConfig.from_settings({"offsets.retention.minutes": 7})
    assert config == GroupConfig(offsets_retention_minutes=7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group.max.size": 0}, "group.max.size must be between 1 and 2147483647, but is 0"),
        ({"group.max.size": "many"}, "group.max.size must be a whole number, but is 'many'"),
        ({"group.max.size": True}, "group.max.size must be a whole number, but is True"),
        (
            {"group.min.session.timeout.ms": 9, "group.max.session.timeout.ms": 8},
            "must not exceed",
        ),
    ],
)
def test_bad_settings_say_what_was_expected(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GroupConfig.from_settings(settings)
