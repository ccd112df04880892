"""Each of the ten patterns of a window, from each source alone that can show the pattern.

The table in docs/howto/explain-logs.md has a cell for each pattern and source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

import pytest
from tests.explain.test_offsets_patterns import LOOP, Generation, deployment, explained
from tests.explain.test_stories import done, explain, joins, leaves, line, member, preparing
from tests.explain.test_waits import history
from tests.tidy.trees import ROOT

from kohort.explain.events import Place
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.offsets_topic.leader_epochs import LeaderEpochs
from kohort.model import facts as f
from kohort.model import member_facts as m
from kohort.model.errors import ErrorCode
from kohort.model.facts import RebalanceCause
from kohort.model.group_state import GroupState
from kohort.model.history_record import AnyFact
from kohort.model.ids import (
    GenerationId,
    GroupId,
    MemberId,
    ProtocolName,
    ProtocolType,
)
from kohort.model.instants import Instant, Millis

Facts: TypeAlias = list[tuple[float, AnyFact]]
G: Final = GroupId("g")


# -- histories ------------------------------------------------------------------------------------


def begins(
    at: float, generation: int, cause: RebalanceCause, who: str = "", **more: object
) -> Facts:
    fact = f.RebalanceStarted(
        group_id=G,
        generation_id=GenerationId(generation),
        previous_state=GroupState.STABLE,
        cause=cause,
        member_ids=(MemberId(who),),
        **more,  # type: ignore[arg-type]
    )
    return [(at, fact)]


def completed(at: float, generation: int, *, assigned: bool = True) -> Facts:
    number, leader = GenerationId(generation), MemberId("l")
    joined = f.JoinPhaseCompleted(
        group_id=G,
        generation_id=number,
        protocol_type=ProtocolType("consumer"),
        protocol_name=ProtocolName("range"),
        leader_id=leader,
        member_ids=(leader, MemberId("x")),
    )
    got = f.AssignmentReceived(
        group_id=G, generation_id=number, leader_id=leader, member_count=2, static_count=0
    )
    return [(at, joined), *[(at, got)] * assigned]


def added(at: float, generation: int, who: str) -> Facts:
    return begins(at, generation, RebalanceCause.MEMBER_ADDED, who)


def gone(at: float, generation: int, who: str, reason: str | None = None) -> Facts:
    left = f.MemberLeft(
        group_id=G,
        generation_id=GenerationId(generation),
        member_id=MemberId(who),
        group_instance_id=None,
        client_reason=reason,
        pending=False,
    )
    return [(at, left), *begins(at, generation, RebalanceCause.MEMBERS_LEFT, who)]


def expired(at: float, generation: int, who: str) -> Facts:
    fact = f.MemberExpired(
        group_id=G,
        generation_id=GenerationId(generation),
        member_id=MemberId(who),
        group_instance_id=None,
    )
    return [(at, fact), *begins(at, generation, RebalanceCause.MEMBER_EXPIRED, who)]


def rounds(begin: Callable[[int], Facts], count: int, pause_s: float) -> Facts:
    return [
        each
        for number in range(count)
        for each in chain(begin(number), completed(number * pause_s + 0.1, number + 1))
    ]


def restarted() -> Facts:
    whole: Facts = []
    for number in range(3):
        at, before = 60.0 * number, 2 * number
        whole += [*gone(at, before, member("svc", number)), *completed(at + 0.1, before + 1)]
        whole += added(at + 30, before + 1, member("svc", 10 + number))
        whole += completed(at + 30.1, before + 2)
    return whole


def refused(error: ErrorCode) -> Facts:
    fact = m.RequestRefused(
        at=Instant(0),
        group_id=G,
        member_id=MemberId("c"),
        generation_id=GenerationId(3),
        request="JoinGroup",
        error=error,
    )
    return [(1.0, fact)]


HISTORIES: Final[dict[str, Facts]] = {
    "storm": rounds(lambda n: added(2.0 * n, n, member("svc", n)), 5, 2.0),
    "poll interval": [
        *gone(9, 3, member("svc", 1), "consumer poll timeout has expired."),
        *completed(9.1, 4),
    ],
    "crash loop": rounds(lambda n: added(90.0 * n, n, member("svc", n)), 5, 90.0),
    "duplicate instance id": [
        (
            1.0,
            f.JoinRefused(
                group_id=G,
                member_id=MemberId("web-0-1"),
                client_id="web",
                client_host="/10.0.0.7",
                error=ErrorCode.FENCED_INSTANCE_ID,
            ),
        )
    ],
    "deploy without static ids": restarted(),
    "slow joiner": [*added(0, 3, member("svc", 1)), *completed(42, 4)],
    "leader cannot sync": [
        *added(0, 3, member("svc", 1)),
        *completed(0.1, 4, assigned=False),
        *begins(300, 4, RebalanceCause.SYNC_EXPIRED, "l"),
        *completed(300.1, 5),
    ],
    "session shorter than pauses": [
        *expired(9, 3, member("svc", 1)),
        *completed(9.1, 4),
        *added(11, 4, member("svc", 2)),
        *completed(11.1, 5),
    ],
    "group record too large": [
        *begins(
            0,
            3,
            RebalanceCause.ASSIGNMENT_NOT_STORED,
            "l",
            error=ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        *completed(0.1, 4),
    ],
    "coordinator moved": [
        (0.0, f.GroupLoaded(group_id=G, generation_id=GenerationId(7), member_count=3))
    ],
}

CONSUMERS: Final[dict[str, Facts]] = {
    "poll interval": [
        (
            1.0,
            m.PollIntervalExceeded(
                at=Instant(0),
                group_id=G,
                member_id=MemberId("c"),
                generation_id=GenerationId(3),
                limit_ms=Millis(300_000),
            ),
        )
    ],
    "duplicate instance id": refused(ErrorCode.FENCED_INSTANCE_ID),
}


# -- logs -----------------------------------------------------------------------------------------


def broker(begin: Callable[[int], Iterable[str]], count: int, pause_s: float) -> list[str]:
    return [
        each
        for number in range(count)
        for each in (*begin(number), *done(number * pause_s + 0.1, number + 1))
    ]


def deployed() -> list[str]:
    lines = []
    for number in range(3):
        at, before = 60.0 * number, 2 * number
        lines += [*leaves(at, before, member("svc", number)), *done(at + 0.1, before + 1)]
        lines += [joins(at + 30, before + 1, member("svc", 10 + number))]
        lines += done(at + 30.1, before + 2)
    return lines


def removed(at: float, before: int, who: str) -> list[str]:
    return [
        line(at, f"Member {who} in group g has failed, removing it from the group."),
        preparing(at, before, f"removing member {who} on heartbeat expiration."),
    ]


BROKERS: Final[dict[str, Iterable[str]]] = {
    "storm": broker(lambda n: [joins(2.0 * n, n, member("svc", n))], 5, 2.0),
    "poll interval": [
        line(
            9,
            f"[Group g] Member {member('svc', 1)} has left group through explicit `LeaveGroup` "
            "request; client reason: consumer poll timeout has expired.",
        ),
        preparing(9, 3, f"explicit `LeaveGroup` request for ({member('svc', 1)}) members."),
        *done(9.1, 4),
    ],
    "crash loop": broker(lambda n: [joins(90.0 * n, n, member("svc", n))], 5, 90.0),
    "duplicate instance id": [
        line(
            1,
            "Request memberId=web-0-1 for static member with groupInstanceId=web-0 is fenced by "
            "existing memberId=web-0-2 during operation Heartbeat",
        )
    ],
    "deploy without static ids": deployed(),
    "slow joiner": [joins(0, 3, member("svc", 1)), *done(42, 4)],
    "leader cannot sync": [
        joins(0, 3, member("svc", 1)),
        done(0.1, 4)[0],
        preparing(300, 4, "Removing [l] on pending sync request expiration"),
        *done(300.1, 5),
    ],
    "session shorter than pauses": [
        *removed(9, 3, member("svc", 1)),
        *done(9.1, 4),
        joins(11, 4, member("svc", 2)),
        *done(11.1, 5),
    ],
    "group record too large": [
        preparing(
            0,
            3,
            "Error UNKNOWN_SERVER_ERROR when storing group assignment during SyncGroup (member: l)",
        ),
        *done(0.1, 4),
    ],
    "coordinator moved": [line(0, "Loaded classic group g with 3 members.")],
}


def client(at: float, text: str, number: int = 1) -> str:
    minutes, seconds = divmod(at, 60)
    return (
        f"2026-03-01 10:{int(minutes):02}:{seconds:06.3f} INFO [Consumer clientId=c-{number}, "
        f"groupId=g] {text}"
    )


def generation(number: int, who: str) -> str:
    return f"generation Generation{{generationId={number}, memberId='{who}', protocol='range'}}"


def joined(at: float, number: int, who: str, process: int = 1, wait_s: float = 0.1) -> list[str]:
    return [
        client(at, "(Re-)joining group", process),
        client(at + wait_s, f"Successfully joined group with {generation(number, who)}", process),
    ]


def synced(at: float, number: int, who: str, process: int = 1, wait_s: float = 0.1) -> list[str]:
    text = f"Successfully synced group in {generation(number, who)}"
    return [*joined(at, number, who, process, wait_s), client(at + wait_s + 0.1, text, process)]


def processes() -> list[str]:
    """Two processes stop and start, one after the other."""
    lines = []
    for number in (1, 2):
        old, new = member(f"c-{number}", 1), member(f"c-{number}", 2)
        lines += synced(0.0, 3, old, number)
        closing = f"Member {old} sending LeaveGroup request to coordinator k:9092 (id: 9 rack: n)"
        at = 60.0 * number
        lines += [client(at, f"{closing} due to the consumer is being closed", number)]
        lines += synced(at + 20, 3 + number, new, number)
    return sorted(lines)


CLIENTS: Final[dict[str, Iterable[str]]] = {
    "storm": [each for n in range(5) for each in synced(2.0 * n, 1_000 + n, member("c", 1))],
    "poll interval": [
        client(
            1,
            f"Member {member('c', 1)} sending LeaveGroup request to coordinator k:9092 (id: 9 "
            "rack: n) due to consumer poll timeout has expired.",
        )
    ],
    "crash loop": [each for n in range(5) for each in synced(60.0 * n, 7 + n, member("c-1", n))],
    "duplicate instance id": [
        client(
            1, "JoinGroup failed: The group instance id web-0 has been fenced by another instance."
        )
    ],
    "deploy without static ids": processes(),
    "slow joiner": synced(0, 7, member("c-1", 1), wait_s=42.0),
    "leader cannot sync": [
        *joined(0, 7, member("c-1", 1)),
        client(50, "Attempt to heartbeat failed since group is rebalancing"),
        *synced(50.1, 8, member("c-1", 1)),
    ],
    "session shorter than pauses": [
        *synced(0, 7, member("c-1", 1)),
        client(
            60,
            "Attempt to heartbeat with Generation{generationId=7} and group instance id "
            "Optional.empty failed due to UNKNOWN_MEMBER_ID, resetting generation",
        ),
        *synced(61, 9, member("c-1", 2)),
    ],
    "group record too large": [
        client(0, "SyncGroup failed: UNKNOWN_SERVER_ERROR. Sent generation was 7")
    ],
    "coordinator moved": [
        client(0, "Discovered group coordinator a:9092 (id: 2147483646 rack: null)"),
        client(9, "Discovered group coordinator b:9092 (id: 2147483645 rack: null)"),
    ],
}

# -- the offsets topic ----------------------------------------------------------------------------

TOPIC: Final[dict[str, list[Generation]]] = {
    "storm": LOOP,
    "crash loop": LOOP,
    "deploy without static ids": deployment(),
}


def new_leader() -> Explained:
    """The leader of the partition with group ``g`` changed between two records."""
    epochs, explainer = LeaderEpochs(), Explainer()
    for offset in range(2):
        place = Place("__consumer_offsets-7", offset)
        explainer.feed_all(epochs.note(7, offset, 100.0 + offset, place, ["g"]))
    (found,) = explainer.finish()
    return found


# -- the table ------------------------------------------------------------------------------------

SOURCES: Final[dict[str, dict[str, Callable[[], Explained]]]] = {
    "broker's log": {name: partial(explain, told) for name, told in BROKERS.items()},
    "clients' logs": {name: partial(explain, told) for name, told in CLIENTS.items()},
    "offsets topic": {
        **{name: partial(explained, *told) for name, told in TOPIC.items()},
        "coordinator moved": new_leader,
    },
    "history": {name: partial(history, *told) for name, told in HISTORIES.items()},
    "consumer's history": {name: partial(history, *told) for name, told in CONSUMERS.items()},
}


@pytest.mark.parametrize(
    ("source", "pattern"), [(source, name) for source, cells in SOURCES.items() for name in cells]
)
def test_a_source_alone_shows_the_pattern_with_its_proof(source: str, pattern: str) -> None:
    shown = {finding.name: finding for finding in SOURCES[source][pattern]().findings}
    assert pattern in shown
    assert shown[pattern].evidence


def test_the_page_names_the_patterns_that_each_source_shows() -> None:
    page = (ROOT / "docs" / "howto" / "explain-logs.md").read_text("utf-8")
    table = page.split("| pattern | broker's log | ")[1].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    told = {
        (source, row[0])
        for row in rows
        for source, cell in zip(list(SOURCES)[:4], row[1:], strict=True)
        if not cell.startswith("no")
    }
    assert told == {(s, name) for s in list(SOURCES)[:4] for name in SOURCES[s]}
