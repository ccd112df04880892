"""The deployment in the evidence: members, partitions, settings, times, and the events to replay.

In: the lives and the story of one group. Out: a `Deployment`. Each figure says how it is known:
measured, bounded, or assumed from a default of Kafka. Must not know: files, the lab, policies.

A process that ended and came back is one pod: its next life has the same instance id, or the same
client id. If several processes share a client id, the pod that ended first comes back first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Final

from kohort.explain.amounts import Amount, Known, total, weakest
from kohort.explain.explaining import Explained
from kohort.explain.figures import Figure, assumed_figure, partitions_of_group, settings_of
from kohort.explain.findings import span_text
from kohort.explain.lives import End, Life, Lives
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story
from kohort.model.errors import ConfigError

MOST_REPLAYED: Final = 60
"""The largest number of replayed events: the last ones."""
_BACK_S: Final = 900.0
"""A process that is away for longer is another pod."""
_PAUSED_S: Final = 5.0
"""A client that expired and came back within this time was paused, not dead."""
_TOGETHER_S: Final = 15.0
"""Processes that start within this time after one another started as one deployment."""
_WAITED_S: Final = 8.0
"""A longer wait for members to join comes from a member that did not poll."""
_CLOSING_S: Final = 60.0
"""The members of a group that is shut down end within this time."""
_RESTART_S: Final = 10.0
_OTHER: Final = "other 1"


class What(StrEnum):
    """The kind of an event, as the middle of a sentence about a member."""

    STOPPED = "ended in order"
    KILLED = "died"
    PAUSED = "was paused"
    SLOW = "did not poll"
    STARTED = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An event of a member. Times in seconds."""

    what: What
    at: float
    pod: str
    for_s: float | None = None
    """The absence, the pause, or the time without a poll; None: for ever."""
    known: Known = Known.MEASURED
    """How ``for_s`` is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A group as the evidence shows it."""

    group: str
    figures: Mapping[str, Figure]
    """By name; times in milliseconds."""
    pods: tuple[str, ...]
    """The members that were there at the beginning; the first one leads."""
    later: tuple[str, ...]
    """The members that only an event starts."""
    topics: tuple[tuple[str, int], ...]
    incidents: tuple[Incident, ...]
    begins: bool = False
    """Whether the evidence is the start of the whole group."""
    notes: tuple[str, ...] = ()
    rebalances: int = 0
    """Rebalances in the evidence, from the first replayed event on."""
    dead: Amount | None = None
    """Their cost in partition-seconds, as far as the evidence tells it."""

    def number(self, name: str) -> float:
        """A figure that is a number."""
        return float(self.figures[name].value)

    def text(self, name: str) -> str:
        """A figure that is a word."""
        return str(self.figures[name].value)


@dataclass(slots=True)
class _Pod:
    """The lives of one process, one after the other."""

    name: str
    lives: list[Life] = field(default_factory=list)


def deployment_of(explained: Explained, lives: Lives) -> Deployment:
    """The deployment of a group.

    Raises:
        ConfigError: the evidence has no rebalance or no member of the group.
    """
    story = explained.story
    name = story.group or "that the log does not name"
    found = [life for life in lives.lives.values() if life.joined]
    known = lives.counts or [r.members for r in story.rebalances if r.members]
    _check_evidence(name, story, named=bool(found or known))
    figures = settings_of(story.rebalances, lives, story.versions)
    session_s = float(figures["session.timeout.ms"].value) / 1_000
    pods = _pods_of(found, session_s)
    rows = list(story.rebalances)
    from_start = rows[0].before == 0 or rows[0].generation in {0, 1}
    anonymous = _anonymous(lives, pods, story.rebalances)
    waits = _waits(rows, pods, anonymous, figures)
    if waits and not anonymous and waits[0].pod == _OTHER:
        anonymous = [_OTHER]
    first = _first_pods(pods, from_start=from_start, others=bool(anonymous))
    incidents = sorted(_incidents(pods, first, session_s, figures), key=lambda i: i.at)
    incidents += waits
    incidents.sort(key=lambda i: i.at)
    incidents, ended = _without_end(incidents, len(pods) + len(anonymous))
    begins = from_start and not incidents
    if begins:
        incidents = [_start(pod) for pod in first]
    notes = ["the end of the whole group is not replayed"] * ended
    if len(incidents) > MOST_REPLAYED:
        notes.append(f"only the last {MOST_REPLAYED} of {len(incidents)} events are replayed")
        incidents = incidents[-MOST_REPLAYED:]
    if not incidents:
        raise ConfigError(
            f"the evidence does not tell why group {name} rebalanced: no member came, went or was "
            "late; add the broker's log of that time"
        )
    since = incidents[0].at - 1
    replayed = [r for r in rows if r.ended is not None and r.ended >= since]
    at_start = [*(p.name for p in first), *anonymous]
    later = tuple(pod.name for pod in pods if pod not in first)
    partitions = partitions_of_group(lives, story.rebalances, len(at_start))
    members = Figure(
        value=len(at_start),
        known=Known.MEASURED if known else Known.BOUNDED,
        source="members at the beginning of the evidence"
        + (f", {len(anonymous)} of them without a name" if anonymous else ""),
    )
    figures |= {"members": members, "partitions": partitions}
    figures["restart.ms"] = _restart(incidents)
    return Deployment(
        group=story.group,
        figures=figures,
        pods=tuple(at_start),
        later=later,
        topics=_topics(lives, partitions),
        incidents=tuple(incidents),
        begins=begins,
        notes=tuple(notes),
        rebalances=len(replayed),
        dead=_total_cost(replayed),
    )


