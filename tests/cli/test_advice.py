"""Every command and option that a message of kohort advises exists: findings S7 and S15."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kohort.cli.main import cli

SOURCE = Path(__file__).parents[2] / "src" / "kohort"
COMMAND = re.compile(r"`kohort ([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def texts(path: Path) -> Iterator[str]:
    """The strings of a module, with " X " for each value in an f-string; no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    parts |= {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else " X "
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def mistake(command: str) -> str | None:
    """The mistake in a command line, which is given without ``kohort``; None if it exists."""
    found: click.Command | None = cli
    context = click.Context(cli)
    words = command.split()
    while words and isinstance(found, click.Group) and not words[0].startswith("-"):
        if words[0].isupper():
            return None  # a place for any command
        word = words.pop(0)
        found = found.get_command(context, word)
        if found is None:
            return f"there is no command {word!r}"
    assert found is not None
    if isinstance(found, click.Group):
        return None
    known = {name for param in found.params for name in param.opts} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word not in known]
    return f"it has no option {unknown}" if unknown else None


def advised() -> list[tuple[str, str]]:
    return sorted(
        {
            (path.relative_to(SOURCE).as_posix(), command)
            for path in SOURCE.rglob("*.py")
            if "`kohort " in path.read_text(encoding="utf-8")
            for text in texts(path)
            for command in COMMAND.findall(text)
        }
    )


def test_each_command_in_a_message_exists() -> None:
    found = advised()
    assert len(found) > 10
    wrong = [f"{path}: `kohort {text}`: {mistake(text)}" for path, text in found if mistake(text)]
    assert wrong == []


def test_each_option_that_a_message_about_a_pipeline_names_exists() -> None:
    commands = [cli.get_command(click.Context(cli), name) for name in ("pipeline", "table")]
    known = set[str]()
    for command in commands:
        assert command is not None
        whole = [command, *(command.commands.values() if isinstance(command, click.Group) else [])]
        known |= {name for each in whole for param in each.params for name in param.opts}
    named = {
        (path.name, option)
        for path in (SOURCE / "spark").rglob("*.py")
        if path.name != "executor_pod.py"  # options of Spark's own program
        for text in texts(path)
        for option in OPTION.findall(text)
    }
    assert len(named) > 5
    assert {(path, option) for path, option in named if option not in known} == set()


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("groups describe X", None),
        ("group describe", "there is no command 'group'"),
        ("pipeline --output", None),
        ("pipeline --set failOnDataLoss=false --fail-on-data-loss", "it has no option"),
    ],
)
def test_the_check_finds_what_does_not_exist(command: str, wrong: str | None) -> None:
    assert (mistake(command) or "").startswith(wrong or "")
    assert (mistake(command) is None) == (wrong is None)
