"""The setting ``kohort.member.identity``: a text, the text in a file, or the host's name."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kohort.client.identity import member_identity
from kohort.client.membership import GroupMembership
from kohort.model.errors import ConfigError


def test_a_text_is_an_identity_that_the_next_process_has_too() -> None:
    assert (
        member_identity("orders-7") == member_identity(" orders-7\n") != member_identity("orders")
    )
    assert member_identity("") is None
    assert member_identity("  ") is None


def test_the_text_in_a_file_is_the_identity(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("orders-7\n", encoding="utf-8")
    assert member_identity(f"file:{tmp_path / 'name'}") == member_identity("orders-7")


def test_the_hosts_name_is_the_identity_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "orders-7")
    assert member_identity("host") == member_identity("orders-7")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "but the file cannot be read: "),
        (b"", "expected a file of 1 to 1000 bytes"),
        (b" \n", "expected a file of 1 to 1000 bytes"),
        (b"x" * 1_001, "expected a file of 1 to 1000 bytes"),
    ],
    ids=["missing", "empty", "blank", "too long"],
)
def test_a_file_without_an_identity_is_refused_before_anything_is_sent(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "name"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as refused:
        GroupMembership(
            ["t"], bootstrap_servers="h:1", group_id="g", kohort_member_identity=f"file:{path}"
        )
    assert f"kohort.member.identity is file:{path}, " in str(refused.value)


def test_the_bytes_of_a_file_need_not_be_text(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b"\xff\xfe")
    assert member_identity(f"file:{tmp_path / 'name'}") is not None