def _check_evidence(name: str, story: Story, *, named: bool) -> None:
    """Raise ConfigError if nothing can be replayed."""
    if not story.total:
        raise ConfigError(
            f"group {name} has no rebalance in the evidence, so that nothing can be replayed; add "
            "the logs or the offsets topic of a time with a rebalance"
        )
    if not named:
        raise ConfigError(
            f"the evidence names no member of group {name}; add the broker's log or "
            "--bootstrap-server, which tell the members"
        )


# -- pods and their events ------------------------------------------------------------------------


def _stopped_at(life: Life, session_s: float) -> float | None:
    """When the process of a life stopped its work, as near as the evidence says."""
    if life.gone is None:
        return None
    if life.end in {End.EXPIRED, End.GONE}:
        least = life.gone - session_s
        if life.end is End.EXPIRED:
            return max(least, life.seen or least)
        silent = life.seen is not None and life.gone - life.seen > session_s / 2
        return max(least, life.seen or least) if silent else life.gone
    if life.end is End.REPLACED:
        return life.seen if life.seen is not None else life.gone - _RESTART_S
    return life.gone


def _pods_of(lives: Sequence[Life], session_s: float) -> list[_Pod]:
    """The pods: lives that follow one another, under one instance id or client id."""
    pods: list[_Pod] = []
    order = sorted(lives, key=lambda life: (life.came is not None, life.came or 0.0))
    for life in order:
        candidates = [
            (down, pod)
            for pod in pods
            if _same_pod(pod.lives[-1], life)
            and (down := _stopped_at(pod.lives[-1], session_s)) is not None
            and life.came is not None
            and down <= life.came + 0.001
            and life.came - down <= _BACK_S
        ]
        if candidates:
            min(candidates, key=lambda each: each[0])[1].lives.append(life)
        else:
            pods.append(_Pod(_pod_name(life, len(pods)), [life]))
    names = Counter(pod.name for pod in pods)
    for number, pod in enumerate(pods):
        if names[pod.name] > 1:
            pod.name = f"{pod.name} #{number + 1}"
    return pods


def _same_pod(before: Life, after: Life) -> bool:
    if before.instance or after.instance:
        return before.instance == after.instance
    return bool(after.client) and before.client == after.client


def _pod_name(life: Life, number: int) -> str:
    return life.instance or life.client or f"member {number + 1}"


def _first_pods(pods: Sequence[_Pod], *, from_start: bool, others: bool) -> list[_Pod]:
    """The pods at the beginning: those that were there, and those that started together.

    Args:
        pods: all of them.
        from_start: the evidence has the first generation of the group.
        others: there were members that no source names.
    """
    found = [pod for pod in pods if pod.lives[0].came is None]
    if (found or others) and not from_start:
        return found
    lives = [life for pod in pods for life in pod.lives]
    gone = min((life.gone for life in lives if life.gone is not None), default=None)
    latest: float | None = None
    for pod in pods:
        came = pod.lives[0].came
        if came is None:
            continue
        if (gone is not None and came >= gone) or (
            latest is not None and came - latest > _TOGETHER_S
        ):
            break
        latest = came
        found.append(pod)
    return found


def _anonymous(lives: Lives, pods: Sequence[_Pod], rebalances: Iterable[Rebalance]) -> list[str]:
    """Names for the members that a generation counts and that no source names."""
    counts = list(lives.counts) or [
        (r.ended, r.members) for r in rebalances if r.members and r.ended is not None
    ]
    every = [life for pod in pods for life in pod.lives]
    missing = 0
    for at, members in counts:
        alive = sum(
            (life.came is None or life.came <= at) and (life.gone is None or life.gone > at)
            for life in every
        )
        missing = max(missing, members - alive)
    return [f"other {number + 1}" for number in range(missing)]


def _incidents(
    pods: Sequence[_Pod],
    first: Sequence[_Pod],
    session_s: float,
    figures: Mapping[str, Figure],
) -> Iterable[Incident]:
    poll_s = float(figures["max.poll.interval.ms"].value) / 1_000
    for pod in pods:
        if pod not in first:
            yield _start(pod)
        for place, life in enumerate(pod.lives):
            if life.gone is None:
                continue
            after = pod.lives[place + 1] if place + 1 < len(pod.lives) else None
            yield _ending(pod.name, life, after, session_s, poll_s)


