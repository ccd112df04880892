"""Each block of code in the documents works; it runs on a port of its own."""

from __future__ import annotations

import contextlib
import inspect
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.java import temporary_files_removed
from tests.tidy.blocks import block_with, commands_of
from tests.tidy.terminals import PATIENCE_S, Terminals
from tests.waiting import until

from kohort import Consumer
from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.model.ids import TopicPartition

pytestmark = pytest.mark.slow

README = "README.md"
HISTORY = "docs/howto/check-a-history.md"
TESTING = "docs/howto/test-consumers.md"
KAFKA = "docs/howto/real-kafka.md"
SHARE = "docs/howto/share-resources.md"
HANDOVER = "docs/howto/hand-over-warm.md"
MIRROR = "docs/howto/mirror-topics.md"
FAILURES = "docs/howto/handle-failures.md"
ASYNCIO = "docs/howto/consume-with-asyncio.md"
READ = "docs/howto/read-records.md"
COLUMNS = "docs/howto/consume-columns.md"
STATE = "docs/howto/keep-state.md"
RESTART = "docs/howto/restart-without-moving.md"
CONFLUENT = "docs/howto/from-confluent-kafka.md"
KAFKA_PYTHON = "docs/howto/from-kafka-python.md"
AIOKAFKA = "docs/howto/from-aiokafka.md"
TYPED = "docs/howto/typed-records.md"
MEASURE = "docs/howto/measure-consumers.md"
TUTORIAL = "docs/tutorial/first-pipeline.md"

RUN = (
    (README, "for record in consumer:"),
    (README, "def test_an_order_arrives"),
    (HISTORY, '"kohort.history.file": '),
    (HISTORY, "check_history(history)"),
    (TESTING, "def test_my_consumer"),
    (TESTING, "def test_after_a_restart"),
    (TESTING, "def test_where_another_node_coordinates"),
    (TESTING, "def test_behind_a_bad_network"),
    (TESTING, "with EmbeddedBroker() as broker"),
    (TESTING, "def test_a_killed_member"),
    (KAFKA, "def test_on_a_real_kafka"),
    (HANDOVER, "report_warm"),
    (STATE, "StatefulTasks("),
    (MIRROR, "Mirror("),
    (FAILURES, "DeadLetters("),
    (ASYNCIO, "consumer.batches("),
    (ASYNCIO, "on_revoke=revoked"),
    (READ, "re.compile("),
    (READ, "consumer.assign("),
    (READ, "offsets_for_times("),
    (COLUMNS, "pc.binary_length("),
    (COLUMNS, "pq.write_table("),
    (RESTART, '"kohort.member.identity": '),
    (SHARE, "ResourceGroup("),
    (SHARE, "LeaderElection("),
    (SHARE, "Worker("),
    (RESTART, "consumer.drain()"),
    (CONFLUENT, "from confluent_kafka import"),
    (CONFLUENT, "from kohort import"),
    (KAFKA_PYTHON, "from kafka import"),
    (KAFKA_PYTHON, "from kohort import"),
    (AIOKAFKA, "from aiokafka import"),
    (AIOKAFKA, "from kohort import"),
    (MEASURE, "commit-latency-max"),
    (MEASURE, "ConsumerCollector("),
    (MEASURE, "observe_consumers("),
    (MEASURE, "ResourceGroup("),
    (TYPED, "value_deserializer=order"),
    (TYPED, "AvroDeserializer("),
    (TYPED, "consumer.retry(error.record)"),
    (TUTORIAL, "producer.poll(0.005)"),
    (TUTORIAL, "read_table("),
)
"""Page, and a part of the block that a test here runs."""

KOHORT = (sys.executable, "-m", "kohort.cli.main")
ADDRESSES = re.compile(r"\b(localhost|127\.0\.0\.1):9092\b")


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(temporary_files_removed())
        stack.callback(terminals.end)
        yield terminals


def at(text: str, address: str) -> str:
    """A page's text, for a broker that has another port."""
    assert ADDRESSES.search(text)
    return ADDRESSES.sub(address, text)


