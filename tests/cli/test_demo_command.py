"""``kohort demo`` from outside: refused arguments, and a whole run."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from kohort.cli.demo import running
from kohort.cli.demo.command import _fitting_sql
from kohort.cli.demo.running import PARTITIONS, DemoConfig
from kohort.cli.main import main
from kohort.cli.spark.table import _NUMBERS

EXCERPT = Path(__file__).parents[1] / "data" / "access_log_1000.txt"


def test_a_missing_input_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _status("--input", str(tmp_path / "absent")) == 2
    assert "absent: No such file or directory; name a text file" in capsys.readouterr().err


def test_an_empty_input_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert _status("--input", str(tmp_path / "empty"), "--output", str(tmp_path / "out")) == 2
    assert "empty: a text file with one record a line" in capsys.readouterr().err


def test_an_output_directory_with_files_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kept").touch()
    assert _status("--output", str(tmp_path)) == 2
    assert "is not empty; name a new directory with --output" in capsys.readouterr().err


def test_the_query_fits_the_input(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text('one\n\ntwo words\nsaid "something"\n')
    assert _fitting_sql(None).name == "web_access.sql"
    assert _fitting_sql(EXCERPT).name == "web_access.sql"
    assert _fitting_sql(words).name == "lines.sql"


def test_every_setting_that_differs_from_its_default_is_printed(tmp_path: Path) -> None:
    config = DemoConfig(records=6_000, seed=1, given=None, sql=tmp_path, output=tmp_path)
    told = "\n".join(config.differences())
    assert "group.initial.rebalance.delay.ms=0 (default 3000)" in told
    assert "session.timeout.ms=6000 (default 45000)" in told
    assert "--limit 75 (default 500000)" in told
    few = DemoConfig(records=5, seed=1, given=None, sql=tmp_path, output=tmp_path)
    assert few.limit == PARTITIONS


def test_the_demo_reads_only_values_that_table_verify_prints() -> None:
    read = set(re.findall(r'found\["(\w+)"\]', inspect.getsource(running)))
    assert len(read) > 5
    assert read <= {*_NUMBERS, "orphans", "partitions"}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1_200)
def test_the_whole_story_on_a_real_access_log(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b"".join([EXCERPT.read_bytes()] * 6) + b"not a line of an access log\n")
    command = [sys.executable, "-m", "kohort", "demo", "--input", str(log), "--plain"]
    # A short path: Spark makes Unix sockets in the folder for temporary files.
    folder = tempfile.TemporaryDirectory(prefix="k")
    with folder as temporary, (tmp_path / "told").open("w+") as told:
        done = subprocess.Popen(
            [*command, "--output", str(tmp_path / "out")],
            stdout=told,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": temporary},
        )
        places = _temporary_folders_of_java(done)
        left = os.listdir(temporary)
        told.seek(0)
        lines = told.read().splitlines()
    text = "\n".join(lines)
    assert done.returncode == 0, text
    verdict = json.loads(lines[-1])
    assert verdict["verdict"] == "exactly once", text
    assert (verdict["records_in"], verdict["rows_out"]) == (6_001, 6_000)
    assert verdict["dead_letters"] == 1
    assert verdict["killed_in_batch"], text
    assert verdict["joined_under_backlog"], text
    assert verdict["killed_under_backlog"], text
    assert verdict["rebalances"] >= 4
    assert not _processes_with(str(tmp_path)), "no process outlives the demo"
    assert len(places) >= 4, "three applications, and one of them twice"
    assert {place.parent for place in places.values()} == {Path(temporary)}
    assert left == [], "no temporary file outlives the demo"


def _status(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    return ended.value.code


def _temporary_folders_of_java(demo: subprocess.Popen[bytes]) -> dict[int, Path]:
    """Wait for the end; the folder for temporary files of each Java process of Spark, by its id.

    Java does not read ``TMPDIR``, so an empty ``TMPDIR`` at the end says nothing about Java.
    """
    found: dict[int, Path] = {}
    try:
        while demo.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in psutil.Process(demo.pid).children(recursive=True):
                    # A killed process has no command any more; the others are looked at.
                    with contextlib.suppress(psutil.NoSuchProcess):
                        command = process.cmdline()
                        if process.name() == "java" and "-cp" in command:
                            options = dict(text.split("=", 1) for text in command if "=" in text)
                            found.setdefault(process.pid, Path(options.get("-Djava.io.tmpdir", "")))
            time.sleep(0.5)  # a look at all processes costs CPU; Java lives for seconds
    finally:
        demo.kill()
        demo.wait()
    return found


def _processes_with(argument: str) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        if argument in command:
            found.append(command)
    return found
