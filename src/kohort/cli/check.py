"""``kohort check``: check recorded histories against the promises of group membership.

In: files that a broker, consumers or the lab recorded. Out: a table of all promises (passed,
violated, vacuous), the violations with their stories, and an exit status: 0 clean, 1 violations, 2
bad input. Must not know: how promises are judged (``kohort.history``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click

from kohort.cli.output import FILE, counted, fit, json_option, note, print_json, print_table
from kohort.history.checker import Checker, Report, Verdict, Violation
from kohort.history.endings import with_endings
from kohort.history.registry import BY_NUMBER, CHECKS
from kohort.model.client_facts import RecordsDelivered
from kohort.model.errors import ConfigError
from kohort.model.history_record import Recorded
from kohort.storage.fact_files import OpenHistory

MOST_STORIES: Final = 10


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option(
    "--only",
    "only",
    multiple=True,
    metavar="CHECK",
    help="A check's number or name. May be repeated.",
)
@click.option(
    "--sparse",
    multiple=True,
    metavar="TOPIC",
    help="A topic with holes in its offsets (compacted, transactional). May be repeated.",
)
@click.option("--explain", is_flag=True, help="Print the argument of each check.")
@json_option
def check(
    *,
    files: tuple[Path, ...],
    only: tuple[str, ...],
    sparse: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Check the histories of brokers and consumers.

    Several files are one history, merged by time: those of a broker and its consumers. A check
    without anything to judge is reported as vacuous: it proves nothing about this history.
    """
    checks = tuple(_chosen(only))
    found = OpenHistory(files)
    for remark in found.remarks:
        note(f"note: {remark}")
    facts = _holes_allowed(with_endings(found), frozenset(sparse))
    report = Checker(checks).feed_all(facts).finish()
    if as_json:
        print_json({"remarks": found.remarks, **as_values(report)})
    else:
        _print(report, explain=explain)
    if not report.clean:
        raise SystemExit(1)


def _chosen(only: Iterable[str]) -> Iterator[Any]:
    by_name = {check.name: check for check in CHECKS}
    wanted = list(only)
    if not wanted:
        yield from CHECKS
    for word in wanted:
        chosen = by_name.get(word) or (BY_NUMBER.get(int(word)) if word.isdigit() else None)
        if chosen is None:
            raise ConfigError(
                f"--only {word}: unknown check; the checks are 1 to {len(CHECKS)}, or by name: "
                f"{', '.join(by_name)}"
            )
        yield chosen


def _holes_allowed(facts: Iterable[Recorded], topics: frozenset[str]) -> Iterator[Recorded]:
    for recorded in facts:
        fact = recorded.fact
        if isinstance(fact, RecordsDelivered) and fact.partition.topic in topics:
            yield replace(recorded, fact=replace(fact, complete=False))
        else:
            yield recorded


def _print(report: Report, *, explain: bool) -> None:
    print_table(
        ["CHECK", "NAME", "VERDICT", "JUDGED", "VIOLATIONS", "KAFKA"],
        [
            (
                r.number,
                r.name,
                r.verdict.value,
                r.judged,
                r.violations or None,
                BY_NUMBER[r.number].kafka.value,
            )
            for r in report.results
        ],
    )
    if explain:
        for r in report.results:
            what = BY_NUMBER[r.number]
            click.echo(f"\n{r.number} {r.name} ({what.source}; promised by: {what.feature})")
            click.echo(_argument(r.number))
    print_violations(report)


def print_violations(report: Report) -> None:
    """Print the violations with their stories, and a summary line."""
    for violation in report.violations[:MOST_STORIES]:
        _print_violation(violation)
    hidden = len(report.violations) - MOST_STORIES
    if hidden > 0:
        click.echo(f"\n{hidden} more violations; --json prints them all")
    for text in report.notes:
        click.echo(f"\nnote: {text}")
    click.echo(f"\n{_summary(report)}")


def _argument(number: int) -> str:
    return (BY_NUMBER[number].__doc__ or "").strip().replace("\n    ", "\n")


def _print_violation(violation: Violation) -> None:
    member = f", member {violation.member_id}" if violation.member_id else ""
    click.echo(
        f"\nVIOLATED {violation.check} {violation.name}: group {violation.group_id}{member}, "
        f"fact {violation.sequence}\n  {violation.message}\n  The story:"
    )
    for line in violation.story:
        click.echo(fit(f"    {line}"))


def _summary(report: Report) -> str:
    count = dict.fromkeys(Verdict, 0)
    for result in report.results:
        count[result.verdict] += 1
    return (
        f"{counted(report.facts, 'fact')}: {counted(count[Verdict.PASSED], 'check')} passed, "
        f"{count[Verdict.VIOLATED]} violated, {count[Verdict.VACUOUS]} had nothing to judge"
    )


def as_values(report: Report) -> dict[str, Any]:
    """A report as JSON values."""
    return {
        "facts": report.facts,
        "clean": report.clean,
        "checks": [
            {**asdict(r), "verdict": r.verdict.value, "kafka": BY_NUMBER[r.number].kafka.value}
            for r in report.results
        ],
        "violations": [asdict(v) for v in report.violations],
        "notes": list(report.notes),
    }
