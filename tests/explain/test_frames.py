"""Lines in the frames of brokers, clients and containers."""

from __future__ import annotations

import json
from calendar import timegm

import pytest

from kohort.explain.events import Kind
from kohort.explain.lines.frames import framed
from kohort.explain.lines.times import time_in
from kohort.explain.reading import LogReader

NOON = float(timegm((2026, 3, 1, 12, 0, 0)))
TEXT = "Stabilized group g generation 5 with 2 members."

LINES = {
    "kafka": f"[2026-03-01 12:00:00,250] INFO {TEXT} (kafka.coordinator.group.GroupCoordinator)",
    "strimzi": f"2026-03-01 12:00:00,250 INFO {TEXT} (kafka.coordinator.group.X) [executor-X]",
    "cut": f"[2026-03-01 12:00:00,250] INFO {TEXT} (kafka.coordinator.gro",
    "spring": f"2026-03-01 12:00:00.250  INFO 1 --- [main] o.a.k.X  : {TEXT}",
    "iso": f"2026-03-01T12:00:00.250Z {TEXT}",
    "zone": f"2026-03-01T14:00:00.250+02:00 {TEXT}",
    "cri": f"2026-03-01T12:34:56.1Z stdout F [2026-03-01 12:00:00,250] INFO {TEXT}",
    "compose": f"kafka_1  | [2026-03-01 12:00:00,250] INFO {TEXT}",
    "pod": f"[pod/kafka-0/kafka] [2026-03-01 12:00:00,250] INFO {TEXT}",
    "logstash": json.dumps({"@timestamp": "2026-03-01T12:00:00.250Z", "message": TEXT}),
    "docker": json.dumps(
        {"log": f"[2026-03-01 12:00:00,250] INFO {TEXT}\n", "time": "2026-03-01T12:00:09Z"}
    ),
    "json with a tail": json.dumps({"timestamp": "2026-03-01T12:00:00.250Z", "message": TEXT})
    + "}",
    "colours": f"\x1b[36mkafka-1  |\x1b[0m [2026-03-01 12:00:00,250] INFO {TEXT}\x1b[0m",
    "google": json.dumps(
        {"jsonPayload": {"message": TEXT}, "timestamp": "2026-03-01T12:00:00.250Z"}
    ),
    "log4j's json": json.dumps(
        {"instant": {"epochSecond": int(NOON), "nanoOfSecond": 250_000_000}, "message": TEXT}
    ),
    "kibana": json.dumps(
        {"_source": {"message": [TEXT], "@timestamp": "2026-03-01T12:00:00.250Z"}}
    ),
    "a month's name": f"01 Mar 2026 12:00:00,250 INFO {TEXT}",
    "american": f"Mar 1, 2026 12:00:00.250 PM {TEXT}",
    "day first": f"01.03.2026 12:00:00,250 {TEXT}",
    "an ordinal": f"March 1st 2026, 12:00:00.250 {TEXT}",
    "spark": f"26/03/01 12:00:00,250 INFO ConsumerCoordinator: {TEXT}",
    "structlog": json.dumps({"event": TEXT, "timestamp": "2026-03-01T12:00:00.250Z"}),
    "an object as the message": json.dumps(
        {"timestamp": "2026-03-01 12:00:00,250", "message": {"type": "END", "reason": TEXT}}
    ),
    "zap": f'2026-03-01T12:00:00.250Z\tinfo\tkzap.go:9\t{TEXT}\t{{"resource": {{"a": 1}}}}',
    "winston": json.dumps({"msg": f'INFO {TEXT} {{"timestamp":"2026-03-01T12:00:00.250Z"}}'}),
    "kibana's table": "\tMar 1, 2026 @ 12:00:00.250\t" + json.dumps({"msg": TEXT}),
    "quoted in a mail": f"> [2026-03-01 12:00:00,250] INFO {TEXT}",
    "a web page": f"[2026-03-01 12:00:00,250] INFO {TEXT} (kafka.coordinator.group.X)<br>",
    "a row of a table": f"| [2026-03-01 12:00:00,250] INFO {TEXT} |",
    "a context behind the logger": f"[2026-03-01 12:00:00,250] INFO {TEXT} (kafka.x.X) {{a=b}}",
    "columns behind the logger": f"[2026-03-01 12:00:00,250] INFO {TEXT} "
    "(kafka.coordinator.group.GroupCoordinator),2026-03-01",
    "a zone behind a space": f"2026-03-01 14:00:00.250 +0200 INFO {TEXT}",
    "a colon before the milliseconds": f"2026-03-01 12:00:00:250 INFO {TEXT}",
    "dots in the date": f"2026.03.01 12:00:00.250 INFO {TEXT}",
    "no marks in the date": f"20260301 12:00:00.250 INFO {TEXT}",
    "no marks at all": f"20260301T120000.250Z INFO {TEXT}",
    "german, short": f"1.3.26 12:00:00,250 INFO {TEXT}",
    "german": f"1. März 2026 12:00:00,250 INFO {TEXT}",
    "french": f"01-mars-2026 12:00:00.250 INFO {TEXT}",
    "the year last": f"Sun Mar  1 12:00:00.250 UTC 2026 {TEXT}",
    "a narrow space": f"Mar 1, 2026, 12:00:00.250\u202fPM {TEXT}",
    "milliseconds in front": f"{int(NOON)}250 INFO {TEXT}",
    "journald's json": json.dumps({"__REALTIME_TIMESTAMP": f"{int(NOON)}250000", "MESSAGE": TEXT}),
    "datadog": json.dumps(
        {"attributes": {"message": TEXT, "timestamp": "2026-03-01T12:00:00.250Z"}}
    ),
    "azure": json.dumps({"TimeGenerated": "2026-03-01T12:00:00.250Z", "LogEntry": TEXT}),
    "opentelemetry": json.dumps(
        {"timeUnixNano": f"{int(NOON)}250000000", "body": {"stringValue": TEXT}}
    ),
    "logback's json": json.dumps({"timestamp": f"{int(NOON)}250", "formattedMessage": TEXT}),
    "librdkafka behind a local time": f"2026-03-01 20:00:00|{int(NOON)}.250|JOIN|x| {TEXT}",
    "librdkafka": f"%7|{int(NOON)}.250|JOIN|rdkafka#consumer-1| [thrd:main]: {TEXT}",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_the_time_and_the_text_of_a_line(line: str) -> None:
    found = framed(line)
    assert found.at == NOON + 0.25
    assert found.dated
    assert found.text.endswith(TEXT)


def test_containers_are_sources() -> None:
    assert framed(LINES["compose"]).source == "kafka_1"
    assert framed(LINES["pod"]).source == "kafka-0/kafka"
    assert framed(LINES["kafka"]).source == ""


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("22:33:44.055 [INFO]", 81_224.055),
        ("12:52:01 PM consumer.1 |", 46_321.0),
        ("12:52:01 AM consumer.1 |", 3_121.0),
        ("no time here: 10:20", None),
        ("WARNING:kafka.coordinator:Heartbeat", None),
    ],
)
def test_times_without_a_date(text: str, at: float | None) -> None:
    assert time_in(text) == (at, False)


