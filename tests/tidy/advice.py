"""When to use the settings of waits, limits of moves and copies; for the settings page."""

from __future__ import annotations

from collections.abc import Iterator

ADVICE: dict[str, tuple[str, str]] = {
    "group.instance.id": (
        "each process has a stable name, and a restart ends within `session.timeout.ms`",
        "processes come and go: each lost process then costs a whole session",
    ),
    "scheduled.rebalance.max.delay.ms": (
        "a move costs more than half a restart (state, caches), and members leave before they "
        "restart; a little more than the slowest restart",
        "members start to read at once, or are scaled down: the partitions are idle for the wait",
    ),
    "kohort.move.cost.ms": (
        "you know the time until a new owner reads, but not how long restarts take: with the wait "
        "`auto`, each absence costs at most twice the least possible",
        "the leader changes often: it learns from the absences that it saw itself",
    ),
    "kohort.member.identity": (
        "several members restart at the same time, and each shall get its own partitions again; "
        "`host` in Kubernetes",
        "there is no wait: it has no other effect",
    ),
    "kohort.max.moves.per.round": (
        "many partitions move for balance at once, and one long stop is worse than several short "
        "ones",
        "the sum counts: the same moves take more rebalances",
    ),
    "kohort.moves.interval.ms": (
        "each step needs time to settle, for example to fill caches",
        "balance must come soon: the group stays unbalanced between the steps",
    ),
    "kohort.stateful.topics": (
        "the new owner must restore state that every process can restore, and stops are announced "
        "with `drain()`",
        "consumers have no state: each move then takes two further rebalances for nothing",
    ),
    "kohort.handover.timeout.ms": (
        "longer than the longest restore; lower if a member that never gets ready must not hold "
        "balance up",
        "no topic has state",
    ),
    "kohort.standby.replicas": (
        "a process may die without notice, and a restore takes longer than a session",
        "a second copy of the state is too dear, or the group shall be converted to KIP-848",
    ),
    "kohort.max.group.record.bytes": (
        "the brokers' `message.max.bytes` is not the default: give the same value",
        "the brokers have the default",
    ),
}
"""For each setting: use it when; leave it when."""


def advice_table() -> Iterator[str]:
    """The lines of the table."""
    yield "| setting | use it when | leave it when |"
    yield "|---|---|---|"
    for name, (use, leave) in ADVICE.items():
        yield f"| `{name}` | {use} | {leave} |"
