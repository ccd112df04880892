"""All rules that find patterns in a group's story, the most serious first.

In: a finished `Story`. Out: `Finding` values in the order of `_RULES`. Must not know: single rules,
files, terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kohort.explain.findings import Finding
from kohort.explain.patterns.coordinator import (
    coordinator,
    leader,
    lost_in_move,
    protocols,
    replicas_changed,
    storing,
)
from kohort.explain.patterns.group import (
    crash_loop,
    lone_member,
    restarts,
    slow_join,
    storm,
    unended,
)
from kohort.explain.patterns.listed import idle_members, listed, mixed_topics
from kohort.explain.patterns.loss import (
    did_not_join,
    empty_assignments,
    lost_partitions,
    refused_commits,
)
from kohort.explain.patterns.member import (
    expiry,
    failed_joins,
    others,
    poll_interval,
    short_session,
    static_conflict,
    too_slow,
    wrong_use,
)
from kohort.explain.patterns.normal import departure, normal_life
from kohort.explain.patterns.protocols import (
    commits_while_moving,
    mixed_assignors,
    spark_queries,
)
from kohort.explain.patterns.settings import (
    late_polls,
    only_expire,
    pod_names,
    rare_heartbeats,
    session_refused,
    short_delay,
    short_for_restart,
    short_lives,
)
from kohort.explain.stories import Story

_RULES: Final[tuple[Callable[[Story], Iterator[Finding]], ...]] = (
    static_conflict,
    storm,
    slow_join,
    unended,
    poll_interval,
    too_slow,
    lost_in_move,
    expiry,
    short_session,
    crash_loop,
    pod_names,
    short_for_restart,
    only_expire,
    restarts,
    mixed_assignors,
    commits_while_moving,
    spark_queries,
    short_delay,
    short_lives,
    session_refused,
    rare_heartbeats,
    late_polls,
    leader,
    storing,
    failed_joins,
    lone_member,
    did_not_join,
    coordinator,
    replicas_changed,
    wrong_use,
    lost_partitions,
    refused_commits,
    empty_assignments,
    others,
    protocols,
    listed,
    idle_members,
    mixed_topics,
    departure,
    normal_life,
)


def findings(story: Story) -> list[Finding]:
    """All patterns in a story, the most serious first."""
    return [found for rule in _RULES for found in rule(story)]
