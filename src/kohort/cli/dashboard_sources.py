"""The sources of ``kohort dashboard``: a live cluster, or files that may grow.

In: settings of clients, paths. Out: records, looks and explained groups for a board. Must not know:
pages.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.cli.explain.evidence import read_sources, remarks_of
from kohort.cli.explain.offsets_topic import keep_following, read_offsets
from kohort.cli.groups.choice import Groups
from kohort.cli.groups.watch import Look, look_at
from kohort.client.admin import Admin
from kohort.dashboard.board import Board, Seen, SeenMember
from kohort.explain.deployments import Deployment
from kohort.explain.evidence import Evidence
from kohort.explain.explaining import Explainer
from kohort.history.fewest_moves import fewest_moves
from kohort.model.errors import ConfigError, KohortError

_PACE: Final = 10
"""Files are read again after this many times the length of the last reading at the earliest."""


def follow_records(board: Board, settings: Mapping[str, object], ended: threading.Event) -> None:
    """Feed the board with the offsets topic, until the end; failures are remarks."""

    def failed(error: KohortError) -> None:
        board.remark("records", f"owners and rebalances are not known: {error}; trying again")

    keep_following(
        settings,
        board.feed,
        lambda: board.remark("records", ""),
        failed,
        ended=ended,
        started=board.restart,
    )


@contextmanager
def in_threads(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run works in threads of their own; they get an event that is set at the end of the block."""
    ended = threading.Event()
    threads = [threading.Thread(target=work, args=(ended,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def look_often(
    board: Board,
    settings: Mapping[str, object],
    groups: Groups,
    interval: float,
    ended: threading.Event,
) -> None:
    """Look at states, members and lag again and again; failures are remarks."""
    with Admin(settings) as admin:
        while not ended.is_set():
            try:
                looks = look_at(admin, groups)
            except KohortError as error:
                board.remark("looks", f"the brokers do not answer: {error}; trying again")
            else:
                board.looked([_seen(look) for look in looks], time.time())
                board.remark("looks", "")
            ended.wait(interval)


def _seen(look: Look) -> Seen:
    group, lags = look.group, look.lags
    return Seen(
        group=group.group_id,
        state=group.state,
        protocol=group.protocol_name,
        members=tuple(
            SeenMember(
                member=member.member_id,
                instance=member.group_instance_id or "",
                client=member.client_id,
                host=member.client_host,
                partitions=len(member.partitions or ()),
                lag=lags[member.member_id],
            )
            for member in group.members
        ),
        lag=look.lag,
        behind=frozenset(row.partition for row in look.rows if row.lag),
    )


def deployment_in_cluster(settings: Mapping[str, object], group: str) -> Deployment:
    """The deployment of a group, from the offsets topic as it is now.

    Raises:
        ConfigError: the evidence is too thin.
    """
    evidence = Evidence(fewest_moves)
    read_offsets(settings, (group,), evidence)
    return evidence.deployment(group)


class FileSource:
    """Logs and histories, and those in folders."""

    def __init__(self, board: Board, paths: Sequence[Path]) -> None:
        self._board = board
        self._paths = paths
        self._state: list[tuple[Path, int, int]] = []

    def read(self) -> None:
        """Read all files.

        Raises:
            ConfigError: one cannot be read, or there is none.
        """
        self._state = self._present()
        if not self._state:
            raise ConfigError(f"no file in {', '.join(map(str, self._paths))}")
        explainer = Explainer(fewest_moves)
        logs = read_sources([path for path, *_ in self._state], None, (), explainer)
        self._board.show(explainer.finish())
        self._board.remark("files", "; ".join(remarks_of(logs, explainer)))

    def deployment(self, group: str) -> Deployment:
        """The deployment of a group; the files are read again.

        Raises:
            ConfigError: a file cannot be read, or the evidence is too thin.
        """
        evidence = Evidence(fewest_moves)
        read_sources([path for path, *_ in self._present()], None, (), evidence)
        return evidence.deployment(group)

    def follow(self, interval: float, ended: threading.Event) -> None:
        """Read the files again when one has changed, until the end."""
        wait = interval
        while not ended.wait(wait):
            wait = interval
            try:
                if self._present() == self._state:
                    continue
                begin = time.monotonic()
                self.read()
                wait = max(interval, _PACE * (time.monotonic() - begin))
            except (KohortError, OSError) as error:
                self._board.remark("files", f"not read again: {error}")

    def _present(self) -> list[tuple[Path, int, int]]:
        """The files with their sizes and times of change."""
        return [
            (path, status.st_size, status.st_mtime_ns)
            for path in self._files()
            for status in (path.stat(),)
        ]

    def _files(self) -> Iterator[Path]:
        for path in self._paths:
            if path.is_dir():
                yield from sorted(each for each in path.iterdir() if each.is_file())
            elif path.exists():
                yield path
            else:
                raise ConfigError(f"{path} is absent; name a log, a history, or a folder of them")
