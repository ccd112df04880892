"""``meta.properties``: the identity of a data directory, and its number of starts.

In and out: the file's text, and the names in the directory. Must not know: files, logs. The keys
are Kafka's where Kafka has them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kohort.storage.errors import StorageError

LAYOUT_VERSION: Final = 1
META: Final = "meta.properties"
LOCK: Final = ".lock"


@dataclass(slots=True, kw_only=True)
class Meta:
    """Identity of a data directory."""

    cluster_id: str
    node_id: int
    incarnation: int
    """The number of earlier starts."""
    boot_id: str
    """The machine's boot during the last recovery; empty when it is unknown."""

    def to_text(self) -> str:
        """The file's content."""
        return (
            f"version=1\nkohort.layout.version={LAYOUT_VERSION}\ncluster.id={self.cluster_id}\n"
            f"node.id={self.node_id}\nincarnation={self.incarnation}\nboot.id={self.boot_id}\n"
        )


def read_meta(text: str, path: str) -> Meta:
    """Read the text of ``meta.properties``.

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
        what = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise StorageError(
            f"{path} is not of a kohort data directory: {what}; choose another directory"
        ) from error


def check_is_ours(names: Collection[str], path: str) -> None:
    """Return if a directory with these names is new, or was made by a broker.

    A broker that died during the first start leaves the lock and its first small files.

    Raises:
        StorageError: the directory belongs to another program.
    """
    first = (LOCK, META, "topics.json")
    others = [name for name in names if name not in first and not name.endswith(".tmp")]
    if others and META not in names:
        raise StorageError(
            f"{path} has no {META} and is not empty ({others[0]} is in it); choose an empty "
            f"directory, or one that a broker has made"
        )
