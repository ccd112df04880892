"""The numbers of a group over the whole time: stops, costs and moves of all rebalances.

In: a `Story`. Out: names, texts and how each number is known. Must not know: pages, terminals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kohort.explain.amounts import Amount, Known, Stop, total, weakest
from kohort.explain.findings import amount_text, member_text, span_text
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story

_HOUR_S: Final = 3_600.0
_LONG_S: Final = 600.0
"""A rate by the hour says little about a shorter time."""


class Number(NamedTuple):
    """A number of a group."""

    name: str
    text: str
    known: Known


def numbers_of(story: Story) -> list[Number]:
    """The numbers that the sources tell; a number that no source tells is absent."""
    return [*_rebalances(story), *_costs(story), *_moves(story), *_worst(story)]


def _rebalances(story: Story) -> Iterator[Number]:
    yield Number("rebalances", f"{story.total:,}", Known.MEASURED)
    span = _span(story)
    if span >= _LONG_S:
        rate = story.total * _HOUR_S / span
        yield Number("rebalances an hour", f"{rate:,.1f}", Known.MEASURED)


def _costs(story: Story) -> Iterator[Number]:
    rows = story.rebalances
    if dead := [row.dead for row in rows if row.dead is not None]:
        longest = max(dead, key=lambda amount: amount.value)
        text = amount_text(longest, span_text) + _share(len(dead), len(rows))
        yield Number("longest stop", text, longest.known)
    if costs := [cost for row in rows if (cost := _cost(row)) is not None]:
        cost = total(costs)
        text = amount_text(cost, lambda value: f"{value:,.1f} ps") + _share(len(costs), len(rows))
        yield Number("partition-seconds without a consumer", text, cost.known)
    yield from _availability(story, [stop for row in rows for stop in row.stops])
    if again := [row.duplicates for row in rows if row.duplicates is not None]:
        records = total(again)
        text = amount_text(records, lambda value: f"{value:,.0f}")
        yield Number("records processed again", text, records.known)


def _share(told: int, rows: int) -> str:
    """`` in N of M rebalances``, if the sources do not tell the number for all rebalances."""
    return "" if told == rows else f" in {told} of {rows} rebalances"


def _cost(row: Rebalance) -> Amount | None:
    """The partition-seconds of a rebalance; 0 if all members told that no partition stopped."""
    return Amount(0.0, Known.MEASURED) if row.covered and not row.stops else row.cost


def _availability(story: Story, stops: list[Stop]) -> Iterator[Number]:
    """The partition that stood still for the largest share of the time."""
    stopped: defaultdict[str, float] = defaultdict(float)
    for stop in stops:
        stopped[stop.partition] += stop.seconds
    if not stopped or _span(story) <= 0:
        return
    partition, seconds = max(stopped.items(), key=lambda each: each[1])
    known = weakest({stop.known for stop in stops if stop.partition == partition})
    sign = {Known.BOUNDED: "≥ ", Known.ASSUMED: "~ "}.get(known, "")
    share = max(0.0, 1.0 - seconds / _span(story))
    yield Number("lowest availability", f"{partition}: {sign}{share:.2%}", known)


def _moves(story: Story) -> Iterator[Number]:
    moved = [row.moved for row in story.rebalances if row.moved is not None]
    needless = [row.needless for row in story.rebalances if row.needless is not None]
    if moved:
        fewest = f", fewest possible {sum(moved) - sum(needless):,}" if needless else ""
        yield Number("partitions moved", f"{sum(moved):,}{fewest}", Known.MEASURED)


def _worst(story: Story) -> Iterator[Number]:
    """The member that most rebalances name, if more than one names this member."""
    named = Counter(text for row in story.rebalances if (text := member_text(row)))
    for member, count in named.most_common(1):
        if count > 1:
            text = f"{member} in {count} of {len(story.rebalances)}"
            yield Number("named most often", text, Known.MEASURED)


def _span(story: Story) -> float:
    if story.first is None or story.last is None:
        return 0.0
    return max(0.0, story.last - story.first)
