"""The effect of advice, as the lab measured it in a small group with the trouble.

In: the name of a finding. Out: one sentence. ``tests/lab/advice_trials.py`` makes the sentences; a
test compares them. Must not know: stories, the lab.
"""

from __future__ import annotations

from typing import Final

TRIED: Final = {
    "poll interval": (
        "in the lab (3 members, 12 partitions, eager; one batch of 70 s where "
        "max.poll.interval.ms is 60 s) 2 rebalances, 38 dead partition-seconds, longest gap"
        " 2 s; with 90 s: 0 rebalances, 0 dead partition-seconds, longest gap 0 s"
    ),
    "session shorter than pauses": (
        "in the lab (3 members, 12 partitions, eager; one pause of 12 s where "
        "session.timeout.ms is 10 s) 2 rebalances, 75 dead partition-seconds, longest gap "
        "11 s; with 45 s: 0 rebalances, 48 dead partition-seconds, longest gap 12 s"
    ),
    "deploy without static ids": (
        "in the lab (3 members, 12 partitions, eager; each process restarts in turn within "
        "3 s) 4 rebalances, 113 dead partition-seconds, longest gap 6 s; with a "
        "group.instance.id for each: 0 rebalances, 48 dead partition-seconds, longest gap 4"
        " s"
    ),
    "slow joiner": (
        "in the lab (3 members, 12 partitions, eager; one restart while another member does"
        " not poll for 40 s) 1 rebalance, 324 dead partition-seconds, longest gap 41 s; "
        "with a batch of 2 s: 2 rebalances, 55 dead partition-seconds, longest gap 5 s"
    ),
    "crash loop": (
        "in the lab (3 members, 12 partitions, eager; three crashes, each back after 5 s) 1"
        " rebalance, 1215 dead partition-seconds, longest gap 106 s; with consumers that "
        "are closed: 6 rebalances, 143 dead partition-seconds, longest gap 5 s"
    ),
    "members do not leave": (
        "in the lab (3 members, 12 partitions, eager; each process is killed in turn and "
        "back after 3 s) 3 rebalances, 1498 dead partition-seconds, longest gap 46 s; with "
        "consumers that are closed: 5 rebalances, 131 dead partition-seconds, longest gap 6"
        " s"
    ),
    "instance id of a Deployment's pod": (
        "in the lab (3 members, 12 partitions, eager; a static member ends, and a new id "
        "comes in its place after 3 s) 1 rebalance, 517 dead partition-seconds, longest gap"
        " 46 s; with the same group.instance.id again: 0 rebalances, 16 dead "
        "partition-seconds, longest gap 4 s"
    ),
    "session shorter than a restart": (
        "in the lab (3 members, 12 partitions, eager; a static member is back after 20 s "
        "where session.timeout.ms is 10 s) 2 rebalances, 98 dead partition-seconds, longest"
        " gap 16 s; with 30 s: 0 rebalances, 84 dead partition-seconds, longest gap 21 s"
    ),
    "eager and cooperative mixed": (
        "in the lab (3 members, 12 partitions, eager; each process restarts in turn within "
        "3 s, and all members give all up, as they do while one has an eager assignor) 4 "
        "rebalances, 113 dead partition-seconds, longest gap 6 s; with cooperative-sticky "
        "alone: 11 rebalances, 76 dead partition-seconds, longest gap 6 s"
    ),
    "initial delay too short": (
        "in the lab (3 members, 12 partitions, eager; three processes start 2 s apart, "
        "without an initial delay) 3 rebalances, 48 dead partition-seconds, longest gap 2 "
        "s; with 10 s: 1 rebalance, 252 dead partition-seconds, longest gap 21 s"
    ),
    "members come and go": (
        "in the lab (3 members, 12 partitions, eager; three times a member comes for half a"
        " minute) 6 rebalances, 133 dead partition-seconds, longest gap 5 s; with one that "
        "stays: 1 rebalance, 18 dead partition-seconds, longest gap 2 s"
    ),
    "heartbeats too rare": (
        "in the lab (3 members, 12 partitions, eager; one pause of 8 s, a session of 10 s, "
        "a heartbeat each 9 s) 1 rebalance, 81 dead partition-seconds, longest gap 8 s; "
        "with 3 s: 0 rebalances, 32 dead partition-seconds, longest gap 8 s"
    ),
    "polls near the limit": (
        "in the lab (3 members, 12 partitions, eager; one batch of 65 s where "
        "max.poll.interval.ms is 60 s) 2 rebalances, 37 dead partition-seconds, longest gap"
        " 2 s; with 120 s: 0 rebalances, 0 dead partition-seconds, longest gap 0 s"
    ),
    "members removed": (
        "in the lab (3 members, 12 partitions, eager; one restart while another member does"
        " not poll for 70 s, where max.poll.interval.ms is 60 s) 2 rebalances, 501 dead "
        "partition-seconds, longest gap 61 s; with a batch of 2 s: 2 rebalances, 55 dead "
        "partition-seconds, longest gap 5 s"
    ),
}
"""By the names of findings; a finding without an entry has advice that is no setting."""