def put(address: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def run_test(
    request: pytest.FixtureRequest, page: str, name: str, **defined: Callable[[str], None]
) -> None:
    """Run a test of a page with the fixtures of this run, which kohort's plugin gives to all.

    ``defined``: the functions that the page leaves to the reader.
    """
    scope: dict[str, Any] = {**defined}
    exec(compile(block_with(page, f"def {name}("), page, "exec"), scope)
    wanted = inspect.signature(scope[name]).parameters
    scope[name](**{each: request.getfixturevalue(each) for each in wanted})


def test_the_readmes_consumer(kohort_broker: EmbeddedBroker, terminals: Terminals) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 1)
    terminals.python("consumer", at(block_with(README, "for record in consumer:"), address))

    def put_one() -> None:
        put(address, "orders", b"one")
        time.sleep(0.2)

    # The consumer reads only records that come after its join.
    until(lambda: terminals.said("consumer"), "a record", PATIENCE_S, between=put_one)
    said = terminals.said("consumer")
    assert re.fullmatch(r"orders 0 \d+ b'one'", said.splitlines()[0])


@pytest.mark.parametrize(
    ("page", "part"),
    [
        (RESTART, '"kohort.member.identity": '),
        (HANDOVER, "report_warm"),
    ],
)
def test_a_consumer_of_the_pages_about_restarts_and_handover(
    kohort_broker: EmbeddedBroker, terminals: Terminals, page: str, part: str
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 1)
    (terminals.folder / "page.py").write_text(at(block_with(page, part), address))
    assert terminals.run("page", sys.executable, "page.py") == ""


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("LeaderElection(", r"leading with token \d+\n"),
        ("Worker(", r"start clicks-to-s3\nstart clicks-to-s3-0\n"),
    ],
)
def test_a_block_of_the_page_about_resources(
    kohort_broker: EmbeddedBroker, terminals: Terminals, part: str, said: str
) -> None:
    (terminals.folder / "page.py").write_text(
        at(block_with(SHARE, part), kohort_broker.bootstrap_servers)
    )
    assert re.match(said, terminals.run("page", sys.executable, "page.py"))


@pytest.mark.parametrize(
    ("page", "part", "begins", "ends"),
    [
        (RESTART, "consumer.drain()", "b'one'\n", ""),
        (SHARE, "ResourceGroup(", "crawl ['shard-0', ", "stop ['shard-0', "),
    ],
)
def test_a_program_that_ends_at_sigterm(
    kohort_broker: EmbeddedBroker,
    terminals: Terminals,
    page: str,
    part: str,
    *,
    begins: str,
    ends: str,
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 1)
    process = terminals.python("page", at(block_with(page, part), address))

    def put_one() -> None:
        put(address, "orders", b"one")  # a consumer reads what comes after it has joined
        time.sleep(0.2)

    until(
        lambda: terminals.said("page").startswith(begins),
        lambda: terminals.said("page"),
        PATIENCE_S,
        between=put_one,
    )
    process.terminate()
    assert process.wait(PATIENCE_S) == 0, terminals.said("page")
    assert ends in terminals.said("page")


def test_the_program_that_counts_words(kohort_broker: EmbeddedBroker, terminals: Terminals) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("lines", 1)
        put(address, "lines", b"to be or not to be", b"to do")
        process = terminals.python("words", at(block_with(STATE, "StatefulTasks("), address))
        until(
            lambda: [at.offset for at in admin.committed("words").values()] == [2],
            lambda: terminals.said("words"),
            PATIENCE_S,
        )
    process.terminate()
    assert process.wait(PATIENCE_S) == 0, terminals.said("words")
    with contextlib.closing(sqlite3.connect(terminals.folder / "state/words/lines/0.db")) as base:
        counted = dict(base.execute("SELECT key, value FROM entries"))
    assert counted == {b"to": b"3", b"be": b"2", b"or": b"1", b"not": b"1", b"do": b"1"}


