"""Known bugs of durable state: commits, group records, recovery."""

from __future__ import annotations

from typing import Any

from tests.lab.known_bugs import scenarios
from tests.lab.known_bugs.known_bug import KnownBug, Patch
from tests.lab.known_bugs.scenarios import scenario

from kohort.coordinator import offsets
from kohort.coordinator.records import GroupRecord
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_writes import write_of
from kohort.model.errors import ErrorCode


def _commits_are_acknowledged_before_they_are_stored(patch: Patch) -> None:
    write_offsets = offsets.write_offsets

    def early(registry: Any, write: Any, *args: Any, **more: Any) -> Any:
        if isinstance(write, offsets.CommitWrite):
            answer = offsets._answer(write.event, write.errors, ErrorCode.NONE)
            registry.respond(write.event.token, answer)
        return write_offsets(registry, write, *args, **more)

    patch.setattr(offsets, "write_offsets", early)
    patch.setattr(offsets.CommitWrite, "stored", _stored_without_an_answer)


def _recovery_forgets_groups(patch: Patch) -> None:
    replay = CoordinatorEngine.replay

    def nothing(self: CoordinatorEngine, _records: Any, now: Any) -> Any:
        return replay(self, [], now)

    patch.setattr(CoordinatorEngine, "replay", nothing)


def _large_groups_do_not_fit_into_a_record(patch: Patch) -> None:
    def too_large(effect: Any, *args: Any) -> Any:
        for record in effect.records:
            if isinstance(record, GroupRecord) and record.value and len(record.value.members) > 2:
                return None
        return write_of(effect, *args)

    patch.setattr("kohort.engine.coordinator_engine.write_of", too_large)


def _stored_without_an_answer(self: Any, registry: Any, ticket: Any) -> None:
    self.group.offsets.settle(ticket, self.offsets, durable=True)


DURABILITY = (
    KnownBug(
        name="commits are acknowledged before they are stored",
        incident="seaweedfs/seaweedfs, Kafka gateway",
        breaks=frozenset({38, 39, 45}),
        plant=_commits_are_acknowledged_before_they_are_stored,
        scenario=scenarios.everybody_dies,
        seeds=8,
    ),
    KnownBug(
        name="recovery forgets groups",
        incident="redpanda-data/redpanda #3732",
        breaks=frozenset({38, 46}),
        not_by={
            13: "a coordinator that has forgotten the group answers UNKNOWN_MEMBER_ID to the "
            "replaced member, which is as harmless as being fenced",
            49: "members that join again are an event that calls for a generation; promise 46 "
            "finds that they had no need to join again",
        },
        plant=_recovery_forgets_groups,
        scenario=scenarios.everybody_dies,
        seeds=2,
    ),
    KnownBug(
        name="large groups do not fit into a record",
        incident="redpanda-data/redpanda #4327",
        breaks=frozenset({48}),
        plant=_large_groups_do_not_fit_into_a_record,
        scenario=lambda seed: scenario(seed, lambda random: [], seconds=5),
        seeds=2,
    ),
)