def test_a_date_that_may_be_of_two_days_is_no_date() -> None:
    assert time_in("03/01/2026 12:00:00.5 x") == (43_200.5, False)
    assert time_in("13/02/2026 12:00:00 x") == time_in("02-13-2026 12:00:00 x")
    assert time_in("2/13/26, 12:00:00 PM x") == time_in("2/13/2026 12:00:00 x")
    assert time_in("02/03/26 12:00:00 x") == (43_200, False)
    assert time_in("3/3/2026 12:00:00 x")[1]


def test_a_line_of_a_spreadsheet_or_of_a_web_page_is_read() -> None:
    reader = LogReader("export.csv")
    quoted = f'1772366400250,"{LINES["kafka"]}",'
    escaped = "kafka  | Group &quot;g&quot; coordinator is b"
    events = reader.read(1, quoted) + reader.read(2, escaped)
    assert [(event.kind, event.group) for event in events] == [
        (Kind.STABILIZED, "g"),
        (Kind.COORDINATOR_FOUND, "g"),
    ]


@pytest.mark.parametrize(
    "text", ["{", '{"a": ', "{" * 5_000, '{"message": 5}', "[1, 2]", "\x00\x1b[2J"]
)
def test_damaged_lines_are_texts(text: str) -> None:
    framed(text)


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"level": "info", "ts": "2026-03-01T12:00:00.25Z", "msg": "joining group",
                    "group": "g"}),
        'time="2026-03-01T12:00:00.25Z" level=info msg="joining group" group=g',
        "[INFO] joining group; group: g",
    ],
)  # fmt: skip
def test_values_of_a_message_may_be_fields_of_their_own(line: str) -> None:
    (event,) = LogReader("go.log").read(1, line)
    assert (event.kind, event.group, event.maker) == (Kind.JOINING, "g", "franz-go")


def test_sarama_tells_its_group_in_front() -> None:
    reader = LogReader("go.log")
    text = "[sarama] 2026/03/01 12:00:00 consumergroup/g: lost ownership of map[t:[0 1]] due to x"
    (event,) = reader.read(1, text)
    assert (event.kind, event.group, event.maker) == (Kind.LOST, "g", "sarama")
    assert (event.at, event.dated) == (NOON, True)


@pytest.mark.parametrize("told", [1_772_366_400.25, 1_772_366_400_250, "1772366400.250"])
def test_json_lines_may_have_seconds_or_milliseconds(told: object) -> None:
    found = framed(json.dumps({"ts": told, "msg": TEXT}))
    assert (found.at, found.dated, found.text) == (NOON + 0.25, True, TEXT)


def test_numbers_that_are_no_date_are_no_time() -> None:
    assert time_in("2026-13-45 99:99:99,999 of 9999-01-01T00:00:00")[1] is False
