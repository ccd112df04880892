"""Many answers at once leave in shares: none is lost, sent twice or out of order."""

from __future__ import annotations

from tests.engine.coordinator_bench import Bench, Client

from kohort.wire.messages.k16_list_groups import ListGroupsRequest

MEMBERS, AT_ONCE = 11, 3


def joined(bench: Bench) -> list[tuple[Client, str]]:
    """Members after their join phase, while the engine still holds the postponed answers."""
    members = []
    for n in range(MEMBERS):
        client = bench.client(f"c{n}")
        members.append((client, client.enter("g")))
    bench.wait(7_000)
    return members


def answered(members: list[tuple[Client, str]]) -> int:
    return sum(client.answers[-1].generation_id == 1 for client, _ in members)


def go_on(bench: Bench) -> int:
    """Collect the postponed answers; returns the number of shares in which they came."""
    shares = 0
    while bench.engine.has_more:
        shares += 1
        bench.carry_out(bench.engine.go_on(bench.now))
    return shares


def test_answers_of_a_large_join_phase_leave_in_shares() -> None:
    bench = Bench(delay=3_000, answers_at_once=AT_ONCE)
    members = joined(bench)
    assert answered(members) == AT_ONCE
    assert go_on(bench) == 3
    assert answered(members) == MEMBERS
    assert "JoinPhaseCompleted" in bench.facts


def test_answers_with_and_without_shares_are_equal() -> None:
    shared, whole = Bench(delay=3_000, answers_at_once=AT_ONCE), Bench(delay=3_000)
    told = []
    for bench in (shared, whole):
        members = joined(bench)
        go_on(bench)
        plan = {member_id: member_id.encode() for _, member_id in members}
        for client, member_id in members:
            client.sync("g", 1, member_id, plan if member_id == members[0][1] else {})
        bench.written()
        go_on(bench)
        told.append([client.answers for client, _ in members])
        assert [c.answers[-1].assignment for c, _ in members] == list(plan.values())
    assert told[0] == told[1]


def test_a_later_answer_on_a_connection_leaves_after_the_postponed_answer() -> None:
    bench = Bench(delay=3_000, answers_at_once=AT_ONCE)
    members = joined(bench)
    last, _ = members[-1]
    last.send("ListGroups", ListGroupsRequest())
    assert len(last.answers) == 1
    go_on(bench)
    names = [type(answer).__name__ for answer in last.answers]
    assert names == ["JoinGroupResponse", "JoinGroupResponse", "ListGroupsResponse"]


def test_a_postponed_answer_is_dropped_when_its_connection_closes() -> None:
    bench = Bench(delay=3_000, answers_at_once=AT_ONCE)
    members = joined(bench)
    gone, _ = members[-1]
    bench.carry_out(bench.engine.lost(gone.conn, bench.now))
    go_on(bench)
    assert answered(members) == MEMBERS - 1
    assert gone.answers[-1].generation_id == -1
