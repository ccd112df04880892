"""Output of commands: tables like those of Kafka's tools, JSON for programs.

In: rows of values. Out: text on standard output, with at least two spaces between columns and ``-``
for a missing value. Must not know: Kafka.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click

from kohort.host.settings import parse_assignments, read_properties
from kohort.model.errors import FULL_DISK, ConfigError

MISSING: Final = "-"
_CONTINUED: Final = "    "
"""In front of a line that goes on with the line above."""

FILE: Final = click.Path(path_type=Path, dir_okay=False)
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)


class Duration(click.FloatRange):
    """The type of an option that is a length of time, in a unit that the option names.

    The numbers ``nan`` and ``inf`` are refused.
    """

    name = "time"

    def __init__(self, least: float = 0) -> None:
        super().__init__(least)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number.

        Raises:
            BadParameter: the text is no number, or the number is too small or not finite.
        """
        length: float = super().convert(value, param, ctx)
        if not math.isfinite(length):
            self.fail(f"{value} is no finite number", param, ctx)
        return length


def counted(number: int, noun: str) -> str:
    """The number and the noun: ``1 record``, ``2,000 records``."""
    return f"{number:,} {noun}" + "s" * (number != 1)


REFUSED: Final = 1
"""The exit status if the cluster refused a part of the request, and the rest was done."""

_CONFIGURED: Final = "kohort.command.config"
_STARTED: Final = "kohort.output.started"

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add ``--json`` to a command, as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        command
    )


def bootstrap_option(command: F) -> F:
    """Add ``--bootstrap-server`` (or ``--bootstrap``) as ``bootstrap``, and ``--command-config``.

    Both are Kafka's names. ``configured`` returns the settings of the file.
    """
    return cluster_option("127.0.0.1:9092", "Addresses of brokers of the cluster.")(command)


def cluster_option(default: str | None, text: str) -> Callable[[F], F]:
    """`bootstrap_option` with another default and help; with None the option may be left out."""

    def add(command: F) -> F:
        command = click.option(
            "--command-config",
            type=FILE,
            expose_value=False,
            callback=_read_config,
            help="Client settings, a line NAME=VALUE each: TLS, logins, timeouts.",
        )(command)
        return click.option(
            "--bootstrap-server",
            "--bootstrap",
            "bootstrap",
            default=default,
            show_default=True,
            metavar="HOST:PORT[,...]",
            help=text,
        )(command)

    return add


