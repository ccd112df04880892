"""Scenes that must end the same on every broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tests.client.stage import (
    QUICK,
    Feeder,
    Player,
    SlowMember,
    coverage,
    longest_gaps,
    shared_out,
    topic,
)
from tests.waiting import until

from kohort import Consumer
from kohort.client.errors import Fenced
from kohort.model.ids import TopicPartition

PARTITIONS = 6
Kinds: TypeAlias = tuple[type[Player], type[Player], type[Player]]


def settings(bootstrap: str, group: str, **more: object) -> dict[str, object]:
    return {**QUICK, "bootstrap.servers": bootstrap, "group.id": group, **more}


def members_come_and_go(bootstrap: str, kinds: Kinds = (Player, Player, Player)) -> None:
    """Three cooperative consumers join in turn, one leaves; no record is lost or repeated."""
    with topic(bootstrap, PARTITIONS) as name, Feeder(bootstrap, name, PARTITIONS) as feeder:
        given = settings(bootstrap, f"g-{name}")
        players = [kinds[0]("first", given, [name])]
        until(lambda: shared_out(players, PARTITIONS), "the first owns everything")
        for another, kind in zip(("second", "third"), kinds[1:], strict=True):
            players.append(kind(another, given, [name]))
            until(lambda: shared_out(players, PARTITIONS), f"the {another} has its share")
        first, *rest = players
        kept = rest[0].owned
        first.stop()
        until(lambda: shared_out(rest, PARTITIONS), "the others have the partitions of the first")
        assert kept <= rest[0].owned, "kept partitions did not move"
        feeder.stop()
        wanted = sum(feeder.acknowledged.values())
        until(lambda: len(coverage(players)) >= wanted, "everything was read")
        for player in rest:
            player.stop()
        counts = coverage(players)
        assert len(counts) == wanted
        repeated = sum(n - 1 for n in counts.values())
        assert repeated == 0, f"{repeated} records were given twice although nobody crashed"
        revoked = [ps for word, ps in first.heard[:-1] if word == "revoked"]
        assert revoked, "partitions moved away from the first"
        assert all(len(ps) < PARTITIONS for ps in revoked), "never all of them at once"
        assert not any(word == "lost" for p in players for word, _ in p.heard)


class HeldOpen(NamedTuple):
    """Times during a rebalance that was held open, in seconds."""

    gap: float
    """The longest time without a record of a partition that stayed."""
    bystander: float
    """The same for a consumer in another group: the delays of the machine and the feeder."""
    held: float


def _held_open(bootstrap: str, assignor: str) -> HeldOpen:
    """A rebalance that is held open for 3.2 s."""
    with topic(bootstrap, PARTITIONS) as name, Feeder(bootstrap, name, PARTITIONS) as feeder:
        given = settings(bootstrap, f"g-{name}", **{"partition.assignment.strategy": assignor})
        slow = SlowMember(given, [name], delay_s=3.2)
        bystander = Player("bystander", settings(bootstrap, f"alone-{name}"), [name])
        players = [Player("first", given, [name]), Player("second", given, [name])]
        until(
            lambda: shared_out(players, PARTITIONS - len(slow.owned)) and slow.owned,
            "three members share the topic",
        )
        before = {player.name: player.owned for player in players}
        flowing = [*players, bystander]
        until(lambda: all(len(p.given) > 100 for p in flowing), "records flow")
        start = time.monotonic()
        slow.core.slow = True
        newcomer = Player("newcomer", given, [name])
        until(lambda: slow.core.held, "the slow member held a rebalance open")
        everybody = [*players, newcomer]
        until(
            lambda: shared_out(everybody, PARTITIONS - len(slow.owned)) and slow.owned,
            "four members share the topic",
        )
        end = time.monotonic()
        stayed = {player.name: before[player.name] & player.owned for player in players}
        gaps = [
            gap
            for player in players
            for gap in longest_gaps(player, stayed[player.name], start, end).values()
        ]
        assert gaps, "some partitions stayed where they were"
        seen = longest_gaps(bystander, frozenset().union(*stayed.values()), start, end)
        for player in (*everybody, bystander):
            player.stop()
        slow.stop()
        feeder.stop()
        held_from, held_to = slow.core.held[0]
        return HeldOpen(max(gaps), max(seen.values()), held_to - held_from)


def only_what_moves_stops(bootstrap: str) -> None:
    """A slow member holds a rebalance open: cooperative members read on, eager ones stop."""
    seen = _held_open(bootstrap, "cooperative-sticky")
    assert seen.held >= 3.0
    # A bystander stands still, too, while the machine does something else.
    assert seen.gap <= 1.0 + seen.bystander, f"a partition that stayed stood still: {seen}"
    # Sticky, since range may by chance leave nobody what it had: its order is that of member ids.
    control = _held_open(bootstrap, "sticky")
    assert control.held >= 3.0
    assert control.gap >= 2.5, f"the eager control read on: {control}"


def static_members_bounce(bootstrap: str) -> None:
    """Static consumers stop and start in turn, and the other consumer notices nothing.

    A consumer that returns has its partitions again; no record is lost or repeated. Then a second
    process starts with the instance id of a running one, which ends.
    """
    with topic(bootstrap, PARTITIONS) as name, Feeder(bootstrap, name, PARTITIONS) as feeder:
        given = settings(bootstrap, f"g-{name}", **{"session.timeout.ms": 20_000})

        def start(instance: str) -> Player:
            return Player(instance, {**given, "group.instance.id": instance}, [name])

        players = {instance: start(instance) for instance in ("one", "two")}
        everybody = list(players.values())
        until(lambda: shared_out(list(players.values()), PARTITIONS), "two share the topic")
        for back, stays in (("one", "two"), ("two", "one"), ("one", "two")):
            had, heard = players[back].owned, list(players[stays].heard)
            players[back].stop()
            players[back] = start(back)
            everybody.append(players[back])
            until(lambda: players[back].owned, f"{back} is back")  # noqa: B023
            seen = len(players[back].given)
            until(lambda: len(players[back].given) > seen + 50, f"{back} reads")  # noqa: B023
            assert players[back].owned == had, "the consumer has its partitions again"
            assert players[stays].heard == heard, "the other consumer got no callback"
        former = players["one"]
        players["one"] = start("one")
        everybody.append(players["one"])
        until(lambda: former.error is not None, "the fenced consumer ends")
        assert isinstance(former.error, Fenced)
        until(lambda: players["one"].owned == had, "its successor has its partitions")
        feeder.stop()
        wanted = sum(feeder.acknowledged.values())
        until(lambda: len(coverage(everybody)) >= wanted, "everything was read")
        for player in players.values():
            player.stop()
        assert len(coverage(everybody)) == wanted
        orderly = coverage([p for p in everybody if p not in (former, players["one"])])
        repeated = sum(n - 1 for n in orderly.values())
        assert repeated == 0, f"{repeated} records were given twice to members that left in order"


def rebalances_are_enforced(bootstrap: str) -> None:
    """KIP-568 with a static and a dynamic member; their subscriptions do not change.

    Each call is one new generation. A second call before its end does nothing, no partition is
    revoked, and nothing happens before the first call.
    """
    heard: list[tuple[str, frozenset[TopicPartition]]] = []

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        heard.append(("revoked", frozenset(partitions)))

    with topic(bootstrap, PARTITIONS) as name:
        given = settings(bootstrap, f"g-{name}", **{"session.timeout.ms": 20_000})
        static = Consumer({**given, "group.instance.id": "one"})
        with static, Consumer(given) as dynamic:
            both = [static, dynamic]

            def polled(holds: Callable[[], object], what: str) -> None:
                def look() -> object:
                    for consumer in both:
                        consumer.poll(0.02)
                    return holds()

                until(look, what)

            for consumer in both:
                consumer.subscribe([name], on_revoke=revoked, on_lost=revoked)
            polled(lambda: all(len(c.assignment()) == PARTITIONS // 2 for c in both), "halves")
            polled(lambda: len({c.status().generation for c in both}) == 1, "one generation")
            shares, heard[:] = [c.assignment() for c in both], []
            generation = static.status().generation
            for caller in both:
                caller.enforce_rebalance("standbys are warm")
                caller.enforce_rebalance("a second call does nothing")
                generation += 1
                polled(lambda: {c.status().generation for c in both} == {generation}, "joined")  # noqa: B023
                polled(lambda: all(c.status().seconds > 0.5 for c in both), "half a second passed")
                assert {c.status().generation for c in both} == {generation}
            assert [c.assignment() for c in both] == shares
            assert heard == []


def pauses_stay(bootstrap: str) -> None:
    """A pause lasts through two rebalances for the partitions that stay, and for no others.

    A partition that left and came back is read. No record is lost or comes twice.
    """
    given: Counter[tuple[TopicPartition, int]] = Counter()
    with topic(bootstrap, PARTITIONS) as name:
        everything = frozenset(TopicPartition(name, number) for number in range(PARTITIONS))
        feeder, same = Feeder(bootstrap, name, PARTITIONS), settings(bootstrap, f"g-{name}")

        def polled(consumers: list[Consumer], holds: Callable[[], object], what: str) -> None:
            def look() -> object:
                for consumer in consumers:
                    for record in consumer.consume(1_000, 0.02):
                        place = TopicPartition(record.topic() or "", record.partition() or 0)
                        given[place, record.offset() or 0] += 1
                return holds()

            until(look, what, 60)

        def counts(partitions: frozenset[TopicPartition]) -> Counter[TopicPartition]:
            return Counter(place for place, _ in given if place in partitions)

        half = {PARTITIONS // 2}
        feeder.once(20)
        with Consumer(same) as first:
            first.subscribe([name])
            polled([first], lambda: first.assignment() == everything, "the first owns everything")
            first.pause(everything)
            with Consumer(same) as second:
                both = [first, second]
                second.subscribe([name])
                polled(both, lambda: {len(c.assignment()) for c in both} == half, "halves")
                stayed, moved = first.assignment(), second.assignment()
                read = counts(stayed)
                assert (first.paused(), second.paused()) == (stayed, frozenset())
                feeder.once(20)
                full = dict.fromkeys(moved, 40)
                polled(both, lambda: counts(moved) == full, "the second reads")
            polled([first], lambda: first.assignment() == everything, "everything came back")
            assert first.paused() == stayed
            feeder.once(20)
            full = dict.fromkeys(moved, 60)
            polled([first], lambda: counts(moved) == full, "the first reads what came back")
            assert counts(stayed) == read
            first.resume(stayed)
            full = dict.fromkeys(everything, 60)
            polled([first], lambda: counts(everything) == full, "the rest after the pause")
    assert set(given.values()) == {1}
