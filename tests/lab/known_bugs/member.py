"""Known bugs of members and consumers."""

from __future__ import annotations

from typing import Any

from tests.lab.known_bugs import scenarios
from tests.lab.known_bugs.known_bug import KnownBug, Patch

from kohort.consumer.events import CallbackDone
from kohort.engine.commit_requests import CommitRequests
from kohort.engine.coordinator_lookup import CoordinatorLookup
from kohort.lab.application import Consuming
from kohort.member import joining
from kohort.member.events import SubscriptionChanged
from kohort.member.member_data import MemberData
from kohort.model.errors import ErrorCode
from kohort.model.instants import Instant


def _any_refused_commit_makes_the_member_join_again(patch: Patch) -> None:
    worth = CommitRequests._worth_repeating

    def rejoins(self: CommitRequests, commit: Any, refusal: Any) -> bool:
        self._feed(SubscriptionChanged(reason="a commit was refused"))
        return worth(self, commit, refusal)

    patch.setattr(CommitRequests, "_worth_repeating", rejoins)


def _the_coordinator_is_not_looked_up_again(patch: Patch) -> None:
    forget = CoordinatorLookup.forget

    def for_good(self: CoordinatorLookup, now: Any) -> None:
        forget(self, now)
        self.asking = True  # the lookup waits for an answer that never comes

    patch.setattr(CoordinatorLookup, "forget", for_good)


def _fetching_goes_on_until_the_callback(patch: Patch) -> None:
    forget = Consuming._forget
    called_back = Consuming._called_back

    def later(self: Consuming, done: CallbackDone, told: dict[str, Any]) -> None:
        self._take_records()
        forget(self, frozenset(told["partitions"]) if told["kind"] != "assigned" else frozenset())
        called_back(self, done, told)

    patch.setattr(Consuming, "_forget", lambda self, partitions: None)
    patch.setattr(Consuming, "_called_back", later)


def _a_missed_sync_costs_the_partitions(patch: Patch) -> None:
    """The member resets its claims, and loses all its partitions."""
    refused = joining._sync_refused

    def resets(data: MemberData, error: ErrorCode, now: Instant) -> None:
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            data.lose(now, "the sync came too late", keep_member_id=True)
            joining._again(data, now)
        else:
            refused(data, error, now)

    patch.setattr(joining, "_sync_refused", resets)


MEMBER = (
    KnownBug(
        name="any refused commit makes the member join again",
        incident="confluentinc/librdkafka #4059",
        breaks=frozenset({49}),
        plant=_any_refused_commit_makes_the_member_join_again,
        scenario=scenarios.busy_committers,
        seeds=20,
    ),
    KnownBug(
        name="the coordinator is not looked up again",
        incident="dpkp/kafka-python #1310",
        breaks=frozenset({48}),
        plant=_the_coordinator_is_not_looked_up_again,
        scenario=scenarios.outages,
        seeds=2,
    ),
    KnownBug(
        name="records are delivered until the revocation callback ends",
        incident="KAFKA-14196",
        breaks=frozenset({42}),
        plant=_fetching_goes_on_until_the_callback,
        scenario=scenarios.flushing_churn,
        seeds=4,
    ),
    KnownBug(
        name="a member that missed a sync loses its partitions",
        incident="KAFKA-14016",
        breaks=frozenset({28}),
        plant=_a_missed_sync_costs_the_partitions,
        scenario=scenarios.missed_syncs,
        seeds=2,
    ),
)
