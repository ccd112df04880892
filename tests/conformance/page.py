"""The documentation page of the conformance suite, made from its lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.conformance.profile import NEEDS, ORDINARY, ROOM
from tests.conformance.registry import SCENARIOS, differences, listed, reasons
from tests.conformance.wire import ALL

HEAD = """\
# The conformance suite

What a broker of Kafka's classic group protocol does, as sentences, each of them a test: on the
coordinator under virtual time (`tests/coordinator` and others), and, wherever a raw request can
bring it about within seconds, over the wire at any broker (`tests/conformance`). CI plays the wire
form at kohort's broker and at Apache Kafka 4.3.1.

## Point it at a broker

    python -m pytest tests/conformance --bootstrap HOST:PORT

A minute at a broker with Kafka's default settings, most of which is the initial delay. It asks the
broker for its settings (DescribeConfigs) and skips what they do not allow, saying which would. It
makes two topics, `kohort-conformance` and `kohort-conformance-2`, and removes the groups that it
made. `--like kafka` and `--like kohort` fail where the broker goes the other one's way in one of
the differences below; without, both ways pass.
"""

TALKS = """\
## Conversations

Who sends which request with which fields, and what is answered, as text in
`tests/conformance/conversations`: a group that comes to be, static members that bounce, members
that leave, a member that dies. They are replayed at both brokers.
`python -m tests.conformance.conversation HOST:PORT FILE` prints what a broker makes of one.
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
    yield "## What differs from Kafka"
    yield ""
    yield "| name | Kafka | kohort | why |"
    yield "|---|---|---|---|"
    for name, row in differences().items():
        yield f"| {name} | {row['kafka']} | {row['kohort']} | {row['reason']} |"
    yield ""
    yield "What takes a crash or concerns no request is in [differences](differences.md)."


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
