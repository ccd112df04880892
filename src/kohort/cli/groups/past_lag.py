"""The past lag of groups of a live cluster, for ``kohort explain``.

In: an explainer with commits, the address of the cluster. Out: lags in the stories. Must not know:
how a lag is computed (``kohort.explain.offsets_topic.lag``). Nothing is written, and no group is
joined.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kohort.cli.groups.reports import log_ends
from kohort.cli.output import configured, note
from kohort.client.admin import Admin
from kohort.explain.explaining import Explained, Explainer
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition


def add_lags(explainer: Explainer, explained: Sequence[Explained], bootstrap: str) -> None:
    """Add lags to the stories; without the permission to see a topic, a note tells why not."""
    try:
        with Admin(configured(bootstrap)) as admin:
            explainer.add_lags(explained, _Ends(admin).at)
    except KohortError as error:
        note(f"note: the lag of the past is not shown: {error}")


class _Ends:
    """The ends of logs at a time; deleted partitions have none."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._present: dict[TopicPartition, int] = {}
        self._gone: set[TopicPartition] = set()

    def at(self, partitions: Collection[TopicPartition], at: float) -> dict[TopicPartition, int]:
        if new := set(partitions) - self._present.keys() - self._gone:
            self._present |= log_ends(self._admin, new)
            self._gone |= new - self._present.keys()
        known = [partition for partition in partitions if partition in self._present]
        found = self._admin.list_offsets(known, round(at * 1_000))
        # No record is younger than the time: the log ended where it ends now.
        return {
            partition: offset.offset if offset.offset >= 0 else self._present[partition]
            for partition, offset in found.items()
        }
