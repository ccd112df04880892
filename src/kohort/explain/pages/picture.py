"""The picture of one group as values for a page: owners of partitions, rebalances, lag over time.

In: a `Story`, or changes one after another as a live source tells them. Out: messages of plain
values for JSON; the first has the whole picture, each later one only the additions. One script
draws them, in the page of ``kohort explain`` and in the dashboard. Must not know: pages, sources,
clocks.

Times in a message are milliseconds since the picture's ``base``, so that they stay short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kohort.explain.findings import SIGNS, rebalance_cells, rebalance_text
from kohort.explain.lines.values import client_of
from kohort.explain.offsets_topic.lag import Lag
from kohort.explain.ownership import MOST_KEPT, Owned
from kohort.explain.phases import phases_of, wait_text
from kohort.explain.rebalances import Join, Rebalance
from kohort.explain.stories import MOST_REBALANCES, Story

MOST_LAGS: Final = 7_200
"""Values of the lag that are kept."""

MOST_JOINS: Final = 200
"""Members of one rebalance with their joins: the last ones."""


class Cursor(NamedTuple):
    """The part of a picture that a reader has."""

    edition: int = -1
    partitions: int = 0
    owners: int = 0
    owned: int = 0
    rebalances: int = 0
    lags: int = 0


@dataclass(slots=True, kw_only=True)
class Picture:
    """A picture that grows.

    Attributes:
        base: the time of day of millisecond 0, in seconds since 1970, or since midnight.
        dated: whether the times have dates.
        live: whether more will come. Then the end of the picture follows the reader's clock.
        rebalances: the rebalances so far, at most `MOST_REBALANCES`.
        edition: grows when old parts were dropped. Then readers need the whole picture again.
    """

    base: float
    dated: bool = True
    live: bool = False
    rebalances: list[Rebalance] = field(default_factory=list)
    edition: int = 0
    _partitions: dict[str, int] = field(default_factory=dict)
    _owners: dict[str, int] = field(default_factory=dict)
    _owned: list[tuple[int, ...]] = field(default_factory=list)
    """Partition, owner, start and end of each ownership that is over; and the time of the first
    read if it is later than the start."""
    _open: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Owner and start of the present ownership, by partition."""
    _lags: list[tuple[int, int, int | None]] = field(default_factory=list)
    """Time, records, and the age of commits in milliseconds."""
    _first: int | None = None
    _last: int = 0
    _since: int | None = None

    def owned(self, owned: Owned) -> None:
        """Add an ownership that is over."""
        times = [self._ms(owned.begin), self._ms(owned.end)]
        if owned.ready is not None and owned.ready > owned.begin:
            times.append(self._ms(owned.ready))
        self._keep(self._place(owned.partition), self._owner(owned.owner), *times)

    def now_own(self, owners: Mapping[str, str], at: float) -> None:
        """Note the present owners by partition; all other partitions have no owner."""
        moment = self._ms(at)
        for name, owner in owners.items():
            place, number = self._place(name), self._owner(owner)
            held = self._open.get(place)
            if held is not None and held[0] != number:
                self._keep(place, *held, moment)
            if held is None or held[0] != number:
                self._open[place] = number, moment
                self._known(moment, moment)
        for name, place in self._partitions.items():
            if name not in owners and (held := self._open.pop(place, None)) is not None:
                self._keep(place, *held, moment)

    def rebalanced(self, rebalances: Iterable[Rebalance]) -> None:
        """Add rebalances, in the order of their times."""
        for each in rebalances:
            self.rebalances.append(each)
            times = [at for at in (each.began, each.ended) if at is not None]
            for at in times:
                self._at(self._ms(at))
        if self.live and len(self.rebalances) > MOST_REBALANCES:
            del self.rebalances[: MOST_REBALANCES // 2]
            self.edition += 1

    def lagged(self, lag: Lag) -> None:
        """Add the lag of the group at a time."""
        at, records, age_s = lag
        self._lags.append((self._ms(at), records, None if age_s is None else round(age_s * 1_000)))
        self._at(self._ms(at))
        if len(self._lags) > MOST_LAGS:
            del self._lags[: MOST_LAGS // 2]
            self.edition += 1

    def reach(self, at: float) -> None:
        """Extend the picture up to this time at least."""
        self._at(self._ms(at))

    def message(self, had: Cursor) -> tuple[dict[str, Any], Cursor]:
        """The values that a reader with the cursor ``had`` lacks, and its next cursor."""
        whole = had.edition != self.edition
        start = Cursor() if whole else had
        first = max(0, start.rebalances - 1)  # stops are added to the last rebalance later
        names, owners = list(self._partitions), list(self._owners)
        message = {
            "whole": whole,
            "base": self.base,
            "dated": self.dated,
            "live": self.live,
            "first": self._first,
            "last": self._last,
            "since": self._since,
            "partitions": names[start.partitions :],
            "owners": [
                [name, short_name(name), client_of(name)] for name in owners[start.owners :]
            ],
            "owned": self._owned[start.owned :],
            "open": [[place, *held] for place, held in self._open.items()],
            "from": first,
            "rebalances": [self._values(each) for each in self.rebalances[first:]],
            "lag": self._lags[start.lags :],
        }
        counts = (len(names), len(owners), len(self._owned), len(self.rebalances), len(self._lags))
        return message, Cursor(self.edition, *counts)

    def _values(self, each: Rebalance) -> dict[str, Any]:
        ended = each.ended if each.ended is not None else self.base
        began = min(each.began if each.began is not None else ended, ended)
        joined = min(max(each.joined if each.joined is not None else ended, began), ended)
        return {
            "generation": each.generation,
            "cause": each.cause.value,
            "began": self._ms(began),
            "joined": self._ms(joined),
            "ended": self._ms(ended),
            "told": rebalance_text(each),
            "cells": rebalance_cells(each),
            "phases": [
                [name, self._ms(begin), self._ms(end), SIGNS.get(known, "")]
                for name, begin, end, known in phases_of(each)
            ],
            "waited": wait_text(each),
            "joins": [self._join(join) for join in each.joins[-MOST_JOINS:]],
            "unshown": max(0, len(each.joins) - MOST_JOINS),
            "moved": each.moved,
            "needless": each.needless,
        }

    def _join(self, join: Join) -> list[Any]:
        times = (join.noticed, join.asked, join.joined, join.assigned, join.gone)
        ending = "" if join.ending is None else join.ending.value
        return [join.member, *(None if at is None else self._ms(at) for at in times), ending]

    def _keep(self, place: int, owner: int, begin: int, end: int, *ready: int) -> None:
        self._owned.append((place, owner, begin, max(begin, end), *ready))
        self._known(begin, end)
        if self.live and len(self._owned) > MOST_KEPT:
            del self._owned[: MOST_KEPT // 2]
            self.edition += 1

    def _known(self, begin: int, end: int) -> None:
        self._since = begin if self._since is None else min(self._since, begin)
        self._at(begin)
        self._at(end)

    def _at(self, moment: int) -> None:
        self._first = moment if self._first is None else min(self._first, moment)
        self._last = max(self._last, moment)

    def _place(self, partition: str) -> int:
        return self._partitions.setdefault(partition, len(self._partitions))

    def _owner(self, owner: str) -> int:
        return self._owners.setdefault(owner, len(self._owners))

    def _ms(self, at: float) -> int:
        return round((at - self.base) * 1_000)


def picture_of(story: Story) -> Picture:
    """The picture of a story that ended."""
    picture = Picture(base=story.first or 0.0, dated=story.dated)
    for owned in sorted(story.owned, key=lambda owned: owned.begin):
        picture.owned(owned)
    picture.rebalanced(story.rebalances)
    for lag in story.lags:
        picture.lagged(lag)
    for at in (story.first, story.last):
        if at is not None:
            picture.reach(at)
    return picture


def short_name(owner: str) -> str:
    """The client id and the beginning of the random part of a member id."""
    client = client_of(owner)
    return f"{client} {owner[len(client) + 1 :][:4]}" if client else owner
