"""Setup that all tests share: Hypothesis profiles, and the rule for absent peers.

A test that needs a real Kafka, a foreign client or Spark skips where that is absent and says why.
On a machine that must have them (``KOHORT_REQUIRE_PEERS=1``, as ``.ci/run`` sets) the same skip is
a failure.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from tests.class_archive import use_archive
from tests.fast_files import FAST_TESTS, all_slow
from tests.one_worker import OneWorker
from xdist.remote import Producer

# Same examples on every run, so that a red test is about the change at hand. `make check` and the
# run on a second Python say HYPOTHESIS_PROFILE=quick, a tenth of the examples; `search` looks for
# new ones.
hypothesis.settings.register_profile("kohort", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile(
    "quick", deadline=None, derandomize=True, database=None, max_examples=10
)
hypothesis.settings.register_profile("search", deadline=None, max_examples=2_000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "kohort"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the conformance suite (tests/conformance) is pointed."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--bootstrap",
        metavar="HOST:PORT",
        help="play tests/conformance at this broker in place of kohort's own",
    )
    group.addoption(
        "--like",
        choices=["kafka", "kohort"],
        help="with --bootstrap: the model that the broker must follow where the two differ",
    )


def pytest_configure() -> None:
    """A run that is told to end does so as by Ctrl-C: fixtures end what they started.

    Each Spark of the run starts with the archive of classes, if there is one. The garbage collector
    is off while tests are collected: a third of that time, and everything stays. Then it is called
    less often than usual: a test is short, and its objects are few.
    """
    gc.disable()
    gc.set_threshold(20_000, 20, 50)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    use_archive()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of the fast tests does not import the files that have none, a seventh of all.

    Each worker would import these files and the clients and peers that they need.
    """
    if config.option.markexpr != FAST_TESTS or collection_path.suffix != ".py":
        return None
    return all_slow(collection_path.read_text("utf-8")) or None


def pytest_collection_finish() -> None:
    """The garbage collector leaves out the modules and tests, a million objects that stay.

    Else it looks through them again and again, for a fourth of the CPU time of a run. It does not
    look through them before either: that takes 0.3 s in each worker, for 80,000 objects.
    """
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneWorker | None:
    """With ``--dist loadfile`` one worker runs all tests with Spark, one those on a real Kafka."""
    return OneWorker(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Drops the objects of a failed test: else they warn in a later test, which fails, too."""
    failed_before = item.session.testsfailed
    done = yield
    if item.session.testsfailed > failed_before:
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):  # pytest sets them
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return done


PEER_MARKS = ("real_kafka", "interop", "spark")
PEERS_REQUIRED = os.environ.get("KOHORT_REQUIRE_PEERS", "") not in {"", "0"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns the skip of a test that needs a peer into a failure where peers are required."""
    report = yield
    needs_peer = any(item.get_closest_marker(mark) for mark in PEER_MARKS)
    optional = item.get_closest_marker("optional_peer")
    if PEERS_REQUIRED and report.skipped and needs_peer and not optional:
        report.outcome = "failed"
        report.longrepr = f"skipped although KOHORT_REQUIRE_PEERS is set: {_reason(call)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself while it is imported."""
    report = yield
    if PEERS_REQUIRED and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skipped itself although KOHORT_REQUIRE_PEERS is set"
    return report


def _reason(call: pytest.CallInfo[None]) -> str:
    return str(call.excinfo.value) if call.excinfo is not None else "no reason given"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt; a background job of a shell begins with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
