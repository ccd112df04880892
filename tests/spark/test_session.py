"""The settings and the environment with which Spark is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from tests.waiting import until

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.model.errors import ConfigError
from kohort.spark import session
from kohort.spark.session import _MASTER, _with_log_settings, default_settings, make_session


@pytest.mark.parametrize(
    ("master", "loopback"),
    [
        ("local[2]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host:6443", False),
    ],
)
def test_executors_of_other_hosts_do_not_look_for_the_driver_on_their_own(
    master: str, loopback: bool
) -> None:
    assert ("spark.driver.host" in default_settings(master)) is loopback
    assert _MASTER.match(master)


def test_spark_starts_with_log_settings_of_kohort_unless_the_user_has_own_ones(
    tmp_path: Path,
) -> None:
    home = {"SPARK_HOME": str(tmp_path), "SPARK_SUBMIT_OPTS": "-Done=1"}
    options = _with_log_settings(home)["SPARK_SUBMIT_OPTS"]
    assert options.startswith('-Done=1 "-Dlog4j2.configurationFile=/')
    assert Path(options.rpartition("=")[2].strip('"')).is_file()
    named = home | {"SPARK_SUBMIT_OPTS": "-Dlog4j2.configurationFile=/mine"}
    assert _with_log_settings(named) == named
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "log4j2.properties.template").touch()
    assert _with_log_settings(home) != home
    (conf / "log4j2.xml").touch()
    assert _with_log_settings(home) == home
    elsewhere = home | {"SPARK_CONF_DIR": str(tmp_path / "mine")}
    assert _with_log_settings(elsewhere) != elsewhere


@pytest.mark.parametrize("master", ["nonsense", "", "spark://", "locale", "yarn-cluster"])
def test_a_master_that_spark_does_not_know_is_one_line_before_java_starts(master: str) -> None:
    """Java printed ten lines of a stack trace before the line of kohort."""
    with pytest.raises(ConfigError, match=r"--master is .*, expected local\[CORES\], spark://HOST"):
        make_session("test", master)


class Query:
    """A query that is not stopped before a condition holds."""

    def __init__(self, ended: threading.Event) -> None:
        self.stopping = False
        self._ended = ended

    def stop(self) -> None:
        self.stopping = True
        assert self._ended.wait(60)


def test_the_source_leaves_its_group_before_anything_else_of_an_application_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other members waited 0.4 s longer for its partitions while Spark stopped the query."""
    looked: list[tuple[str, ...]] = []
    ended = threading.Event()
    ended.set()
    query = Query(ended)

    def children(*modules: str) -> list[object]:
        if not query.stopping:
            looked.append(modules)
        return []

    monkeypatch.setattr(session, "_children", children)
    session.stop_query(cast("Any", query), own_session=True)
    assert looked[0] == (session._SOURCE,)
    assert session.WORKER_DAEMON in looked[1]


def test_a_source_that_starts_while_its_query_is_stopped_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It found no socket of Spark and printed 20 lines, after SIGTERM at a query's start."""
    ended = threading.Event()
    source, query = SimpleNamespace(pid=os.getpid(), terminate=ended.set), Query(ended)

    def children(*modules: str) -> list[object]:
        return [source] if query.stopping and modules == (session._SOURCE,) else []

    monkeypatch.setattr(session, "_children", children)
    session.stop_query(cast("Any", query), own_session=True)
    assert ended.is_set()


@pytest.mark.skipif(sys.platform != "linux", reason="the masks of signals are in /proc")
def test_a_source_that_still_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM ignores SIGTERM, and so does each process that it starts, up to its own handler."""
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); input(print(flush=True))"
    )
    with psutil.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as source:
        source.stdout.readline()
        monkeypatch.setattr(session, "_children", lambda *_: [source])
        assert session.stop_sources() == [source]
        assert source.wait(60) == -signal.SIGKILL


def test_the_processes_of_a_session_of_the_user_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other queries of the session need them."""
    ended = threading.Event()
    ended.set()
    monkeypatch.setattr(session, "_children", lambda *_: pytest.fail("processes were looked for"))
    session.stop_query(cast("Any", Query(ended)), own_session=False)


def test_ctrl_c_stops_work_in_another_thread_and_waits_for_it() -> None:
    """In the middle of a call of Java it printed 47 lines."""
    begun, stopped = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        threads.append(threading.current_thread())
        begun.set()
        assert stopped.wait(30)

    def interrupt() -> None:
        if begun.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.apart(work, stopped.set, interrupt)
    assert threads[0] is not threading.main_thread()
    assert not threads[0].is_alive()
    assert session.apart(lambda: 7) == 7


def test_ctrl_c_also_stops_a_job_that_begins_only_then() -> None:
    """Spark cancels the jobs that run: the first call found none, and the sweep went on."""
    stops: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    def work() -> None:
        until(lambda: len(stops) > 1, "a second call of stop", 10)

    with pytest.raises(KeyboardInterrupt):
        session.apart(work, lambda: stops.append(1), interrupt)
    assert len(stops) > 1
