"""Self-fencing: a consumer acts on its membership only while the membership is sure.

In: the next work of the application, and whether the membership is sure. Out: a verdict on the
work. Must not know: how the membership becomes sure; the member core knows.

A process that stood still (a stop signal, a collection of garbage, a loop that blocks) or that is
cut off may have lost its membership without notice. Until the coordinator answers a heartbeat, such
a process hands out no records and calls no listener about partitions that come or go. It may always
stop reading, report a loss, and commit: the coordinator itself refuses the commit of a lost
membership.
"""

from __future__ import annotations

from enum import Enum

from kohort.consumer.effects import Callback, ForApplication, RunCallback
from kohort.model.instants import Instant


class Verdict(Enum):
    """The verdict on the next work of the application."""

    DO = "do it"
    WAIT = "wait, with all work behind it, until the membership is confirmed or lost"
    TELL_LOSS = "call the listener for a loss; skip the callback if it is an assignment"


def is_sure(sure_until: Instant | None, now: Instant) -> bool:
    """Whether the membership is sure; ``sure_until`` is the member's, None without one."""
    return sure_until is not None and now < sure_until


def judge(effect: ForApplication, *, sure: bool, void_before: int, closing: bool) -> Verdict:
    """The verdict on the next work. Ask once: a moment later the verdict may differ.

    Args:
        effect: the next work.
        sure: see ``is_sure``; as of this moment.
        void_before: the core's; steps with a lower number began under a lost membership.
        closing: whether the application closes, and so does not wait.
    """
    if not isinstance(effect, RunCallback) or effect.kind is Callback.LOST:
        return Verdict.DO
    if effect.step < void_before:
        return Verdict.TELL_LOSS
    if sure:
        return Verdict.DO
    return Verdict.TELL_LOSS if closing else Verdict.WAIT
