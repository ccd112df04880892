"""Reads the options of a command from a TOML file: ``--config FILE``.

In: a file, the options of a command. Out: the values of options that the command line leaves out.
Must not know: the meaning of an option.

A key is the name of an option without its dashes. A table holds the NAME=VALUE pairs of an option
that takes several. Paths are relative to the file.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from kohort.cli.output import FILE, reading
from kohort.model.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

Value = str | bool | int | float | list[str]


def config_option(command: F) -> F:
    """Add ``--config`` to a command."""
    return click.option(
        "--config",
        type=FILE,
        is_eager=True,
        expose_value=False,
        callback=_read,
        help="A TOML file with these options, without dashes. Options of the command line "
        "override the file.",
    )(command)


def _read(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    options = {
        name.lstrip("-"): param
        for param in context.command.params
        if param is not option
        for name in param.opts
    }
    found: dict[str, Value] = {}
    for key, value in _document(path).items():
        param = options.get(key)
        if param is None:
            near = difflib.get_close_matches(key, options, 1)
            hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(options)}"
            raise ConfigError(f"{path} has the key {key}, which is no option; {hint}")
        if param.name is not None:
            found[param.name] = _value(path, key, value, param)
    context.default_map = found


def _document(path: Path) -> dict[str, Any]:
    try:
        with reading(path, "a TOML file with the options of the command"), path.open("rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _value(path: Path, key: str, value: Any, param: click.Parameter) -> Value:
    """The value as click takes it from a command line, or as it is."""
    if param.multiple:
        if isinstance(value, Mapping):
            return [f"{name}={each}" for name, each in _pairs(path, value)]
        raise ConfigError(f"{path}: expected a table [{key}] with a line NAME = VALUE each")
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    kinds, expected = _kinds(param)
    # In Python, True is a number, too.
    if not isinstance(value, kinds) or isinstance(value, bool) != (kinds is bool):
        raise ConfigError(f"{path}: expected {expected} as {key}, found {value!r}")
    if isinstance(param.type, click.Path):
        return str(path.parent / str(value))
    try:
        param.type.convert(value, param, None)
    except click.BadParameter as error:
        raise ConfigError(f"{path}: the value of {key} is wrong: {error.message}") from error
    return cast("Value", value)


def _kinds(param: click.Parameter) -> tuple[type | tuple[type, ...], str]:
    """The types in TOML that an option may have, and their name."""
    if isinstance(param.type, click.types.BoolParamType):
        return bool, "true or false"
    if isinstance(param.type, click.types.FloatParamType):
        return (int, float), "a number"
    if isinstance(param.type, click.types.IntParamType):
        return (int,), "a whole number"
    return (str, int, float), "a text or a number"


def _pairs(path: Path, table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    """The names and values in a table; ``client.id`` may also be ``id`` in a table ``client``."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _pairs(path, value, f"{before}{name}.")
        elif isinstance(value, list):
            raise ConfigError(
                f"{path}: expected a text or a number as {before}{name}, found {value!r}; write "
                "several values as one text with commas"
            )
        else:
            yield before + name, str(value).lower() if isinstance(value, bool) else str(value)
