"""``kohort explain``: why groups rebalanced, from logs of brokers and clients.

In: log files, plain or compressed with gzip; ``-`` is standard input. Out: for each group one
sentence, a table of its rebalances, patterns with the lines that prove them, and advice; or JSON.
Must not know: the meaning of lines (``kohort.explain``). Memory does not grow with the logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from kohort.cli.explain.evidence import read_sources, remarks_of
from kohort.cli.explain.files import safe
from kohort.cli.output import (
    FILE,
    MISSING,
    cluster_option,
    evidence_files,
    json_option,
    note,
    print_json,
    table,
    terminal_width,
    values_of,
    wrapped,
    writing,
)
from kohort.dashboard.assets import asset, drawing
from kohort.dashboard.times import time_text
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.findings import REBALANCE_COLUMNS, cause_text, rebalance_cells, timeout_near
from kohort.explain.pages.headline import headline
from kohort.explain.pages.page import page
from kohort.explain.pages.trace import trace
from kohort.explain.rebalances import Rebalance
from kohort.explain.stories import Story
from kohort.history.fewest_moves import fewest_moves
from kohort.host.collector import without_collector
from kohort.model.errors import ConfigError

_COLUMNS: Final = ("WHEN", *map(str.upper, REBALANCE_COLUMNS))
_IF_KNOWN: Final = frozenset({"WAITED FOR", "MOVED", "NEEDLESS", "STOPPED", "COST", "AGAIN"})
"""Columns that are left out if no rebalance has a value for them."""
_SHOWN: Final = 20
"""Rebalances in the table of a group."""


@click.command()
@evidence_files
@cluster_option(None, "Also read __consumer_offsets of this cluster.")
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Only this group. May be repeated."
)
@click.option("--html", type=FILE, help="Write a page with pictures to this file.")
@click.option("--trace", "traced", type=FILE, help="Write a trace for Perfetto to this file.")
@json_option
@without_collector()
def explain(
    *,
    files: tuple[Path, ...],
    bootstrap: str | None,
    groups: tuple[str, ...],
    html: Path | None,
    traced: Path | None,
    as_json: bool,
) -> None:
    """Explain why groups rebalanced, from logs and from the offsets topic.

    The logs may be those of Kafka's brokers (1.0 to 4.3) and of clients (Java, librdkafka,
    kafka-python, aiokafka, franz-go, sarama, KafkaJS, brod), plain or JSON, with prefixes of
    containers; histories of kohort; the output of kafka-consumer-groups and of dumps of the offsets
    topic. Several files are merged by time. The offsets topic of a live cluster has each generation
    with its assignment, and adds the moves of partitions and the stops between commits.
    """
    if not files and bootstrap is None:
        raise ConfigError("nothing to explain: name log files, or --bootstrap-server of a cluster")
    explainer = Explainer(fewest_moves, lags=bootstrap is not None)
    logs = read_sources(files, bootstrap, groups, explainer)
    found = [e for e in explainer.finish() if not groups or e.story.group in groups]
    for remark in remarks_of(logs, explainer):
        note(f"note: {remark}")
    if bootstrap is not None and (html is not None or traced is not None or as_json):
        # The requests are loaded for a live cluster only.
        from kohort.cli.groups.past_lag import add_lags  # noqa: PLC0415

        add_lags(explainer, found, bootstrap)
    if html is not None:
        script, style = drawing(), asset("style.css")
        made = page(found, map(_told, found), time_text, script=script, style=style)
        with writing(html):
            html.write_text(made, encoding="utf-8")
    if traced is not None:
        with writing(traced):
            traced.write_text(json.dumps(trace(found)), encoding="utf-8")
    if as_json:
        told = [_as_json(each) for each in found]
        print_json({"groups": told, "logs": [log.as_json() for log in logs]})
    elif found:
        width = terminal_width()
        click.echo("\n\n".join("\n".join(_lines(each, width)) for each in found))
    else:
        named = ", ".join(safe(name) for name in groups)
        unknown = f"No source tells anything about the group {named}."
        click.echo(unknown if groups else "No line tells anything about a group.")


# -- text -----------------------------------------------------------------------------------------


def _lines(explained: Explained, width: int | None) -> Iterator[str]:
    """The text about a group; on a terminal, lines are broken between words or columns."""
    story = explained.story
    yield wrapped(_told(explained), width)
    rows = list(story.rebalances)[-_SHOWN:]
    if rows:
        cells = [_row(each, story) for each in rows]
        shown = [
            place
            for place, name in enumerate(_COLUMNS)
            if name not in _IF_KNOWN or any(row[place] != MISSING for row in cells)
        ]
        names = [_COLUMNS[place] for place in shown]
        yield table(names, ([row[place] for place in shown] for row in cells), width=width)
    if story.total > len(rows):
        yield f"… and {story.total - len(rows):,} rebalances before these"
    for finding in explained.findings:
        yield wrapped(f"* {finding.name}: {safe(finding.says)} [{finding.known.value}]", width)
        if finding.advice:
            yield wrapped(f"    do: {safe(finding.advice)}", width)
        if finding.effect:
            yield wrapped(f"    tried: {finding.effect}", width)
        places = ", ".join(f"{place.file}:{place.line}" for place in finding.evidence)
        if places:
            yield wrapped(f"    proof: {places}", width)


def _told(explained: Explained) -> str:
    """The sentence about a group, without characters that a terminal would carry out."""
    return headline(explained, safe(explained.story.group), time_text)


def _shortened(text: str, most: int) -> str:
    """A text of a log as a cell with this many characters at most."""
    shown = safe(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _row(each: Rebalance, story: Story) -> tuple[str, ...]:
    """The cells under `_COLUMNS`; texts of a log are shortened."""
    cells = dict(zip(REBALANCE_COLUMNS, rebalance_cells(each), strict=True))
    if each.client_reason:
        cells["Because"] = f"{cause_text(each)}: {_shortened(each.client_reason, 40)}"
    if each.join_s is not None and each.join_s >= 8 and (name := timeout_near(each.join_s)):
        cells["Join"] += f" ({name.split(',')[0]})"
    for column, most in (("Member", 72), ("Waited for", 96)):
        cells[column] = _shortened(cells[column], most)
    at = time_text(each.began if each.began is not None else each.ended, story.dated)
    return (at, *(cell or MISSING for cell in cells.values()))


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
        "lag": story.lags,
        "causes": {cause.value: count for cause, count in story.causes.most_common()},
        "events": {kind.value: count for kind, count in story.counts.most_common()},
        "rebalances": [
            {
                **values_of(each),
                "place": each.place._asdict(),
                "join_s": each.join_s,
                "leader_s": each.leader_s,
                "dead": each.dead,
                "cost": each.cost,
            }
            for each in story.rebalances
        ],
        "stops_without_rebalance": list(story.returns),
        "findings": [
            {
                **values_of(each),
                "evidence": [place._asdict() for place in each.evidence],
                "tried": each.effect,
            }
            for each in explained.findings
        ],
    }
