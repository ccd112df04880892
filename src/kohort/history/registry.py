"""All checks by number: the only list for reports, tests and documents.

In: the classes of checks. Out: the classes in order. Must not know: histories.
"""

from __future__ import annotations

from typing import Final

from kohort.history.check import Check
from kohort.history.checks import (
    answers,
    assigning,
    deliveries,
    durability,
    generations,
    identity,
    liveness,
    moving,
    offsets,
    ownership,
    refusals,
    timing,
    waiting,
)

CHECKS: Final[tuple[type[Check], ...]] = tuple(
    sorted(
        (
            generations.GenerationRisesByOne,
            generations.ToldGenerationIsNeverReused,
            generations.OneLeaderPerGeneration,
            generations.AllAreToldTheSame,
            generations.ProtocolIsSupportedByAll,
            generations.OnePayloadPerGeneration,
            generations.FollowersAssignNothing,
            generations.LegalTransitions,
            refusals.RefusedChangesNothing,
            refusals.SizeCapHolds,
            refusals.BadInputIsHarmless,
            identity.RemovedStaysRemoved,
            identity.MemberIdsAreUnique,
            identity.OneMemberPerInstance,
            identity.ReplacedIsFenced,
            identity.StaticRejoinIsQuiet,
            identity.StaticMembersDoNotLeave,
            timing.SessionsAreKept,
            timing.NewMembersAreBounded,
            timing.PhasesAreBounded,
            timing.NobodyIsCutOffEarly,
            timing.InitialDelayIsBounded,
            timing.PendingIdsAreDropped,
            assigning.NothingIsAssignedTwice,
            assigning.HandOffIsAsked,
            assigning.LoadIsBalanced,
            moving.MovesAreMinimal,
            assigning.AssignmentIsComplete,
            assigning.NothingIsOrphaned,
            ownership.NoTwoOwners,
            ownership.SelfFencing,
            ownership.RevokeComesBeforeReassignment,
            ownership.CallbackAlgebra,
            ownership.DeliveredWhileAssigned,
            ownership.NoNeedlessRevoke,
            waiting.DeferralIsKept,
            waiting.ReturnerGetsItsOwn,
            waiting.StepsAreSmall,
            waiting.CopiesAreWarm,
            waiting.StandbysTakeOver,
            *offsets.OFFSETS,
            *deliveries.DELIVERIES,
            *durability.DURABILITY,
            *liveness.LIVENESS,
            answers.OneAnswerEach,
            answers.DescribedAsItIs,
        ),
        key=lambda check: check.number,
    )
)
"""Every check, in the order of its number."""

BY_NUMBER: Final[dict[int, type[Check]]] = {check.number: check for check in CHECKS}