def _without_end(incidents: list[Incident], pods: int) -> tuple[list[Incident], bool]:
    """The events without those of the group's end, and whether the group ended."""
    last = [i for i in incidents if i.what is What.STOPPED and i.for_s is None]
    if len(last) < pods or not last:
        return incidents, False
    end = max(i.at for i in last)
    closing = [i for i in last if end - i.at <= _CLOSING_S]
    return [i for i in incidents if i not in closing], True


def _start(pod: _Pod) -> Incident:
    return Incident(what=What.STARTED, at=pod.lives[0].came or 0.0, pod=pod.name)


def _ending(pod: str, life: Life, after: Life | None, session_s: float, poll_s: float) -> Incident:
    """The event that ended a life; ``for_s`` is the time until the next life began."""
    down = _stopped_at(life, session_s) or 0.0
    back = None if after is None or after.came is None else max(0.0, after.came - down)
    gone = life.gone or down
    if life.end is End.LATE:
        late = poll_s if back is None else poll_s + back
        known = Known.BOUNDED if back is None else Known.MEASURED
        return Incident(what=What.SLOW, at=gone - poll_s, pod=pod, for_s=late, known=known)
    if life.end is End.EXPIRED:
        soon = after is not None and after.came is not None and 0 <= after.came - gone <= _PAUSED_S
        what = What.PAUSED if soon else What.KILLED
        return Incident(what=what, at=down, pod=pod, for_s=back, known=Known.BOUNDED)
    if life.end is End.REPLACED:
        known = Known.ASSUMED if life.seen is None else Known.BOUNDED
        return Incident(what=What.STOPPED, at=down, pod=pod, for_s=back, known=known)
    if life.end is End.KILLED:
        return Incident(what=What.KILLED, at=down, pod=pod, for_s=back)
    if life.end is End.GONE and down < gone:
        return Incident(what=What.KILLED, at=down, pod=pod, for_s=back, known=Known.BOUNDED)
    known = Known.BOUNDED if life.end is End.GONE else Known.MEASURED
    return Incident(what=What.STOPPED, at=down, pod=pod, for_s=back, known=known)


def _waits(
    rebalances: Iterable[Rebalance],
    pods: Sequence[_Pod],
    anonymous: Sequence[str],
    figures: Mapping[str, Figure],
) -> list[Incident]:
    """Events of busy members: a long join phase for which no source names the late member."""
    poll_s = float(figures["max.poll.interval.ms"].value) / 1_000
    every = [life for pod in pods for life in pod.lives]
    found = []
    for row in rebalances:
        if row.join_s is None or row.join_s < _WAITED_S or row.began is None:
            continue
        until = row.began + row.join_s + 1
        if any(_removed(life, row.began, until) for life in every):
            continue  # the coordinator waited for that member
        busy = next(
            (
                pod.name
                for pod in pods
                if any(
                    (life.came is None or life.came < row.began)
                    and (life.gone is None or life.gone > row.began)
                    and life.member != row.member
                    for life in pod.lives
                )
            ),
            anonymous[0] if anonymous else _OTHER,
        )
        whole = row.join_s >= 0.98 * poll_s
        for_s = poll_s + _RESTART_S if whole else row.join_s
        known = Known.ASSUMED if whole else Known.BOUNDED
        found.append(
            Incident(what=What.SLOW, at=row.began - 0.2, pod=busy, for_s=for_s, known=known)
        )
    return found


def _removed(life: Life, begin: float, end: float) -> bool:
    """Whether the coordinator removed this member within the time, because it was silent."""
    silent = life.end in {End.EXPIRED, End.GONE, End.LATE}
    before = life.came is None or life.came < begin
    return silent and before and life.gone is not None and begin <= life.gone <= end


def _total_cost(rebalances: Sequence[Rebalance]) -> Amount | None:
    """The sum of the costs of rebalances; None if one of them is unknown."""
    costs = [r.cost for r in rebalances]
    known = [cost for cost in costs if cost is not None]
    if not known or len(known) < len(costs):
        return None
    return total(known)


def _restart(incidents: Iterable[Incident]) -> Figure:
    away = [i for i in incidents if i.what in {What.STOPPED, What.KILLED} and i.for_s is not None]
    if not away:
        return assumed_figure(round(_RESTART_S * 1_000), "no process came back")
    seconds = [i.for_s for i in away if i.for_s is not None]
    return Figure(
        value=round(1_000 * median(seconds)),
        known=weakest({i.known for i in away}),
        source=f"{len(away)} restarts, {span_text(min(seconds))} to {span_text(max(seconds))}"
        if len(away) > 1
        else "1 restart",
    )


def _topics(lives: Lives, partitions: Figure) -> tuple[tuple[str, int], ...]:
    if lives.topics:
        return tuple(sorted(lives.topics.items()))
    return (("topic", max(1, int(float(partitions.value)))),)
