"""Apache Kafka's own tool reads the segments, in every codec and after a compaction."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.java import java_with_kafka
from tests.stored_records import iterate_records

from kohort.storage.compression import CompressionType
from kohort.storage.files import RealFiles
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.records import Record, build_batch
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import absence

NOW = 1_700_000_000_000
RECORD = re.compile(r"\| offset: (\d+) CreateTime: (\d+) .* key: (\S+) payload: (\S+)")

pytestmark = [pytest.mark.real_kafka, pytest.mark.slow]


def dumped(paths: list[str]) -> str:
    if installed() is None:
        pytest.skip(absence())
    command = [
        *java_with_kafka(),
        "org.apache.kafka.tools.DumpLogSegments",
        "--print-data-log",
        "--files",
        ",".join(paths),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@pytest.mark.parametrize("compacted", [False, True], ids=["as appended", "compacted"])
def test_kafkas_dump_tool_prints_the_appended_records(tmp_path: Path, compacted: bool) -> None:
    config = LogConfig(
        segment_bytes=2_000, compact=True, delete=False, min_cleanable_dirty_ratio=0.0
    )
    log = PartitionLog.open(RealFiles(), str(tmp_path / "t-0"), config, report=print)
    for i in range(60):
        records = [Record(b"k%d" % ((3 * i + j) % 17), b"v%d" % i * 3, NOW + i) for j in range(3)]
        log.append(build_batch(records, compression=CompressionType(i % 5)), NOW)
    log.flush()
    if compacted:
        job = log.begin_compaction(NOW)
        assert job is not None
        job.run()
        log.complete_compaction(job)
    expected = []
    for segment in log.segments:
        expected += list(iterate_records(segment.file.pread(segment.size, 0)))
    output = dumped([segment.path for segment in log.segments if segment.size])
    log.close()
    found = [
        Record(key.encode(), value.encode(), int(time), (), int(offset))
        for offset, time, key, value in RECORD.findall(output)
    ]
    assert found == expected
    active = log.log_end_offset - log.segments.active.base_offset
    assert len(found) == (17 + active if compacted else 180)
    assert "isvalid: false" not in output
    assert output.count("isvalid: true") >= 10
