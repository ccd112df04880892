"""``kohort explain``: why groups rebalanced, from logs of brokers and clients.

In: log files, plain or compressed with gzip; ``-`` is standard input. Out: for each group one
sentence, a table of its rebalances, patterns with the lines that prove them, and advice; or JSON.
Must not know: the meaning of lines (``kohort.explain``). Memory does not grow with the logs.
"""

from __future__ import annotations

import gzip
import heapq
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from kohort.cli.output import (
    FILE,
    MISSING,
    cluster_option,
    configured,
    json_option,
    note,
    print_json,
    table,
    writing,
)
from kohort.explain.causes import Cause
from kohort.explain.events import Event
from kohort.explain.explaining import MOST_GROUPS, Explained, Explainer
from kohort.explain.findings import span_text, timeout_near
from kohort.explain.page import page
from kohort.explain.reading import Counts, LogReader
from kohort.explain.stories import Rebalance, Story
from kohort.model.errors import ConfigError

LONGEST_LINE: Final = 65_536
"""Bytes of a line that are read; the rest is skipped."""
_LOOKED_AT: Final = 4_096
_SHOWN: Final = 20
"""Rebalances in the table of a group."""
_GZIP: Final = b"\x1f\x8b"


@click.command()
@click.argument(
    "files",
    nargs=-1,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="[FILE]...",
)
@cluster_option(None, "Also read __consumer_offsets of this cluster.")
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Only this group; repeatable."
)
@click.option("--html", type=FILE, help="Write a page with pictures to this file.")
@json_option
def explain(
    *,
    files: tuple[Path, ...],
    bootstrap: str | None,
    groups: tuple[str, ...],
    html: Path | None,
    as_json: bool,
) -> None:
    """Explain why groups rebalanced, from logs and from the offsets topic.

    The logs may be those of Kafka's brokers (1.0 to 4.3) and of clients (Java, librdkafka,
    kafka-python, aiokafka, franz-go, KafkaJS, brod), plain or JSON, with prefixes of containers.
    Several logs are merged by time. The offsets topic of a live cluster has each generation with
    its assignment, and adds the moves of partitions and the pauses between commits.
    """
    if not files and bootstrap is None:
        raise ConfigError("nothing to explain: name log files, or --bootstrap-server of a cluster")
    explainer = Explainer()
    with ExitStack() as stack:
        logs = [_Log(path, stack) for path in files]
        advance = _progress(logs, stack)
        events = heapq.merge(*(log.events(advance) for log in logs), key=lambda timed: timed[0])
        explainer.feed_all(event for _, event in events)
        if bootstrap is not None:
            # librdkafka is loaded for a live cluster only.
            from kohort.cli.offsets_topic import read_offsets  # noqa: PLC0415

            settings = {**configured(), "bootstrap.servers": bootstrap}
            if remark := read_offsets(settings, groups, explainer, _records_bar(stack)):
                note(f"note: {remark}")
    found = [e for e in explainer.finish() if not groups or e.story.group in groups]
    for remark in _remarks(logs, explainer):
        note(f"note: {remark}")
    if html is not None:
        with writing(html):
            html.write_text(page(found, map(_headline, found), _time), encoding="utf-8")
    if as_json:
        told = [_as_json(each) for each in found]
        print_json({"groups": told, "logs": [log.as_json() for log in logs]})
    elif found:
        click.echo("\n\n".join("\n".join(_lines(each)) for each in found))
    else:
        click.echo("No such group." if groups else "No line tells anything about a group.")


def _remarks(logs: list[_Log], explainer: Explainer) -> Iterator[str]:
    for log in logs:
        yield from log.remarks()
    for name in explainer.doubles:
        yield f"group {name} has two offsets partitions: these logs come from two clusters"
    if explainer.refused:
        yield f"{explainer.refused:,} events of groups after the first {MOST_GROUPS:,} are not used"


