"""What the world around a group did or promised: topics, faults, policies, deferrals.

Recorded by whoever knows: a broker that makes topics, the lab that injects faults, the leader whose
policy waits for a lost member. A checker needs them to know what a group may be held to. Must not
know: who reads.
"""

from __future__ import annotations

from typing import TypeAlias

from kohort.model.ids import GenerationId, GroupId, MemberId, ProtocolName, TopicPartition
from kohort.model.instants import Instant, Millis
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class TopicSized:
    """A topic has this many partitions from now on; 0: it is gone."""

    topic: str
    partitions: int


@value(frozen=True, slots=True, kw_only=True)
class FaultBegan:
    """Something was broken on purpose; ``target`` names a process, a link or a disk."""

    name: str
    target: str


@value(frozen=True, slots=True, kw_only=True)
class FaultsHealed:
    """No fault touches these sources any more; what they form must become stable, and stay."""

    group_id: GroupId
    core: tuple[str, ...]


@value(frozen=True, slots=True, kw_only=True)
class HistoryCalmed:
    """The history ends here on purpose, in a calm world: what was to happen has happened."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class PolicyDeclared:
    """What a group's policy promises under a protocol name, with its numbers.

    ``promises`` are words of ``kohort.history.promises``; it replaces what is known of that name.
    """

    protocol_name: ProtocolName
    promises: tuple[str, ...]
    deferral_ms: Millis = Millis(0)
    moves_per_step: int = 0
    step_interval_ms: Millis = Millis(0)


@value(frozen=True, slots=True, kw_only=True)
class DeferralStarted:
    """A leader keeps the partitions of a lost member for its return until ``deadline``.

    Told again with each generation while it runs.
    """

    group_id: GroupId
    generation_id: GenerationId
    lost_member: MemberId
    partitions: tuple[TopicPartition, ...]
    deadline: Instant


@value(frozen=True, slots=True, kw_only=True)
class DeferralEnded:
    """The wait is over: the lost member came back as ``returned_as``, or nobody did (None)."""

    group_id: GroupId
    generation_id: GenerationId
    lost_member: MemberId
    returned_as: MemberId | None


WorldFact: TypeAlias = (
    TopicSized
    | FaultBegan
    | FaultsHealed
    | HistoryCalmed
    | PolicyDeclared
    | DeferralStarted
    | DeferralEnded
)
