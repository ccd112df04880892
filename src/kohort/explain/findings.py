"""A pattern in a group's story, and the words that all rules share.

In: parts of a `Story`. Out: `Finding` values, events with their places, spans as text. Must not
know: rules, files, terminals. Each finding says how its numbers are known: measured between two
lines, bounded by the lines that are there, or assumed from the defaults of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kohort.explain.amounts import Amount, Known
from kohort.explain.causes import Cause
from kohort.explain.events import Event, Kind, Place
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story
from kohort.explain.tried_advice import TRIED

_POLL_WORDS: Final = ("poll timeout", "poll.interval")
"""Parts of the reasons with which Java's and kohort's members leave."""
SIGNS: Final = {Known.BOUNDED: "≤ ", Known.ASSUMED: "~ "}
"""The sign in front of a number that was not measured."""
_TIMEOUTS_S: Final = {
    300.0: "max.poll.interval.ms, 5 min by default in Java and librdkafka",
    60.0: "the rebalance timeout of Connect, sarama, franz-go and KafkaJS by default",
    45.0: "session.timeout.ms, 45 s by default since Kafka 3.0",
    30.0: "session.timeout.ms, 30 s by default in old clients",
    10.0: "session.timeout.ms, 10 s by default before Kafka 3.0",
    6.0: "session.timeout.ms, 6 s by default in librdkafka before 1.5",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One pattern."""

    name: str
    says: str
    """One sentence or two."""
    advice: str = ""
    known: Known = Known.MEASURED
    evidence: tuple[Place, ...] = ()
    trial: str = ""
    """The name under which this advice was tried in the lab, if that is not `name`."""

    @property
    def effect(self) -> str:
        """The effect of the advice in the lab; empty if it was not tried there."""
        return TRIED.get(self.trial or self.name, "")


def tells_late_poll(text: str) -> bool:
    """Whether the text of a member's leave, or its reason, says that the member polled too late."""
    return any(words in text for words in _POLL_WORDS)


def timeout_near(seconds: float) -> str:
    """The timeout that lasts as long as this wait by default; empty if there is none."""
    for timeout, name in _TIMEOUTS_S.items():
        if timeout - 0.05 <= seconds <= timeout * 1.02 + 0.5:
            return name
    return ""


def span_text(seconds: float) -> str:
    """Seconds for people: ``2 ms``, ``9.8 s``, ``12 min``, ``4.5 h``, ``3.0 days``."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 600:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    if minutes < 180:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 2_880 else f"{minutes / 1_440:,.1f} days"


def often(count: int) -> str:
    """``once`` or ``7 times``."""
    return "once" if count == 1 else f"{count:,} times"


def repeated(count: int) -> str:
    """``, 7 times`` after a verb; empty for one time."""
    return f", {often(count)}" if count > 1 else ""


def cause_text(each: Rebalance) -> str:
    """The cause; ``(likely)`` follows a cause that the source does not tell."""
    likely = not each.certain and each.cause is not Cause.UNTOLD
    return each.cause.value + " (likely)" * likely


def member_text(each: Rebalance) -> str:
    """The member of a rebalance, with the address of its client if that is known."""
    who, host = each.instance or each.member, each.host.lstrip("/")
    return f"{who} at {host}" if who and host else who


def waited_text(each: Rebalance) -> str:
    """The members that the coordinator waited for; ``(likely)`` if that is not measured.

    If a round ended in the moment in which a member left, it likely waited for that member.
    """
    if not each.waited:
        return ""
    first, others = each.waited[0], len(each.waited) - 1
    more = f" and {others} more" * (others > 0)
    likely = " (likely)" * (first.known is not Known.MEASURED)
    return f"{first.member}{more} {first.ending.value}{likely}"


def rebalance_text(each: Rebalance) -> str:
    """One line about a rebalance: its cause, its member, its waits and its costs."""
    who = member_text(each)
    number = "a rebalance" if each.generation is None else f"generation {each.generation}"
    stopped, cost, again = costs_text(each)
    parts = (
        f"{number}: {cause_text(each)}" + (f": {who}" if who else ""),
        f"«{each.client_reason}»" if each.client_reason else "",
        "" if each.join_s is None else f"waited {span_text(each.join_s)} for members",
        f"waited for: {waited_text(each)}" if each.waited else "",
        "" if each.leader_s is None else f"{span_text(each.leader_s)} for the leader",
        "" if each.members is None else f"members {each.members}",
        "" if each.moved is None else f"moved {each.moved}, needlessly {each.needless or 0}",
        f"stopped {stopped}" if stopped else "",
        f"cost {cost}" if cost else "",
        f"again {again}" if again and again != "0" else "",
    )
    return "; ".join(part for part in parts if part)


REBALANCE_COLUMNS: Final = (
    *("Generation", "Because", "Member", "Join", "Waited for", "Leader", "Members"),
    *("Moved", "Needless", "Stopped", "Cost", "Again"),
)


def rebalance_cells(each: Rebalance) -> tuple[str, ...]:
    """The row of a rebalance under `REBALANCE_COLUMNS`; unknown values are empty."""
    because = cause_text(each) + (f": {each.client_reason}" if each.client_reason else "")
    numbers = (each.members, each.moved, each.needless)
    members, moved, needless = ("" if number is None else str(number) for number in numbers)
    return (
        "" if each.generation is None else str(each.generation),
        because,
        member_text(each),
        "" if each.join_s is None else span_text(each.join_s),
        waited_text(each),
        "" if each.leader_s is None else span_text(each.leader_s),
        *(members, moved, needless),
        *costs_text(each),
    )


def costs_text(rebalance: Rebalance) -> tuple[str, str, str]:
    """The longest stop, the partition-seconds, and the records that were processed again.

    A bound has ``≤`` in front of it, an assumption ``~``. Unknown values are empty.
    """
    return (
        amount_text(rebalance.dead, span_text),
        amount_text(rebalance.cost, lambda cost: f"{cost:,.1f} ps"),
        amount_text(rebalance.duplicates, lambda count: f"{count:,.0f}"),
    )


def amount_text(amount: Amount | None, words: Callable[[float], str]) -> str:
    """A number with the sign of the way in which the number is known; empty for None."""
    if amount is None:
        return ""
    return SIGNS.get(amount.known, "") + words(amount.value)


def events_of(story: Story, *kinds: Kind) -> list[Event]:
    """The first events of these kinds, kind by kind."""
    return [event for kind in kinds for event in story.examples.get(kind, [])]


def places_of(told: Iterable[Event | Rebalance]) -> tuple[Place, ...]:
    """The first three places, as evidence; several events or rebalances may come from one line."""
    return tuple(dict.fromkeys(each.place for each in told))[:3]


def rest_between(first: Rebalance, second: Rebalance) -> float | None:
    """Seconds of rest between two rebalances; None if unknown.

    The offsets topic does not tell when a rebalance began. With it, the rest includes the second
    rebalance.
    """
    begun = second.began if second.began is not None else second.ended
    if first.ended is None or begun is None or begun < first.ended:
        return None
    return begun - first.ended
