"""``meta.properties``: whose data directory this is, and how often it was opened.

In and out: the file's text. Kafka's keys where Kafka has them; the rest is this layout's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.storage.errors import StorageError

LAYOUT_VERSION: Final = 1


@dataclass(slots=True, kw_only=True)
class Meta:
    """Identity of a data directory."""

    cluster_id: str
    node_id: int
    incarnation: int
    """How often the directory was opened before this time."""
    boot_id: str
    """The machine's boot in which the directory was last recovered; empty when not known."""

    def to_text(self) -> str:
        """The file's content."""
        return (
            f"version=1\nkohort.layout.version={LAYOUT_VERSION}\ncluster.id={self.cluster_id}\n"
            f"node.id={self.node_id}\nincarnation={self.incarnation}\nboot.id={self.boot_id}\n"
        )


def read_meta(text: str, path: str) -> Meta:
    """What ``to_text`` made.

    Raises:
        StorageError: the layout is newer than this code, or the file is not of this kind.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    values = {name.strip(): value.strip() for name, _, value in (x.partition("=") for x in lines)}
    try:
        version = int(values["kohort.layout.version"])
        if version > LAYOUT_VERSION:
            raise StorageError(
                f"{path}: layout version {version}, and this kohort knows up to {LAYOUT_VERSION}; "
                f"use a newer kohort for this data directory"
            )
        return Meta(
            cluster_id=values["cluster.id"],
            node_id=int(values["node.id"]),
            incarnation=int(values["incarnation"]),
            boot_id=values["boot.id"],
        )
    except (KeyError, ValueError) as error:
        raise StorageError(
            f"{path} is not of a kohort data directory: {error!r}; choose another directory"
        ) from error