def _read_config(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta[_CONFIGURED] = read_properties(path)


def configured(bootstrap: str | None = None) -> dict[str, str]:
    """The client settings in the file of ``--command-config``; empty without a file.

    Args:
        bootstrap: the brokers, in place of those in the file.
    """
    context = click.get_current_context(silent=True)
    given: dict[str, str] = {} if context is None else context.meta.get(_CONFIGURED, {})
    return dict(given) if bootstrap is None else {**given, "bootstrap.servers": bootstrap}


def listen_option(port: int) -> Callable[[F], F]:
    """Add ``--listen`` to a command, as the argument ``listen``: host and port of its page."""
    return click.option(
        "--listen",
        default=f"127.0.0.1:{port}",
        show_default=True,
        metavar="HOST:PORT",
        callback=_host_and_port,
        help="Address of the page; port 0: a free port.",
    )


def _host_and_port(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--listen is {text!r}, expected HOST:PORT")
    return host.strip("[]"), int(port)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = None
) -> str:
    """Rows under their headings as text; columns are as wide as their content.

    Args:
        columns: the headings.
        rows: a value for each column.
        width: a longer row goes on in further lines, broken between two columns; None: a row is
            one line.
    """
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [len(column) for column in columns]
    for row in cells:
        widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
    parts = _parts(widths, width)
    return "\n".join(
        _CONTINUED * (part.start > 0) + "  ".join(map(str.ljust, line[part], widths[part])).rstrip()
        for line in ([*columns], *cells)
        for part in parts
    )


def _parts(widths: Sequence[int], most: int | None) -> list[slice]:
    """The columns of each line of a row."""
    parts, begin, used = [], 0, 0
    for number, width in enumerate(widths):
        if most is not None and number > begin and used + width > most:
            parts.append(slice(begin, number))
            begin, used = number, len(_CONTINUED)
        used += width + 2
    return [*parts, slice(begin, len(widths))]


def _text(cell: object) -> str:
    if isinstance(cell, list):
        return ",".join(map(str, cell))
    return MISSING if cell is None else str(cell)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table after one blank line, as Kafka's tools do; see `separate`."""
    separate()
    click.echo(table(columns, rows))


def separate() -> None:
    """Print the blank line before a part of the output; not before the first part in a pipe."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    if sys.stdout.isatty() or _STARTED in meta:
        click.echo()
    meta[_STARTED] = True


def print_json(value: object) -> None:
    """Print one JSON document; keys keep their order, and dataclasses become objects."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=values_of))


def values_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, without copies: ``asdict`` takes three times as long."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """For the body of a ``with`` statement that reads a file.

    Args:
        path: the file.
        expected: the contents that such a file has, for the message: «name a text file».

    Raises:
        ConfigError: the body raised an ``OSError``, or the file is no UTF-8 text.
    """
    try:
        yield
    except OSError as error:
        told = error.strerror
    except UnicodeDecodeError:
        told = "it is no UTF-8 text"
    else:
        return
    raise ConfigError(f"cannot read {path}: {told}; name {expected}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """For the body of a ``with`` statement that writes a file or makes a directory.

    Raises:
        ConfigError: the body raised an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        todo = "make room" if error.errno in FULL_DISK else "name a path that this user may write"
        raise ConfigError(f"{path} cannot be written: {error.strerror}; {todo}") from error


def evidence_files(command: F) -> F:
    """Add ``[FILE]...`` to a command that reads evidence, as the argument ``files``."""
    kind = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
    return click.argument("files", nargs=-1, type=kind, metavar="[FILE]...")(command)


def name_and_value(option: str, text: str) -> tuple[str, str]:
    """Both parts of ``NAME=VALUE``, without blanks around them.

    Raises:
        ConfigError: the text has no equals sign or no name.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"{option} is {text!r}, expected NAME=VALUE")
    return name.strip(), value.strip()


def pairs_option(option: str, name: str, text: str) -> Callable[[F], F]:
    """Add an option for pairs ``NAME=VALUE``, as a dict with this name; ``text`` is its help."""
    return _pairs_option(
        option, name, text, lambda texts: dict(name_and_value(option, each) for each in texts)
    )


def settings_option(text: str, option: str = "--set") -> Callable[[F], F]:
    """Add an option for settings by Kafka's names, as the argument ``assignments``: a dict."""
    return _pairs_option(option, "assignments", text, parse_assignments)


def _pairs_option(
    option: str, name: str, text: str, parse: Callable[[Sequence[str]], dict[str, str]]
) -> Callable[[F], F]:
    def pairs(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> Any:
        return parse(texts)

    return click.option(
        option, name, multiple=True, metavar="NAME=VALUE", callback=pairs, help=text
    )


def spark_options(master: str) -> Callable[[F], F]:
    """Add ``--master`` with this default, and ``--conf`` as the argument ``spark``: a dict."""

    def add(command: F) -> F:
        option = click.option("--master", default=master, show_default=True, help="Spark master.")
        return option(pairs_option("--conf", "spark", "A Spark setting.")(command))

    return add


def function_option(text: str) -> Callable[[F], F]:
    """Add ``--python`` (or ``--state``) as the argument ``state``; ``text`` is its help."""
    return click.option("--python", "--state", "state", metavar="FILE.py:OBJECT", help=text)


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal; None if the stream (standard output) is no terminal."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def fit(line: str) -> str:
    """Cut a line to the terminal's width; without a terminal the line stays whole."""
    width = terminal_width()
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def wrapped(line: str, width: int | None) -> str:
    """A line broken between words; a word that is longer than the width stays whole.

    Args:
        line: further lines are indented by four more columns than this line.
        width: None: the line stays whole.
    """
    if width is None:
        return line
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + _CONTINUED,
        break_long_words=False,
        break_on_hyphens=False,
    )


def note(text: str) -> None:
    """Print a remark on standard error, apart from the output for pipes."""
    click.echo(wrapped(text, terminal_width(sys.stderr)), err=True)
