"""Self-fencing: a consumer acts on its place only while that is surely its own.

In comes what the application is to do and whether the place is sure; out goes whether it may be
done now. A process that stood still (a stop signal, a collection of garbage, a loop that blocks)
or is cut off may have lost its place without having been told: until a heartbeat is answered it
hands out no records and tells nobody of partitions that come or go. What it may always do: stop
reading, hear that partitions are lost, commit, for a commit is refused by the coordinator itself
when the place is gone. Must not know: how certainty comes about (that is the member's).
"""

from __future__ import annotations

from kohort.consumer.effects import Callback, ForApplication, RunCallback
from kohort.model.instants import Instant


def is_sure(sure_until: Instant | None, now: Instant) -> bool:
    """Whether the place is surely held; ``sure_until`` is the member's, None without a place."""
    return sure_until is not None and now < sure_until


def must_wait(effect: ForApplication, *, sure: bool, void_before: int) -> bool:
    """Whether this must wait, with all that is behind it, for the place to be confirmed or lost.

    Args:
        effect: what is to be done next.
        sure: see ``is_sure``; as of now, not of the last look.
        void_before: the core's; older steps are of a lost place, and are told as a loss.
    """
    return (
        not sure
        and isinstance(effect, RunCallback)
        and effect.kind is not Callback.LOST
        and effect.step >= void_before
    )
