"""Generates documentation from code: settings, commands, checks, scenarios, drawings.

``make docs`` writes the files; tests compare them with the code.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from tests.conformance.page import conformance_page
from tests.tidy.advice import advice_table
from tests.tidy.drawings import DRAWN, FROM_THE_LAB
from tests.tidy.trees import ROOT

from kohort.cli.main import COMMANDS
from kohort.client.config import ClientSettings
from kohort.client.connections.security import SecuritySettings
from kohort.history.check import Heading
from kohort.history.registry import CHECKS
from kohort.host.settings import BrokerSettings, Rule, dotted

_MADE = "<!-- Made from code by `make docs`; a test compares. -->"
_WIDEST = 2**31 - 1


def settings_page() -> str:
    """``docs/reference/settings.md``."""
    lines = [
        _MADE,
        "# Settings",
        "",
        "Names and defaults are Kafka's; where a name begins with `kohort.`, Kafka has no such",
        "bound. A setting that is not listed is refused, with the nearest one that is: a setting",
        "that were accepted and ignored would be a lie. Times are in milliseconds, sizes in bytes,",
        "unless the name says otherwise.",
        "",
        "## Broker",
        "",
        "`kohort broker --set NAME=VALUE` (may be repeated), `--config FILE` with lines",
        "`NAME=VALUE`, or `EmbeddedBroker(**{NAME: VALUE})`.",
        "",
        *_table(BrokerSettings),
        "",
        "## Clients",
        "",
        "`Consumer`, `GroupMembership`, `RecordFetcher` and `Admin` take them as a mapping or as",
        "keyword arguments with underscores; `kohort pipeline --set NAME=VALUE`; in Spark as",
        "options with the prefix `kafka.`.",
        "",
        *_table(ClientSettings, without=SecuritySettings),
        "| `key.deserializer` | | a function, or confluent-kafka's | Makes keys of bytes. |",
        "| `value.deserializer` | | the same | Makes values of bytes. |",
        "",
        "## When to use the settings of waits, moves and copies",
        "",
        "The leader's values count, so give all members the same.",
        "[Restart without moving partitions](../howto/restart-without-moving.md) and",
        "[Hand partitions over warm](../howto/hand-over-warm.md) have examples,",
        "[Policies compared](../explanation/policies-compared.md) has measured costs.",
        "",
        *advice_table(),
        "",
        "## Security of clients",
        "",
        "[Connect to a secured cluster](../howto/secured-clusters.md) has examples. They serve the",
        "member's connections and librdkafka's. A setting that `security.protocol` does not use is",
        "refused.",
        "",
        *_table(SecuritySettings),
        "| `oauth_cb` | | a function of `sasl.oauthbearer.config` | Returns a token and its end. |",
        "",
    ]
    return "\n".join(lines)


def commands_page() -> str:
    """``docs/reference/commands.md``."""
    lines = [_MADE, "# Commands", ""]
    lines += [
        "Exit status: 0, or 2 for a mistake in what was asked, with one line that says what to"
    ]
    lines += ["do, or 130 after Ctrl-C; each command says what else it means.", ""]
    for name, (place, _) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        lines += list(_command(["kohort", name], command))
    return "\n".join(lines)


def checks_page() -> str:
    """``docs/reference/checks.md``."""
    lines = [
        _MADE,
        "# The promises that `kohort check` judges",
        "",
        "*Kafka*: whether Apache Kafka keeps it. *By*: what of kohort promises it.",
        "",
    ]
    headings = {check.heading for check in CHECKS}
    for heading in [h for h in Heading if h in headings]:
        lines += [f"## {heading}", ""]
        for check in (c for c in CHECKS if c.heading is heading):
            lines += [
                f"### {check.number} {check.name}",
                "",
                inspect.getdoc(check) or "",
                "",
                f"*Kafka*: {check.kafka}. *By*: {check.feature}. *Source*: {check.source}.",
                "",
            ]
    return "\n".join(lines)


PAGES: dict[Path, Callable[[], str]] = {
    ROOT / "docs" / "reference" / "checks.md": checks_page,
    ROOT / "docs" / "reference" / "settings.md": settings_page,
    ROOT / "docs" / "reference" / "commands.md": commands_page,
    ROOT / "docs" / "reference" / "conformance.md": lambda: conformance_page(_MADE),
}


def _table(settings: type, without: type = object) -> Iterator[str]:
    yield "| setting | default | values | |"
    yield "|---|---|---|---|"
    for field in dataclasses.fields(settings):
        rule: Rule | None = field.metadata.get("rule")
        if rule is None or field.name in getattr(without, "__dataclass_fields__", ()):
            continue
        default = "" if field.default in (None, "") else f"{_written(field.default)}"
        yield f"| `{dotted(field.name)}` | {default} | {_values(rule)} | {rule.doc} |"


def _values(rule: Rule) -> str:
    if rule.kind is bool:
        return "true, false"
    if rule.kind is float:
        return "0.0 to 1.0"
    if rule.kind is int:
        upper = "" if rule.high >= _WIDEST else f" to {rule.high:,}"
        return f"{rule.low:,}{upper}" if upper else f"from {rule.low:,}"
    return ", ".join(rule.choices)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


def _command(path: list[str], command: click.Command) -> Iterator[str]:
    yield f"{'#' * len(path)} {' '.join(path)}"
    yield ""
    context = click.Context(command, info_name=" ".join(path), terminal_width=88)
    text = command.get_help(context)
    yield "```"
    yield from (line.rstrip() for line in text.splitlines())
    yield "```"
    yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            nested = command.get_command(context, name)
            assert nested is not None
            yield from _command([*path, name], nested)


def main() -> None:
    if "--check" in sys.argv:
        stale = [path.name for path, make in PAGES.items() if path.read_text() != make()]
        sys.exit(f"stale: {', '.join(stale)}" if stale else 0)
    for path, make in (PAGES | FROM_THE_LAB | DRAWN).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), encoding="utf-8")


def links(page: Path) -> Iterator[str]:
    """The links of a page that lead to files of the project."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#")):
            yield target.partition("#")[0]


if __name__ == "__main__":
    main()
