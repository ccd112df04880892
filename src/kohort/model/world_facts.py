"""Facts of the surroundings of a group: topics, faults, policies, deferrals.

In: nothing. Out: values that a broker records when it creates topics, the lab when it injects
faults, and a leader with a policy that waits for lost members. Checks need them, since they decide
which promises hold. Must not know: readers of histories.
"""

from __future__ import annotations

from kohort.model.ids import GroupId, MemberId, ProtocolName
from kohort.model.instants import Millis
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class WorldFact:
    """Base of the facts of the surroundings."""


@value(frozen=True, slots=True, kw_only=True)
class GroupWorldFact(WorldFact):
    """Base of the facts of the surroundings that concern one group."""

    group_id: GroupId


@value(frozen=True, slots=True, kw_only=True)
class TopicSized(WorldFact):
    """A topic has this many partitions from now on; 0: the topic was deleted."""

    topic: str
    partitions: int


@value(frozen=True, slots=True, kw_only=True)
class FaultBegan(WorldFact):
    """A fault was injected; ``target`` names a process, a link or a disk."""

    name: str
    target: str


@value(frozen=True, slots=True, kw_only=True)
class FaultsHealed(GroupWorldFact):
    """No fault touches these sources any more; their group must become stable and stay so."""

    core: tuple[str, ...]


@value(frozen=True, slots=True, kw_only=True)
class HistoryCalmed(GroupWorldFact):
    """The history ends in a calm state: all expected events have occurred."""


@value(frozen=True, slots=True, kw_only=True)
class PolicyDeclared(WorldFact):
    """The promises of a group's policy under a protocol name, with their limits.

    ``promises`` are names in ``kohort.history.promises``. The fact replaces earlier declarations
    of the same protocol name.
    """

    protocol_name: ProtocolName
    promises: tuple[str, ...]
    deferral_ms: Millis = Millis(0)
    moves_per_step: int = 0
    step_interval_ms: Millis = Millis(0)


@value(frozen=True, slots=True, kw_only=True)
class GroupDescribed(GroupWorldFact):
    """The coordinator answered ListGroups and DescribeGroups; None: the group does not exist.

    ``assignments`` names all members, with empty bytes for members without an assignment.
    """

    listed_state: str | None
    state: str | None
    protocol_name: ProtocolName
    assignments: tuple[tuple[MemberId, bytes], ...] = ()
