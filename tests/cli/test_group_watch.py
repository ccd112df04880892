"""``kohort groups watch``: each change of a group is seen once, as a line, as JSON, in the view."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from rich.console import Console
from tests.cli.commands import Kohort
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.cli.groups import watch as group_watch
from kohort.cli.groups.choice import Groups
from kohort.cli.groups.reports import PartitionRow
from kohort.cli.groups.watch import Look, Watch, changes, look_at
from kohort.client.admin import Admin
from kohort.client.descriptions import GroupDescription, GroupMemberDescription
from kohort.client.errors import BrokerUnreachable
from kohort.client.membership import GroupMembership
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(name: str, *owned: TopicPartition) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=name,
        group_instance_id="pod-1" if name == "b" else None,
        client_id="client",
        client_host="/10.0.0.1",
        assigned=frozenset(owned),
    )


def look(
    *members: GroupMemberDescription,
    at: float = 0.0,
    state: str = "Stable",
    committed: int | None = None,
    epoch: int | None = None,
) -> Look:
    """A group that owns partition 0 of a log with ten records."""
    owner = next((m for m in members if T0 in (m.partitions or ())), None)
    position = None if committed is None else Position(committed)
    return Look(
        at=at,
        group=GroupDescription(
            group_id="g",
            state=state,
            protocol_type="consumer",
            protocol_name="uniform",
            coordinator_id=1,
            members=members,
            epoch=epoch,
        ),
        rows=[PartitionRow(T0, position, 10, owner)],
    )


def test_every_kind_of_change_is_a_line() -> None:
    before = look(member("a", T0, T1), committed=2, epoch=3)
    after = look(member("b", T0), at=1.5, state="Reconciling", committed=4, epoch=4)
    assert [change.line() for change in changes(before, after)] == [
        "1970-01-01T00:00:01.500Z  g  state  Stable -> Reconciling",
        "1970-01-01T00:00:01.500Z  g  epoch  3 -> 4",
        "1970-01-01T00:00:01.500Z  g  left  a (client, /10.0.0.1)",
        "1970-01-01T00:00:01.500Z  g  joined  b (client, /10.0.0.1, pod-1)",
        "1970-01-01T00:00:01.500Z  g  lost  a t:0,1",
        "1970-01-01T00:00:01.500Z  g  gained  b t:0",
        "1970-01-01T00:00:01.500Z  g  lag  6 (-2)",
    ]
    assert changes(after, after) == []
    assert [change.line() for change in changes(None, before)] == [
        "1970-01-01T00:00:00.000Z  g  first  Stable, 1 members, lag 8, epoch 3"
    ]


def test_a_change_as_json_has_the_same_values() -> None:
    before, after = look(member("a", T0)), look(member("a", T0, T1), at=1)
    (gained,) = changes(before, after)
    assert json.loads(gained.as_json()) == {
        "time": "1970-01-01T00:00:01.000Z",
        "group": "g",
        "change": "gained",
        "consumer_id": "a",
        "partitions": ["t-1"],
    }


def test_the_view_shows_members_and_the_last_changes() -> None:
    watch = Watch()
    watch.take([look(member("a", T0, T1), committed=2, epoch=3)])
    watch.take([look(member("a", T1), member("b[bold]", T0), at=2, committed=3, epoch=4)])
    watch.take([look(member("a", T1), member("b[bold]", T0), at=5, committed=4, epoch=4)])
    console = Console(file=io.StringIO(), width=90)
    console.print(watch.view())
    assert isinstance(console.file, io.StringIO)
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [
        "g  Stable  members 2  lag 6  epoch 4  uniform  assignment changed 1 times, last 3 s ago",
        "CONSUMER-ID  HOST       CLIENT-ID  #PARTITIONS  LAG  ASSIGNMENT",
        "a            /10.0.0.1  client               1    0  t:1",
        "b[bold]      /10.0.0.1  client               1    6  t:0",
        "",
        "1970-01-01T00:00:00.000Z  g  first  Stable, 1 members, lag 8, epoch 3",
        "1970-01-01T00:00:02.000Z  g  epoch  3 -> 4",
        "1970-01-01T00:00:02.000Z  g  joined  b[bold] (client, /10.0.0.1)",
        "1970-01-01T00:00:02.000Z  g  lost  a t:0",
        "1970-01-01T00:00:02.000Z  g  gained  b[bold] t:0",
    ]


def test_a_group_of_a_broker_is_followed(kohort_broker: EmbeddedBroker, kohort: Kohort) -> None:
    server = kohort_broker.bootstrap_servers
    settings = {"bootstrap.servers": server, "group.id": "g"}
    watch = Watch()
    groups = Groups(names=("g",), every=False)
    with Admin(bootstrap_servers=server) as admin:
        admin.create_topic("t", 2)
        (first,) = watch.take(look_at(admin, groups))
        assert first.text == "Dead, 0 members, lag -"
        with GroupMembership(["t"], settings) as member:
            until(lambda: len(member.snapshot().owned) == 2, "the member owns the topic")
            found = watch.take(look_at(admin, groups))
            assert [change.kind for change in found] == ["state", "joined", "gained"]
            assert found[2].values["partitions"] == ["t-0", "t-1"]
            assert watch.take(look_at(admin, groups)) == []
        admin.alter_offsets("g", {T0: Position(0)})
        found = watch.take(look_at(admin, groups))
        assert [change.kind for change in found] == ["state", "left", "lost", "lag"]
    shown = kohort("groups", "watch", "--all-groups", "--count", "2", "--interval", "0.1")
    assert shown.endswith("Z  g  first  Empty, 0 members, lag 0\n")


def test_a_failure_between_two_looks_is_told_once(
    kohort: Kohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Iterator[list[Look] | BrokerUnreachable] = iter(
        [[look()], BrokerUnreachable("gone"), BrokerUnreachable("gone"), [look(at=9)]]
    )

    def answer(*_asked: object) -> list[Look]:
        found = next(answers)
        if isinstance(found, BrokerUnreachable):
            raise found
        return found

    monkeypatch.setattr(group_watch, "look_at", answer)
    told = kohort("groups", "watch", "g", "--count", "4", "--interval", "0.1", "--json")
    assert json.loads(told)["change"] == "first"
    assert kohort.errors == "kohort: gone; watching on\n"
