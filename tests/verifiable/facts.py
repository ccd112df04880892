"""Histories for ``kohort check`` from the events of verifiable consumers.

kohort's consumers record histories themselves. For other clients their own events show the
ownership: it begins with an assignment and ends with a revocation, the close or the kill. These
events have milliseconds, so an assignment counts from the next millisecond on and a revocation at
the beginning of its millisecond: an overlap that is found is real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.verifiable.judge import Event, Member, places

from kohort.host.clock import clock_name, wall_micros_at_zero
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    ClientFact,
    CommitConcluded,
    CommitSent,
    Outcome,
    ProcessKilled,
    ProcessStarted,
    ProcessStopped,
    RecordsDelivered,
)
from kohort.model.history_record import Recorded
from kohort.model.ids import NO_GENERATION, NO_MEMBER, GroupId, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.storage.fact_files import Header, write_history


def write_events(member: Member, group_id: str, path: Path) -> Path:
    """Write the history of a client that records none; returns ``path``."""
    zero = wall_micros_at_zero()
    group = GroupId(group_id)
    at = Instant(0)
    found: list[Recorded] = []

    def add(event: Event, fact: ClientFact, later_micros: int = 0) -> None:
        nonlocal at
        told = event["timestamp"] * MICROS_PER_MILLI - zero + later_micros
        at = Instant(max(at, told))
        number = len(found) + 1
        found.append(Recorded(sequence=number, at=at, incarnation=1, source=path.stem, fact=fact))

    add(member.events[0], ProcessStarted(group_id=group, client_id=member.name))
    for number, event in enumerate(member.events):
        later = MICROS_PER_MILLI if event["name"] == "partitions_assigned" else 0
        for fact in _facts(event, group, number):
            add(event, fact, later)
    write_history(path, found, Header(clock=clock_name(), wall_micros=zero))
    return path


def _facts(event: Event, group: GroupId, number: int) -> Iterator[ClientFact]:
    match event["name"]:
        case "partitions_assigned":
            yield from _callback(event, group, CallbackKind.ASSIGNED)
        case "partitions_revoked":
            yield from _callback(event, group, CallbackKind.REVOKED)
        case "records_consumed":
            for row in event["partitions"]:
                yield RecordsDelivered(
                    group_id=group,
                    partition=TopicPartition(row["topic"], row["partition"]),
                    first=row["minOffset"],
                    last=row["maxOffset"],
                )
        case "offsets_committed":
            rows = event["offsets"]
            offsets = tuple((TopicPartition(r["topic"], r["partition"]), r["offset"]) for r in rows)
            outcome = Outcome.OK if event["success"] else Outcome.UNKNOWN
            yield CommitSent(group_id=group, request=number, offsets=offsets)
            yield CommitConcluded(group_id=group, request=number, outcome=outcome)
        case "shutdown_complete":
            yield ProcessStopped(group_id=group)
        case "killed":
            yield ProcessKilled(group_id=group)
        case _:
            pass


def _callback(event: Event, group: GroupId, kind: CallbackKind) -> Iterator[ClientFact]:
    partitions = tuple(TopicPartition(*place) for place in places(event))
    for make in (CallbackStarted, CallbackEnded):
        yield make(
            group_id=group,
            member_id=NO_MEMBER,
            generation_id=NO_GENERATION,
            kind=kind,
            partitions=partitions,
        )