class _Log:
    """One log file, read once from its beginning to its end."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        self._reader = LogReader(self.name)
        self._remark = ""
        try:
            piped = str(path) == "-"
            place = Path("/dev/stdin") if piped else path
            self._raw = stack.enter_context(place.open("rb"))
            self.bytes = 0 if piped else path.stat().st_size
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; name a log file") from error

    def events(self, advance: Callable[[], None]) -> Iterator[tuple[float, Event]]:
        """The events with the time of the last line that had one."""
        at, number = float("-inf"), 0
        try:
            for line, cut in self._lines(advance):
                number += 1
                for event in self._reader.read(number, line, cut=cut):
                    at = event.at if event.at is not None else at
                    yield at, event
        except (EOFError, OSError, zlib.error) as error:
            self._remark = f"{self.name} is damaged behind line {number}: {error}"
        yield from ((at, event) for event in self._reader.rest())

    def _lines(self, advance: Callable[[], None]) -> Iterator[tuple[str, bool]]:
        file: io.BufferedReader | gzip.GzipFile = self._raw
        beginning = self._raw.peek(_LOOKED_AT)[:_LOOKED_AT]
        if beginning.startswith(_GZIP):
            file = gzip.GzipFile(fileobj=self._raw)
            beginning = file.peek(_LOOKED_AT)[:_LOOKED_AT]
        if not beginning:
            self._remark = f"{self.name} is empty"
        if b"\0" in beginning:
            self._remark = f"{self.name} is binary, no log: it was not read"
            return
        while data := file.readline(LONGEST_LINE):
            cut = False
            while not data.endswith(b"\n") and (more := file.readline(LONGEST_LINE)):
                cut, ends = True, more.endswith(b"\n")
                if ends:
                    break
            advance()
            yield data.decode("utf-8", "replace").rstrip("\r\n"), cut

    @property
    def counts(self) -> Counts:
        """The numbers of lines."""
        return self._reader.counts

    def remarks(self) -> Iterator[str]:
        """Sentences that a reader of the explanation must know about this log."""
        counts = self.counts
        if self._remark:
            yield self._remark
        if counts.cut:
            yield (
                f"{self.name}: {counts.cut:,} lines are longer than {LONGEST_LINE:,} bytes; only "
                "their beginning was read"
            )
        if counts.backwards:
            yield f"{self.name}: time runs backwards {counts.backwards:,} times"
        if counts.unknown:
            place, text = counts.examples[0]
            yield (
                f"{self.name}: {counts.unknown:,} of {counts.lines:,} lines are about groups in "
                f"words that are not known, first line {place.line}: {_safe(text)[:160]}"
            )

    def as_json(self) -> dict[str, Any]:
        """Counts and remarks, for programs."""
        return {"file": self.name, **asdict(self.counts), "remarks": list(self.remarks())}


def _progress(logs: list[_Log], stack: ExitStack) -> Callable[[], None]:
    """A bar on a terminal's standard error; returns a function that moves the bar."""
    total = sum(log.bytes for log in logs)
    console = Console(stderr=True)
    if not console.is_terminal or total < 10_000_000:
        return lambda: None
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = stack.enter_context(Progress(*columns, console=console, transient=True))
    task = bar.add_task("", total=total)
    lines = 0

    def advance() -> None:
        nonlocal lines
        lines += 1
        if lines % 20_000 == 0:
            bar.update(task, completed=sum(log._raw.tell() for log in logs if log.bytes))

    return advance


