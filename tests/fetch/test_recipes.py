"""The recipes of the page about columns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tidy.trees import ROOT

pytest.importorskip("pyarrow", reason="pip install 'kohort[arrow]'")

PAGE = ROOT / "docs" / "howto" / "consume-columns.md"
BATCH = """
import pyarrow, pyarrow.parquet
from kohort.fetch.columns import WITH_HEADERS, arrow_schema
rows = [{"topic": "t", "offset": n, "value": value} for n, value in enumerate([b"one", b"two"])]
batch = pyarrow.RecordBatch.from_pylist(rows, schema=arrow_schema(WITH_HEADERS))
path = "orders.parquet"
"""


def recipe(library: str) -> list[str]:
    """The pieces of code in the row of a library."""
    text = PAGE.read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {library}[ \d]*\|(.*)\|$", text, re.MULTILINE)
    return re.findall(r"`([^`]+)`", row)


def programs() -> list[tuple[str, str]]:
    """A program for each library, and the output of the program."""
    query, decoded = recipe("DuckDB")
    (frame,) = recipe("pandas")
    (write,) = recipe("Parquet")
    made, cast = recipe("polars")
    return [
        (
            f"import duckdb\nprint({query}.fetchall(), "
            f"duckdb.sql('SELECT {decoded} FROM batch').fetchall())",
            "[(2, 1)] [('one',), ('two',)]",
        ),
        (f"print({frame}['value'].tolist())", "[b'one', b'two']"),
        (
            f"{write}\nprint(pyarrow.parquet.read_table(path).to_batches()[0].equals(batch))",
            "True",
        ),
        (
            f"import polars\nprint(({made}{cast})['value'].to_list())",
            "['one', 'two']",
        ),
    ]


@pytest.mark.slow
def test_a_batch_goes_into_other_libraries(tmp_path: Path) -> None:
    whole = "\n".join([BATCH, *(program for program, _ in programs())])
    command = [sys.executable, "-c", whole]
    run = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [said for _, said in programs()]
