"""The pieces that are played on any broker: what must be so for users, whoever serves."""

from __future__ import annotations

import time

from tests.client.stage import (
    QUICK,
    Feeder,
    Player,
    SlowMember,
    coverage,
    longest_gaps,
    shared_out,
    topic,
    until,
)

PARTITIONS = 6


def settings(bootstrap: str, group: str, **more: object) -> dict[str, object]:
    return {**QUICK, "bootstrap.servers": bootstrap, "group.id": group, **more}


def members_come_and_go(bootstrap: str) -> None:
    """Three cooperative consumers, one after the other; one leaves; no record lost or repeated."""
    with topic(bootstrap, PARTITIONS) as name, Feeder(bootstrap, name, PARTITIONS) as feeder:
        given = settings(bootstrap, f"g-{name}")
        players = [Player("first", given, [name])]
        until(lambda: shared_out(players, PARTITIONS), "the first owns everything")
        for another in ("second", "third"):
            players.append(Player(another, given, [name]))
            until(lambda: shared_out(players, PARTITIONS), f"the {another} has its share")
        first, *rest = players
        kept = rest[0].owned
        first.stop()
        until(lambda: shared_out(rest, PARTITIONS), "the others have what the first had")
        assert kept <= rest[0].owned, "what was kept did not move"
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


def _held_open(bootstrap: str, assignor: str) -> tuple[float, float]:
    """A rebalance that is held open for 3.2 s.

    Returns:
        The longest gap of a partition that stayed where it was, and how long it was held open.
    """
    with topic(bootstrap, PARTITIONS) as name, Feeder(bootstrap, name, PARTITIONS) as feeder:
        given = settings(bootstrap, f"g-{name}", **{"partition.assignment.strategy": assignor})
        slow = SlowMember(given, [name], delay_s=3.2)
        players = [Player("first", given, [name]), Player("second", given, [name])]
        until(
            lambda: (
                slow.owned and sum(len(p.owned) for p in players) + len(slow.owned) == PARTITIONS
            ),
            "three members share the topic",
        )
        before = {player.name: player.owned for player in players}
        start = time.monotonic()
        until(lambda: all(len(p.given) > 100 for p in players), "records flow")
        slow.slow = True
        newcomer = Player("newcomer", given, [name])
        until(lambda: slow.held, "the slow member held a rebalance open")
        until(lambda: newcomer.owned, "the newcomer has its share")
        end = time.monotonic()
        gaps = [
            gap
            for player in players
            for gap in longest_gaps(player, before[player.name] & player.owned, start, end).values()
        ]
        assert gaps, "some partitions stayed where they were"
        for player in [*players, newcomer]:
            player.stop()
        slow.stop()
        feeder.stop()
        held_from, held_to = slow.held[0]
        return max(gaps), held_to - held_from


def only_what_moves_stops(bootstrap: str) -> None:
    """A slow member holds a rebalance open: cooperative members read on, eager ones stop."""
    gap, held = _held_open(bootstrap, "cooperative-sticky")
    assert held >= 3.0
    assert gap <= 0.5, f"a partition that stayed stood still for {gap:.2f} s"
    # Sticky, since range may by chance leave nobody what it had: its order is that of member ids.
    control, held = _held_open(bootstrap, "sticky")
    assert held >= 3.0
    assert control >= 2.5, f"the eager control stood still for {control:.2f} s only"
