"""One host writes a table with a SQLite ledger: finding S8."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from kohort.cli.spark.table import table
from kohort.host import identity
from kohort.host.identity import HostIdentity, this_host
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers import sqlite_ledger
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.ledgers.one_host import NAME, OneHost
from kohort.spark.ledgers.sqlite_ledger import LEDGER_PATH, SqliteLedger
from kohort.spark.tables import table as tables

HERE = HostIdentity(name="a", machine="m1", boot="b1")
CONTAINER = HostIdentity(name="3f1c9a", boot="b1")
REBOOTED = HostIdentity(name="a", machine="m1", boot="b2")
ELSEWHERE = HostIdentity(name="b", machine="m2", boot="b3")
ELSEWHERE_IN_A_CONTAINER = HostIdentity(name="77aa01", boot="b3")

Be = Callable[[HostIdentity], None]


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch) -> Be:
    """Makes this process a process on a host."""

    def be(host: HostIdentity) -> None:
        for module in (sqlite_ledger, tables):
            monkeypatch.setattr(module, "this_host", lambda: host)

    return be


@pytest.mark.parametrize("second", [HERE, CONTAINER, REBOOTED])
def test_a_container_and_a_rebooted_machine_are_the_same_host(
    tmp_path: Path, be: Be, second: HostIdentity
) -> None:
    be(HERE)
    SqliteLedger(tmp_path, "g").close()
    be(second)
    SqliteLedger(tmp_path, "g").close()
    be(dataclasses.replace(second, name="another-container"))
    SqliteLedger(tmp_path, "g").close()


@pytest.mark.parametrize("second", [ELSEWHERE, ELSEWHERE_IN_A_CONTAINER])
def test_a_second_host_is_refused_before_it_touches_the_ledger(
    tmp_path: Path, be: Be, second: HostIdentity
) -> None:
    be(HERE)
    SqliteLedger(tmp_path, "g").close()
    (tmp_path / LEDGER_PATH).write_bytes(b"would be an error if SQLite opened it")
    be(second)
    with pytest.raises(ConfigError, match=rf"host a writes .* this is host {second.name}") as error:
        SqliteLedger(tmp_path, "g")
    assert f"`kohort table adopt {tmp_path}`" in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in (tmp_path / LEDGER_PATH).parent.iterdir()) == [
        NAME, LEDGER_PATH.name,
    ]  # fmt: skip


def test_an_adopted_table_is_written_by_the_new_host_and_refused_to_the_old_one(
    tmp_path: Path, be: Be
) -> None:
    """The command is the advice of the error message."""
    be(HERE)
    with closing(SqliteLedger(tmp_path, "g")) as running:
        be(ELSEWHERE)
        done = CliRunner().invoke(table, ["adopt", str(tmp_path)])
        assert (done.exit_code, done.stderr) == (
            0, f"host b writes {tmp_path} from now on, host a did before\n",
        )  # fmt: skip
        SqliteLedger(tmp_path, "g").close()
        with pytest.raises(LedgerError, match=r"host b has adopted the table .* from host a"):
            running.acquire([TopicPartition("t", 0)], 1, "m")
        with pytest.raises(LedgerError, match="nothing of this batch was committed"):
            running.commit("app", [])
    be(HERE)
    with pytest.raises(ConfigError, match="host b writes the table"):
        SqliteLedger(tmp_path, "g")


def test_a_table_without_a_note_belongs_to_the_first_host_that_opens_it(
    tmp_path: Path, be: Be
) -> None:
    """Tables of older versions have no note."""
    be(HERE)
    SqliteLedger(tmp_path, "g").close()
    (tmp_path / LEDGER_PATH).with_name(NAME).unlink()
    be(ELSEWHERE)
    SqliteLedger(tmp_path, "g").close()
    be(HERE)
    with pytest.raises(ConfigError, match="host b writes"):
        SqliteLedger(tmp_path, "g")
    with closing(SqliteLedger.of_table(tmp_path)) as reader:
        assert reader.group_id == "g", "a reader may be on any host"


def test_a_damaged_note_is_an_error_and_its_advice_helps(tmp_path: Path, be: Be) -> None:
    be(HERE)
    SqliteLedger(tmp_path, "g").close()
    (tmp_path / LEDGER_PATH).with_name(NAME).write_text("{")
    with pytest.raises(LedgerError, match="kohort table adopt"):
        SqliteLedger(tmp_path, "g")
    assert CliRunner().invoke(table, ["adopt", str(tmp_path)]).exit_code == 0
    SqliteLedger(tmp_path, "g").close()


def test_of_two_hosts_that_open_a_new_table_at_once_one_is_refused(tmp_path: Path) -> None:
    class Late(OneHost):
        """Looks before the other one has written its note."""

        looks = 0

        def noted(self) -> HostIdentity | None:
            self.looks += 1
            return None if self.looks == 1 else super().noted()

    OneHost(tmp_path, HERE).claim()
    with pytest.raises(ConfigError, match="host a writes"):
        Late(tmp_path, ELSEWHERE).claim()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_the_identity_comes_from_the_machine_or_from_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("machine", "m1\n"), ("boot", "b1\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.delenv(identity.VARIABLE, raising=False)
    monkeypatch.setattr(identity, "_MACHINE", tmp_path / "machine")
    monkeypatch.setattr(identity, "_BOOT", tmp_path / "boot")
    found = this_host()
    assert (found.machine, found.boot) == ("m1", "b1")
    assert found.name
    (tmp_path / "machine").write_text("")
    (tmp_path / "boot").unlink()
    assert this_host() == HostIdentity(name=found.name)
    monkeypatch.setenv(identity.VARIABLE, "node-7")
    assert this_host() == HostIdentity(name="node-7")
    OneHost(tmp_path, this_host()).claim()
    assert json.loads((tmp_path / NAME).read_text()) == {
        "name": "node-7", "machine": None, "boot": None,
    }  # fmt: skip
