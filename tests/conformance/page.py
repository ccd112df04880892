"""The documentation page of the conformance suite, made from its lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.profile import NEEDS, ORDINARY, ROOM
from tests.conformance.registry import SCENARIOS, differences, listed, reasons
from tests.conformance.wire import ALL

HEAD = """\
# The conformance suite

The behaviour of a broker with Kafka's classic group protocol, in sentences. Each sentence is a test
of the coordinator under virtual time (`tests/coordinator` and others). If raw requests can show the
behaviour within seconds, the sentence is also a test over the wire for any broker
(`tests/conformance`). CI runs the wire tests with kohort's broker and with Apache Kafka 4.3.1.

## Point it at a broker

    python -m pytest tests/conformance --bootstrap HOST:PORT

The run takes a minute with Kafka's default settings, mostly for the initial delay. It reads the
broker's settings (DescribeConfigs), skips the tests that these settings exclude, and prints the
settings that would permit them. It makes two topics, `kohort-conformance` and
`kohort-conformance-2`, and deletes its groups at the end. With `--like kafka` or `--like kohort`
the other behaviour fails in each of the differences below; without the option both pass.
"""

TALKS = """\
## Conversations

The files in `tests/conformance/conversations` list requests of several members with their fields,
and the answers: a new group, static members that restart, members that leave, a member that dies.
Both brokers replay them. `python -m tests.conformance.conversation HOST:PORT FILE` prints the
answers of a broker.
"""


def conformance_page(made: str) -> str:
    """``docs/reference/conformance.md``; ``made`` is the first line."""
    lines = [made, *HEAD.splitlines(), "", *_needs(), "", *TALKS.splitlines(), ""]
    lines += [*_differences(), "", *_reasons(), "", *_scenarios()]
    return "\n".join(lines) + "\n"


def _needs() -> Iterator[str]:
    yield "| setting | scenarios that take it |"
    yield "|---|---|"
    ordinary = [one for one in ALL if not ROOM & set(one.needs)]
    yield f"| {ORDINARY} | {len(ordinary)} |"
    for need, (words, _) in NEEDS.items():
        takers = [str(one.number) for one in ALL if need in one.needs]
        yield f"| {words} | {', '.join(takers)} |"


def _differences() -> Iterator[str]:
    yield "## Differences from Kafka"
    yield ""
    yield "| name | Kafka | kohort | why |"
    yield "|---|---|---|---|"
    for name, row in differences().items():
        yield f"| {name} | {row['kafka']} | {row['kohort']} | {row['reason']} |"
    yield ""
    yield "Differences that need a crash, or no request, are in [differences](differences.md)."


def _reasons() -> Iterator[str]:
    yield "## Why some sentences have one test only"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for word, reason in reasons().items():
        yield f"| {word} | {reason} |"


def _scenarios() -> Iterator[str]:
    yield "## The sentences"
    yield ""
    yield "Those from 301 on are promises that Kafka does not make."
    yield ""
    yield "| | | core | wire |"
    yield "|---|---|---|---|"
    for number, row in listed().items():
        yield f"| {number} | {row['says']} | {_core(row)} | {_wire(number, row)} |"


def _core(row: dict[str, Any]) -> str:
    if "core" in row:
        return ", ".join(sorted({test.partition("::")[0] for test in row["core"]}))
    return f"none: {row.get('no_core', row.get('out'))}"


def _wire(number: int, row: dict[str, Any]) -> str:
    if number in SCENARIOS:
        return "yes"
    return f"none: {row.get('no_wire', row.get('out'))}" + (
        "; " + ", ".join(sorted({test.partition("::")[0] for test in row["live"]}))
        if "live" in row
        else ""
    )
