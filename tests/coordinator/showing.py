"""Facts, records and answers of the coordinator as lines that a test compares."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kohort.coordinator.interface import (
    DeleteAnswer,
    DescribeAnswer,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    ListAnswer,
    Observe,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    SyncAnswer,
)
from kohort.coordinator.records import GenerationRecord, GroupRecord, Record
from kohort.model.errors import ErrorCode
from kohort.model.facts import OffsetsCommitted

_SILENT_FIELDS = {
    "group_id",
    "client_id",
    "client_host",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "protocol_type",
    "member_count",
    "static_count",
    "group_instance_id",
    "offset_count",
    "size",
}


def show_fact(effect: Observe) -> str:
    fact = effect.fact
    if isinstance(fact, OffsetsCommitted):
        return f"OffsetsCommitted {', '.join(f'{p}={o}' for p, o in fact.offsets)}"
    shown = []
    for spec in fields(fact):
        value = getattr(fact, spec.name)
        if spec.name in _SILENT_FIELDS or value is None or value is ErrorCode.NONE:
            continue
        shown.append(_show_value(spec.name, value))
    return " ".join([type(fact).__name__, *(s for s in shown if s)])


def _show_value(name: str, value: Any) -> str:
    if name == "assignments":
        return " ".join(f"{m}:{a.decode()}" for m, a in value)
    if name == "generation_id":
        return f"generation={value}"
    if isinstance(value, tuple):
        return "[" + " ".join(str(v) for v in value) + "]"
    if isinstance(value, bool):
        return name if value else ""
    if isinstance(value, ErrorCode):
        return value.name
    return str(value)


def show_record(record: Record) -> str:
    if isinstance(record, GroupRecord):
        value = record.value
        if value is None:
            return f"tombstone of group {record.group_id}"
        members = " ".join(f"{m.member_id}:{m.assignment.decode()}" for m in value.members)
        return f"group {record.group_id} generation={value.generation_id} [{members}]"
    if isinstance(record, GenerationRecord):
        if record.value is None:
            return f"tombstone of generations of {record.group_id}"
        places = "".join(f" {i}={m}" for i, m in record.value.static_members)
        return f"generation {record.value.generation_id} of {record.group_id} reserved{places}"
    if record.value is None:
        return f"tombstone of {record.partition}"
    return f"{record.partition}={record.value.offset}"


def show_answer(answer: Any) -> str:  # noqa: C901, PLR0911, PLR0912 - one branch an answer
    match answer:
        case JoinAnswer(error=ErrorCode.NONE):
            members = " ".join(m.member_id for m in answer.members)
            skips = " skips assignment" if answer.skip_assignment else ""
            return (
                f"joined {answer.protocol_name} generation={answer.generation_id} "
                f"leader={answer.leader_id} me={answer.member_id} [{members}]{skips}"
            )
        case JoinAnswer():
            assert not answer.members
            if answer.generation_id >= 0:
                # Only a refused static member gets the generation in its answer.
                return (
                    f"{answer.error.name} generation={answer.generation_id} me={answer.member_id}"
                )
            assert answer.protocol_type is None
            assert answer.protocol_name is None
            return f"{answer.error.name} me={answer.member_id}"
        case SyncAnswer(error=ErrorCode.NONE):
            return f"assigned {answer.assignment.decode()}".rstrip()
        case SyncAnswer():
            assert answer.assignment == b""
            assert answer.protocol_type is None
            assert answer.protocol_name is None
            return answer.error.name
        case HeartbeatAnswer():
            return answer.error.name
        case LeaveAnswer():
            entries = " ".join(f"{m.member_id}:{m.error.name}" for m in answer.members)
            return f"{answer.error.name} [{entries}]"
        case OffsetCommitAnswer():
            return " ".join(f"{p}:{e.name}" for p, e in answer.partitions)
        case OffsetDeleteAnswer():
            return f"{answer.error.name} " + " ".join(f"{p}:{e.name}" for p, e in answer.partitions)
        case OffsetFetchAnswer():
            return "; ".join(
                f"{g.group_id} {g.error.name} "
                + " ".join(f"{p}={'-' if o is None else o.offset}" for p, o in g.offsets)
                for g in answer.groups
            )
        case DescribeAnswer():
            return " ".join(f"{g.group_id}:{g.state}" for g in answer.groups)
        case ListAnswer():
            return " ".join(f"{g.group_id}:{g.state.value}" for g in answer.groups)
        case DeleteAnswer():
            return " ".join(f"{g}:{e.name}" for g, e in answer.groups)
        case _:
            raise AssertionError(answer)