def test_the_program_that_mirrors_a_topic(
    kohort_broker: EmbeddedBroker, terminals: Terminals
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 1)
        put(address, "orders", b"one", b"two")
        process = terminals.python("mirror", at(block_with(MIRROR, "Mirror("), address))
        until(
            lambda: [at.offset for at in admin.committed("mirror").values()] == [2],
            lambda: terminals.said("mirror"),
            PATIENCE_S,
        )
        copy = TopicPartition("backup.orders", 0)
        assert admin.list_offsets([copy])[copy].offset == 2
    process.terminate()
    assert process.wait(PATIENCE_S) == 0, terminals.said("mirror")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("re.compile(", "2 records\n"),
        ("consumer.assign(", "2 records of 1 partition\n"),
        ("offsets_for_times(", "records of the last hour: 2\n"),
    ],
)
def test_the_programs_that_read_records(
    kohort_broker: EmbeddedBroker, terminals: Terminals, part: str, said: str
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders-eu", 1)
    put(address, "orders-eu", b"one", b"two")
    (terminals.folder / "page.py").write_text(at(block_with(READ, part), address))
    assert terminals.run("page", sys.executable, "page.py") == said


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("pc.binary_length(", "2 rows, 6 bytes of values\n"),
        ("pq.write_table(", "2 archived\n"),
    ],
)
def test_the_programs_that_read_columns(
    kohort_broker: EmbeddedBroker, terminals: Terminals, part: str, said: str
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 1)
    put(address, "orders", b"one", b"two")
    (terminals.folder / "page.py").write_text(at(block_with(COLUMNS, part), address))
    assert terminals.run("page", sys.executable, "page.py") == said


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            "commit-latency-max",
            r"records-consumed-total 1\nrebalance-total 1\ncommit-latency-max [\d.]+\n",
        ),
        ("ConsumerCollector(", r"kohort_consumer_records_consumed_total\{[^}]+\} 1.0\n"),
        ("observe_consumers(", r"1 records\n"),
        ("ResourceGroup(", r"2 \d+\.\d+\n"),
    ],
)
def test_the_programs_that_measure(
    kohort_broker: EmbeddedBroker, terminals: Terminals, part: str, said: str
) -> None:
    address = kohort_broker.bootstrap_servers
    put(address, "orders", b"one")
    (terminals.folder / "page.py").write_text(at(block_with(MEASURE, part), address))
    assert re.search(said, terminals.run("page", sys.executable, "page.py"))


@pytest.mark.parametrize(
    ("page", "before"),
    [
        (CONFLUENT, "from confluent_kafka import"),
        (KAFKA_PYTHON, "from kafka import"),
        (AIOKAFKA, "from aiokafka import"),
    ],
)
def test_the_programs_before_and_after_a_move_share_their_group(
    kohort_broker: EmbeddedBroker, terminals: Terminals, page: str, before: str
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 2)

        def wait(done: Callable[[], bool]) -> None:
            until(done, lambda: terminals.said("old"), PATIENCE_S)

        def shares() -> list[int]:
            members = admin.describe_group("billing").members
            return sorted(len(member.partitions or ()) for member in members)

        def committed() -> int:
            return sum(position.offset for position in admin.committed("billing").values())

        old = terminals.python("old", at(block_with(page, before), address))
        put(address, "orders", b"one", b"two")
        wait(lambda: committed() == 2)
        new = terminals.python("new", at(block_with(page, "from kohort import"), address))
        wait(lambda: shares() == [1, 1])
        old.terminate()
        assert old.wait(PATIENCE_S) == 0, terminals.said("old")
        wait(lambda: shares() == [2])
        put(address, "orders", b"three")
        wait(lambda: committed() == 3)
    new.terminate()
    assert new.wait(PATIENCE_S) == 0, terminals.said("new")
    values = [re.findall(r"b'\w+'", terminals.said(name)) for name in ("old", "new")]
    assert (sorted(values[0]), values[1]) == (["b'one'", "b'two'"], ["b'three'"])


@pytest.mark.parametrize(
    ("part", "said"), [("consumer.batches(", "2 stored\n"), ("on_revoke=revoked", "gave up 1\n")]
)
def test_the_programs_with_asyncio(
    kohort_broker: EmbeddedBroker, terminals: Terminals, part: str, said: str
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 1)
    put(address, "orders", b"one", b"two")
    (terminals.folder / "page.py").write_text(at(block_with(ASYNCIO, part), address))
    assert terminals.run("page", sys.executable, "page.py") == said