def _records_bar(stack: ExitStack) -> Callable[[int, int], None]:
    """A bar for the records of the offsets topic, on a terminal's standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return lambda done, total: None
    bar = stack.enter_context(Progress(console=console, transient=True))
    task = bar.add_task("reading __consumer_offsets")
    return lambda done, total: bar.update(task, completed=done, total=total)


# -- text -----------------------------------------------------------------------------------------


def _lines(explained: Explained) -> Iterator[str]:
    story = explained.story
    yield _headline(explained)
    rows = list(story.rebalances)[-_SHOWN:]
    if rows:
        columns = ["WHEN", "GENERATION", "BECAUSE", "MEMBER", "JOIN", "LEADER", "MEMBERS"]
        moves = any(each.moved is not None for each in rows)
        columns += ["MOVED", "NEEDLESS", "PAUSE"] * moves
        yield table(columns, (_row(each, story, moves) for each in rows))
    if story.total > len(rows):
        yield f"… and {story.total - len(rows):,} rebalances before these"
    for finding in explained.findings:
        yield f"* {finding.name}: {_safe(finding.says)} [{finding.known.value}]"
        if finding.advice:
            yield f"    do: {_safe(finding.advice)}"
        places = ", ".join(f"{place.file}:{place.line}" for place in finding.evidence)
        if places:
            yield f"    proof: {places}"


def _headline(explained: Explained) -> str:
    """One sentence with the number of rebalances, their time and their main cause."""
    story = explained.story
    name = f"Group {_safe(story.group)}" if story.group else "A group that the log does not name"
    count = (
        "no rebalance seen"
        if not story.total
        else f"{story.total:,} rebalance" + "s" * (story.total > 1)
    )
    span = ""
    if story.first is not None and story.last is not None and story.last > story.first:
        span = f" in {span_text(story.last - story.first)}"
    told = [(cause, n) for cause, n in story.causes.most_common() if "does not tell" not in cause]
    why = f", mostly because {told[0][0].value}" if told and story.total > 1 else ""
    why = f", because {told[0][0].value}" if told and story.total == 1 else why
    worst = f"; first of all: {explained.findings[0].name}" if explained.findings else ""
    when = f" (from {_time(story.first, story.dated)})" if story.first is not None else ""
    return f"{name}: {count}{span}{why}{worst}{when}. Written by {explained.makers}."


def _row(each: Rebalance, story: Story, moves: bool) -> tuple[object, ...]:
    join = MISSING if each.join_s is None else span_text(each.join_s)
    if each.join_s is not None and each.join_s >= 8 and (name := timeout_near(each.join_s)):
        join += f" ({name.split(',')[0]})"
    likely = " (likely)" if not each.certain and each.cause is not Cause.UNTOLD else ""
    because = each.cause.value + likely
    if each.client_reason:
        because += f": {_safe(each.client_reason)[:40]}"
    pause = MISSING if each.pause_s is None else f"≤ {span_text(each.pause_s)}"
    more = [MISSING if n is None else n for n in (each.moved, each.needless)]
    return (
        _time(each.began if each.began is not None else each.ended, story.dated),
        MISSING if each.generation is None else each.generation,
        because,
        _safe(each.instance or each.member)[:48] or MISSING,
        join,
        MISSING if each.leader_s is None else span_text(each.leader_s),
        MISSING if each.members is None else each.members,
        *([*more, pause] if moves else ()),
    )


def _time(at: float | None, dated: bool) -> str:
    if at is None:
        return MISSING
    moment = datetime.fromtimestamp(at, UTC)
    return (
        moment.strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")
        + f".{moment.microsecond // 1000:03}"
    )


def _safe(text: str) -> str:
    """A text of a log without characters that a terminal would carry out."""
    return "".join(c if c.isprintable() else "?" for c in text)


# -- JSON -----------------------------------------------------------------------------------------


def _as_json(explained: Explained) -> dict[str, Any]:
    story = explained.story
    return {
        "group": story.group,
        "offsets_partition": story.partition,
        "written_by": explained.makers,
        "from": story.first,
        "to": story.last,
        "dated": story.dated,
        "rebalances_in_all": story.total,
        "generations": story.generations,
        "causes": {cause.value: count for cause, count in story.causes.most_common()},
        "events": {kind.value: count for kind, count in story.counts.most_common()},
        "rebalances": [
            {**asdict(each), "join_s": each.join_s, "leader_s": each.leader_s}
            for each in story.rebalances
        ],
        "findings": [asdict(each) for each in explained.findings],
    }
