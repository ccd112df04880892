"""What the application's listener hears when its place is lost before it came to poll."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

from kohort.client.application_side import ApplicationSide
from kohort.client.config import parse_client_settings
from kohort.consumer.effects import Callback, RunCallback
from kohort.consumer.events import CallbackDone
from kohort.model.ids import GenerationId, TopicPartition

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def callback(step: int, kind: Callback, *partitions: TopicPartition) -> RunCallback:
    return RunCallback(
        step=step, kind=kind, partitions=frozenset(partitions), generation_id=GenerationId(1)
    )


def told(*due: RunCallback, void_before: int) -> tuple[list, list]:
    posted: list = []
    seat = SimpleNamespace(due=deque(due), void_before=void_before, post=posted.append, error=None)
    heard: list = []
    settings = parse_client_settings({"bootstrap.servers": "localhost:1", "group.id": "g"})
    side = ApplicationSide(
        settings, seat, SimpleNamespace(), lambda kind, tps: heard.append((kind, sorted(tps)))
    )
    side.work_off(commit=True)
    return heard, posted


def test_an_assignment_whose_place_is_lost_is_not_told_and_nor_is_its_loss():
    heard, posted = told(
        callback(1, Callback.ASSIGNED, P), callback(3, Callback.LOST, P), void_before=2
    )
    assert heard == []
    assert posted == [CallbackDone(step=1), CallbackDone(step=3)]


def test_what_was_told_before_is_lost_and_what_was_not_is_left_out():
    heard, _ = told(
        callback(4, Callback.ASSIGNED, P), callback(6, Callback.LOST, P, Q), void_before=2
    )
    assert heard == [(Callback.ASSIGNED, [P]), (Callback.LOST, [P])]


def test_a_revocation_that_came_too_late_is_a_loss():
    heard, _ = told(
        callback(4, Callback.ASSIGNED, P, Q), callback(5, Callback.REVOKED, P), void_before=4
    )
    assert heard == [(Callback.ASSIGNED, [P, Q]), (Callback.REVOKED, [P])]
    heard, _ = told(callback(1, Callback.REVOKED, P), void_before=4)
    assert heard == [], "it never heard that it had it"
