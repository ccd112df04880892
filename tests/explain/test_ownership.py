"""Stops of partitions as clients tell them: dead owners, two owners, members that return."""

from __future__ import annotations

import pytest

from kohort.explain.amounts import Known, Stop
from kohort.explain.events import Event, Kind, Place, Side
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.ownership import Ownership


def stops(ownership: Ownership) -> list[tuple[float, float]]:
    ownership.finish()
    return [(stop.begin, stop.end) for stop in ownership.stops]


@pytest.mark.parametrize(
    ("later_signs", "expected"), [((), [(2.0, 8.0)]), ((8.5, 9.0), []), ((30.0,), [(2.0, 8.0)])]
)
def test_an_owner_that_lives_on_while_another_one_has_its_partition_left_no_gap(
    later_signs: tuple[float, ...], expected: list[tuple[float, float]]
) -> None:
    """A fenced process learns late that another one has its instance id."""
    owners = Ownership()
    owners.got("old", ["t-0"], 1.0)
    owners.seen("old", 2.0)
    owners.got("new", ["t-0"], 8.0)
    for at in later_signs:
        owners.seen("old", at)
    assert stops(owners) == expected


def test_the_next_process_of_a_dead_owner_is_no_sign_of_its_life() -> None:
    owners = Ownership()
    owners.got("a", ["t-0"], 1.0)
    owners.seen("a", 2.0)
    owners.got("b", ["t-0"], 8.0)
    owners.started("a", 8.5)
    owners.seen("a", 9.0)
    assert stops(owners) == [(2.0, 8.0)]


def test_a_process_that_starts_owns_nothing_since_the_last_sign_of_the_one_before() -> None:
    owners = Ownership()
    owners.got("a", ["t-0"], 1.0)
    owners.seen("a", 2.0)
    owners.started("a", 5.0)
    owners.got("a", ["t-0"], 7.0)
    assert stops(owners) == [(2.0, 7.0)]


def client(kind: Kind, at: float, *, generation: int | None = None, partitions: str = "") -> Event:
    return Event(
        kind=kind,
        side=Side.CLIENT,
        place=Place("pod.jsonl", int(at)),
        text="",
        at=at,
        source="pod-0",
        maker="kohort",
        group="g",
        generation=generation,
        details={"partitions": partitions} if partitions else {},
    )


def broker(kind: Kind, at: float, text: str = "") -> Event:
    return client(kind, at, generation=5)._replace(
        side=Side.BROKER, maker="Kafka", members=1, source="", text=text
    )


def bounced(*brokers: Event) -> Explained:
    """A static member that joins, ends at 20, and is back in its generation at 23."""
    told = [
        client(Kind.SYNCED, 10.0, generation=5),
        client(Kind.ADDED, 10.0, partitions="t-0"),
        client(Kind.REVOKED, 20.0, partitions="t-0"),
        client(Kind.PROCESS_ENDED, 20.5),
        client(Kind.PROCESS_STARTED, 22.0),
        client(Kind.SYNCED, 22.9, generation=5),
        client(Kind.ADDED, 23.0, partitions="t-0"),
    ]
    (found,) = Explainer().feed_all(sorted([*told, *brokers], key=lambda e: e.at or 0)).finish()
    return found


def test_the_stop_of_a_static_member_that_returns_belongs_to_no_rebalance() -> None:
    prepared = broker(Kind.PREPARING, 9.0)._replace(generation=4)
    found = bounced(prepared, broker(Kind.STABILIZED, 9.9), broker(Kind.STATIC_REPLACED, 22.8))
    (row,) = found.story.rebalances
    assert (row.generation, row.stops, row.joined) == (5, (), 9.9)
    assert found.story.returns == [Stop("t-0", 20.0, 23.0, Known.MEASURED)]
    (finding,) = [f for f in found.findings if f.name == "static member returned"]
    assert finding.says.endswith("Meanwhile 1 partition stood still, for 3.0 s at most (measured).")


def test_a_return_is_told_from_the_histories_of_clients_alone() -> None:
    found = bounced()
    (row,) = found.story.rebalances
    assert (row.generation, row.stops) == (5, ())
    (finding,) = [f for f in found.findings if f.name == "stopped without a rebalance"]
    assert "for 3.0 s at most" in finding.says
    assert finding.evidence


def test_a_partition_is_read_later_than_it_is_owned() -> None:
    owners = Ownership()
    owners.got("a", ["t-0", "t-1", "t-2"], 1.0)
    owners.fetching("a", "t-0", 3.0)
    owners.gave("a", ["t-0", "t-1"], 5.0)
    owners.fetching("b", "t-0", 5.5)  # a history may tell it before the end of the callback
    owners.got("b", ["t-0"], 6.0)
    owners.got("silent", ["t-1"], 6.0)
    owners.seen("b", 9.0)
    owners.seen("silent", 9.0)
    owners.finish()
    assert sorted((o.partition, o.owner, o.begin, o.end, o.ready) for o in owners.owned) == [
        ("t-0", "a", 1.0, 5.0, 3.0),
        ("t-0", "b", 6.0, 9.0, 6.0),
        ("t-1", "a", 1.0, 5.0, 5.0),  # never read
        ("t-1", "silent", 6.0, 9.0, None),  # its client tells no reads
        ("t-2", "a", 1.0, 5.0, 5.0),
    ]
