"""Commands in documents have the shown options; each block of Python is valid and is run."""

from __future__ import annotations

import ast
import re

import click
import pytest
from tests.tidy import test_blocks_run
from tests.tidy.blocks import (
    Block,
    blocks_of,
    commands_of,
    inline_commands_of,
    written_pages,
)
from tests.tidy.trees import ROOT

from kohort.cli.main import cli

PAGES = written_pages()
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [(block.page.name, words) for block in BLOCKS for words in commands_of(block.text)] + [
    (page.name, words) for page in PAGES for words in inline_commands_of(page)
]

SHOWN_ELSEWHERE = {
    "sessions = Windows(": "tests/spark/test_state_on_spark.py",
    "class Visits:": "tests/spark/test_state.py",
    'Path("password")': "tests/real_kafka/test_security.py",
    "sign_in": "tests/real_kafka/test_security.py",
    "with RealKafka(tmp_path, nodes=3": "tests/real_kafka/test_cluster.py",
    "set_table_properties(": "tests/spark/test_delta_ledger.py",
    "class Orders:": "tests/spark/test_rows_by_python.py",
    "read_runs(": "tests/spark/test_sweep.py",
    "map_records(": "tests/spark/test_plain_reading.py",
}
"""Part of a block -> the test that does the same, where running it would cost too much."""


def test_there_are_some() -> None:
    assert len(PYTHON) > 10
    assert len(COMMANDS) > 20


def test_each_command_exists_with_its_options() -> None:
    for page, words in COMMANDS:
        try:
            _parse(words)
        except click.ClickException as error:
            error.add_note(f"{page}: {' '.join(words)}")
            raise


def _parse(words: list[str]) -> None:
    command: click.Command = cli
    context = click.Context(cli)
    while words and isinstance(command, click.Group):
        if words[0].startswith("-"):
            break  # options of the group itself
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.make_parser(context).parse_args(list(words))


def test_blocks_with_imports_are_marked_as_python() -> None:
    # A block without the mark is neither parsed nor run here.
    imports = re.compile(r"^(from \S+ )?import \w", re.MULTILINE)
    unmarked = [block for block in BLOCKS if block.language != "python"]
    assert [block for block in unmarked if imports.search(block.text)] == []


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.text[:40])
def test_python_is_python(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.text[:40])
def test_every_block_of_python_is_run(block: Block) -> None:
    parts = [
        part
        for page, part in test_blocks_run.RUN
        if ROOT / page == block.page and part in block.text
    ]
    parts += [part for part in SHOWN_ELSEWHERE if part in block.text]
    assert len(parts) == 1, f"{block.page.name}: run it in test_blocks_run.py\n{block.text}"
