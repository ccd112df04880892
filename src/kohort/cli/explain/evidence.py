"""Reads all sources that the user named: files, and the offsets topic of a live cluster.

In: paths, the address of a cluster. Out: events and records for a reader, ordered by their times.
A bar on a terminal shows the progress. Must not know: the meaning of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kohort.cli.explain.files import open_file
from kohort.cli.explain.process import (
    File,
    ReadFile,
    ReadingProcess,
    merged,
    position_of,
    worth_a_process,
)
from kohort.cli.output import configured, note
from kohort.explain.explaining import MOST_GROUPS, Explainer
from kohort.explain.told import Reader

Files: TypeAlias = Sequence[File | ReadFile]
_STEP_S: Final = 0.2
"""Seconds between two steps of the progress bar."""


def read_sources(
    files: Sequence[Path], bootstrap: str | None, groups: Collection[str], reader: Reader
) -> Files:
    """Read files, then the offsets topic; the files that were read, with their remarks.

    Args:
        files: logs and histories; ``-`` is standard input.
        bootstrap: the address of a cluster; None: only files.
        groups: of the offsets topic, only these groups; all if empty.
        reader: takes what they tell.

    Raises:
        ConfigError: a file cannot be read, or the cluster has no offsets topic.
    """
    with ExitStack() as stack:
        opened = [open_file(path, stack) for path in files]
        total, logs = sum(log.bytes for log in opened), tuple[File | ReadFile, ...](opened)
        if worth_a_process(opened):
            process = ReadingProcess(files, stack)
            reader.feed_all(process.told(_progress(total, lambda: process.position, stack)))
            logs = process.files
        else:
            advance = _progress(total, lambda: position_of(opened), stack)
            reader.feed_all(merged(opened, advance))
        if bootstrap is not None:
            # librdkafka is loaded for a live cluster only.
            from kohort.cli.explain.offsets_topic import read_offsets  # noqa: PLC0415

            if remark := read_offsets(configured(bootstrap), groups, reader, _records_bar(stack)):
                note(f"note: {remark}")
    return logs


_EMPTY: Final = " is empty"
_MOST_EMPTY: Final = 3
"""Most segments of the offsets topic are empty: more empty files share a sentence."""


def remarks_of(logs: Files, explainer: Explainer) -> Iterator[str]:
    """Sentences that a reader of the explanation must know about the files.

    The explainer has finished.
    """
    told = [remark for log in logs for remark in log.remarks()]
    empty = [remark.removesuffix(_EMPTY) for remark in told if remark.endswith(_EMPTY)]
    if len(empty) > _MOST_EMPTY:
        told = [remark for remark in told if not remark.endswith(_EMPTY)]
        told.append(f"{len(empty)} files are empty, the first one is {empty[0]}")
    yield from told
    for skew in explainer.skews:
        ahead = "ahead of" if skew.seconds > 0 else "behind"
        yield (
            f"the clock of {skew.file} is {abs(skew.seconds):.2f} s {ahead} that of "
            f"{skew.reference} (± {skew.spread:.2f} s, by {skew.count} steps of generations); its "
            "times were corrected"
        )
    for name in explainer.doubles:
        yield f"group {name} has two offsets partitions: these logs come from two clusters"
    if explainer.refused:
        yield f"{explainer.refused:,} events of groups after the first {MOST_GROUPS:,} are not used"
    if explainer.told_twice:
        yield (
            f"{explainer.told_twice:,} lines of brokers' logs are not used: a history of kohort's "
            "broker tells the same"
        )
    if explainer.dropped:
        yield (
            f"{explainer.dropped:,} older rebalances are counted and no longer kept: tables and "
            f"patterns use the last {explainer.most_rows:,} of each group"
        )
    if (limit := explainer.clients_limit).refused:
        yield (
            f"{limit.refused:,} events of further clients after the first {limit.most:,} are "
            "counted, but not by client"
        )
    if (limit := explainer.steps_limit).refused:
        yield (
            f"{limit.refused:,} reports of clients after the first {limit.most:,} are not used for "
            "the owners of partitions and the times without an owner"
        )


def _progress(total: int, position: Callable[[], int], stack: ExitStack) -> Callable[[], None]:
    """A bar on a terminal's standard error; returns a function that moves the bar."""
    console = Console(stderr=True)
    if not console.is_terminal or total < 10_000_000:
        return lambda: None
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = stack.enter_context(Progress(*columns, console=console, transient=True))
    task = bar.add_task("", total=total)
    shown = monotonic()

    def advance() -> None:
        nonlocal shown
        if monotonic() - shown > _STEP_S:
            shown = monotonic()
            bar.update(task, completed=position())

    return advance


def _records_bar(stack: ExitStack) -> Callable[[int, int], None]:
    """A bar for the records of the offsets topic, on a terminal's standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return lambda done, total: None
    bar = stack.enter_context(Progress(console=console, transient=True))
    task = bar.add_task("reading __consumer_offsets")
    return lambda done, total: bar.update(task, completed=done, total=total)