def test_the_program_that_handles_failures(
    kohort_broker: EmbeddedBroker, terminals: Terminals
) -> None:
    address = kohort_broker.bootstrap_servers
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 1)
        admin.create_topic("payments-dead", 1)
        put(address, "orders", b"broken", b"later", b"fine")
        program = at(block_with(FAILURES, "DeadLetters("), address)
        terminals.python("failures", program)
        terminals.until("failures", lambda said: "paid" in said)
        dead = TopicPartition("payments-dead", 0)
        assert admin.list_offsets([dead])[dead].offset == 2
    assert terminals.said("failures").splitlines() == [
        "set aside b'broken'",
        "gave up b'later'",
        "paid b'fine'",
    ]


@pytest.mark.parametrize(
    ("page", "part"),
    [(README, "def test_an_order_arrives"), (TESTING, "def test_a_killed_member")],
)
def test_a_test_of_a_page(tmp_path: Path, page: str, part: str) -> None:
    """In a pytest of its own, so that pytest finds kohort's plugin as a reader's pytest does."""
    block = block_with(page, part)
    (tmp_path / "test_page.py").write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


CONNECTING = """
from kohort import Consumer
from kohort.client.admin import Admin


def connect(bootstrap_servers):
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        if "t" not in admin.topics():
            admin.create_topic("t")
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(0.1)
"""


def connect(bootstrap_servers: str) -> None:
    scope: dict[str, Any] = {}
    exec(CONNECTING, scope)
    scope["connect"](bootstrap_servers)


@pytest.mark.parametrize(
    "name",
    [
        "test_my_consumer",
        "test_after_a_restart",
        "test_where_another_node_coordinates",
    ],
)
def test_the_fixtures(request: pytest.FixtureRequest, name: str) -> None:
    run_test(request, TESTING, name, run_my_consumer=connect)


def test_the_fault_proxy(request: pytest.FixtureRequest) -> None:
    # The consumer of this page stays, so that it is there to lose its answer.
    stop = threading.Event()
    started: list[threading.Thread] = []

    def stay(bootstrap_servers: str) -> None:
        with Consumer(bootstrap_servers=bootstrap_servers, group_id="g") as consumer:
            consumer.subscribe(["t"])
            while not stop.is_set():
                consumer.poll(0.1)

    def run_my_consumer(bootstrap_servers: str) -> None:
        started.append(threading.Thread(target=stay, args=(bootstrap_servers,)))
        started[0].start()

    try:
        run_test(request, TESTING, "test_behind_a_bad_network", run_my_consumer=run_my_consumer)
    finally:
        stop.set()
        for thread in started:
            thread.join()


def test_a_broker_without_pytest(terminals: Terminals) -> None:
    block = block_with(TESTING, "with EmbeddedBroker() as broker")
    terminals.python("alone", f"{CONNECTING}\n{block}").wait(PATIENCE_S)
    assert terminals.said("alone") == ""


@pytest.mark.real_kafka
def test_the_fixture_of_a_real_kafka(request: pytest.FixtureRequest) -> None:
    run_test(request, KAFKA, "test_on_a_real_kafka", connect=connect)


def test_a_history_that_is_recorded_and_checked(terminals: Terminals) -> None:
    record = block_with(HISTORY, '"kohort.history.file": ')
    terminals.python("record", record).wait(PATIENCE_S)
    assert terminals.said("record") == ""
    (words,) = [
        words
        for words in commands_of(block_with(HISTORY, "kohort check broker.jsonl"))
        if words[0] == "check"
    ]
    there = [word for word in words if word != "orders-1.jsonl"]
    assert " 0 violated" in terminals.run("check", *KOHORT, *there)
    program = block_with(HISTORY, "check_history(history)") + "print(*groups)\n"
    terminals.python("program", program).wait(PATIENCE_S)
    assert terminals.said("program") == "orders\n"


def test_the_readmes_lab(terminals: Terminals) -> None:
    (words,) = [w for w in commands_of(block_with(README, "lab run")) if w[:2] == ["lab", "run"]]
    assert " 0 violated" in terminals.run("lab", *KOHORT, *words)
