"""Plans for workers of Connect, made by a leader of kohort in Connect's bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kohort.embedded.connect import (
    COMPATIBLE,
    NAMES,
    ConnectAssignment,
    WorkerState,
    decode_worker_assignment,
    encode_worker_state,
)
from kohort.model.ids import GenerationId, MemberId
from kohort.model.instants import Instant
from kohort.model.join import JoinedMember
from kohort.policies.connect import Configuration
from kohort.policies.connect_groups import ConnectAssigner
from kohort.policies.losses import Moment


def joined(workers: Mapping[MemberId, WorkerState]) -> list[JoinedMember]:
    """The workers as their leader sees them."""
    return [
        JoinedMember(
            member_id=i, group_instance_id=None, metadata=encode_worker_state(state, COMPATIBLE)
        )
        for i, state in workers.items()
    ]


def decided(
    leader: MemberId, workers: Mapping[MemberId, WorkerState], configuration: Configuration
) -> dict[MemberId, ConnectAssignment]:
    """The assignments, as workers of Connect read them."""
    moment = Moment(generation_id=GenerationId(9), now=Instant(0), leader_id=leader)
    assigner = ConnectAssigner(lambda: configuration)
    plan = assigner.assign(NAMES[COMPATIBLE], joined(workers), {}, moment)
    return {
        i: replace(decode_worker_assignment(data), detail=None)
        for i, data in plan.assignments.items()
    }
