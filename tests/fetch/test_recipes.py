"""The recipes of the page about columns, for the libraries that the tests have."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
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


def programs() -> dict[str, tuple[str, str]]:
    """A program for each library, and the output of the program."""
    query, decoded = recipe("DuckDB")
    (frame,) = recipe("pandas")
    (write,) = recipe("Parquet")
    made, cast = recipe("polars")
    return {
        "duckdb": (
            f"import duckdb\nprint({query}.fetchall(), "
            f"duckdb.sql('SELECT {decoded} FROM batch').fetchall())",
            "[(2, 1)] [('one',), ('two',)]",
        ),
        "pandas": (f"print({frame}['value'].tolist())", "[b'one', b'two']"),
        "pyarrow": (
            f"{write}\nprint(pyarrow.parquet.read_table(path).to_batches()[0].equals(batch))",
            "True",
        ),
        "polars": (
            f"import polars\nprint(({made}{cast})['value'].to_list())",
            "['one', 'two']",
        ),
    }


@pytest.mark.slow
def test_a_batch_goes_into_other_libraries(tmp_path: Path) -> None:
    """polars only if it is installed: a wheel of 40 MB that nothing else needs."""
    found = {name: each for name, each in programs().items() if find_spec(name) is not None}
    assert found.keys() >= {"duckdb", "pandas", "pyarrow"}
    whole = "\n".join([BATCH, *(program for program, _ in found.values())])
    command = [sys.executable, "-c", whole]
    run = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [said for _, said in found.values()]
