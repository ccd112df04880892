"""CPU of a read task of Spark, without Spark: from the broker's answer to Arrow columns.

    python -m bench.reading [--broker kafka] [--value-bytes 1024] [--codec none lz4]
                            [--producer-batch 16384] [--buffers 65536 262144]
                            [--fetches 4194304 8388608]

One process reads a topic of two partitions by the function that read tasks call, key and value
only. ``--buffers`` compares sizes of the buffer that the socket is read into, ``--fetches`` values
of ``max.partition.fetch.bytes``; the sizes take turns. The figures are medians of the CPU time of
this process, in microseconds a row. Linux only.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
from itertools import product
from pathlib import Path

from bench.ending import end_with_children
from bench.pipeline import PRODUCER_BATCH, Case, feed, start_broker
from bench.results import emit

from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.connections import client_loop
from kohort.fetch import columns
from kohort.model.ids import TopicPartition
from kohort.spark.source import reading
from kohort.spark.source.options import DEFAULT_FETCH_BYTES
from kohort.spark.source.planning import Piece
from kohort.testing.kafka_jars import installed

PARTITIONS = 2


def cpu_us_a_row(settings: ClientSettings, case: Case, buffer: int) -> float:
    """Read the whole topic in new connections; CPU microseconds a row."""
    vars(client_loop)["_READ_BYTES"] = buffer
    if reading._kept is not None:
        reading._kept[2].close()
        reading._kept = None
    end = case.records // PARTITIONS
    pieces = [
        Piece(partition=TopicPartition(case.topic, number), begin=0, end=end, epoch=-1)
        for number in range(PARTITIONS)
    ]
    before = resource.getrusage(resource.RUSAGE_SELF)
    rows = sum(b.num_rows for b in reading.read_pieces(settings, pieces, columns=["key", "value"]))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert rows == case.records
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(used / rows * 1e6)


def main() -> None:
    """Measure and print."""
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    brokers = ["kohort", "kafka"]
    parser.add_argument("--broker", choices=brokers, default=brokers[installed() is not None])
    parser.add_argument("--value-bytes", type=int, default=1_024)
    parser.add_argument("--codec", nargs="+", default=["none", "lz4"])
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--producer-batch", type=int, default=PRODUCER_BATCH, metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--buffers", nargs="+", type=int, default=[client_loop._READ_BYTES])
    parser.add_argument("--fetches", nargs="+", type=int, default=[DEFAULT_FETCH_BYTES])
    given = parser.parse_args()
    columns.load()
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        folder = Path(name)
        with start_broker(given.broker, folder / "broker") as bootstrap:
            settings = {
                fetch: parse_client_settings(
                    {"bootstrap.servers": bootstrap, "max.partition.fetch.bytes": fetch}
                )
                for fetch in given.fetches
            }
            sizes = list(product(given.buffers, given.fetches))
            for codec in given.codec:
                case = Case(
                    given.broker,
                    given.value_bytes,
                    codec,
                    given.records,
                    given.records,
                    given.producer_batch,
                )
                feed(bootstrap, case, PARTITIONS)
                found: dict[tuple[int, int], list[float]] = {each: [] for each in sizes}
                for turn in range(given.rounds + 1):
                    for buffer, fetch in sizes:
                        used = cpu_us_a_row(settings[fetch], case, buffer)
                        if turn:
                            found[buffer, fetch].append(used)
                for (buffer, fetch), each in found.items():
                    emit(
                        "reading",
                        {
                            "codec": codec,
                            "value_bytes": given.value_bytes,
                            "producer_batch": given.producer_batch,
                            "buffer": buffer,
                            "fetch": fetch,
                            "cpu_us_a_row": round(statistics.median(each), 3),
                            "least": round(min(each), 3),
                        },
                    )
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
