"""The experiment of ``bench.connectors`` with live `Worker` processes on the embedded broker.

Three processes run the connectors of one file. A task does nothing while it runs. To stop a task
lasts as long as in the lab. Only the number of connectors is scaled to the machine.

    python -m bench.connector_processes --connectors 20
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.connectors import (
    REQUEST_MS,
    SETTLED_MS,
    STOP_MS,
    TASKS,
    WHOLE_MB_S,
    WORK_S,
    WORKERS,
    compare,
    done_after_s,
)

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.worker import Configuration, ConnectorTask, Worker
from kohort.history.cost_values import OwnershipInterval
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND, Instant

GROUP: Final = "connect"
_LOOK_S: Final = 0.01
_LONGEST_S: Final = 3_600
_HOURS: Final = Instant(1 << 50)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connectors", type=int, default=20)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(*options.worker)
        return 0
    connectors = options.connectors
    compare(connectors, started("default", connectors), started("compatible", connectors))
    return 0


def started(protocol: str, connectors: int) -> dict[str, float]:
    """As `bench.connectors.started`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(EmbeddedBroker(folder / "data"))
        address = broker.bootstrap_servers
        file = folder / "connectors"
        file.write_text("1", encoding="utf-8")
        crew = [stack.enter_context(_Process(address, protocol, file)) for _ in range(WORKERS)]
        _until_running(crew, TASKS)
        time.sleep(SETTLED_MS / 1_000)
        before = max(process.generation for process in crew)
        begin = time.monotonic()
        for connector in range(2, connectors + 1):
            time.sleep(REQUEST_MS / 1_000)
            new = file.with_suffix(".new")
            new.write_text(str(connector), encoding="utf-8")
            new.replace(file)
            _until_running(crew, TASKS * connector)
        start_s = time.monotonic() - begin
        generations = max(process.generation for process in crew) - before
        intervals = tuple(each for process in crew for each in process.intervals(begin))
    return {
        "start_s": round(start_s, 1),
        "generations": generations,
        "mb_per_s": round(WHOLE_MB_S * WORK_S / done_after_s(intervals), 1),
    }


class _Process:
    """A process with a worker, and the times at which its tasks started and stopped."""

    def __init__(self, address: str, protocol: str, file: Path) -> None:
        command = [sys.executable, "-m", "bench.connector_processes", "--worker"]
        self._process = subprocess.Popen(
            [*command, address, protocol, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: list[tuple[str, str, float]] = []
        self.running = self.generation = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_raised: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            sign, name, at = line.split()
            if sign == "generation":
                self.generation = int(name)
                continue
            self._lines.append((sign, name, float(at)))
            self.running += 1 if sign == "+" else -1

    def intervals(self, begin: float) -> list[OwnershipInterval]:
        """The times of each task at this worker, as if ``begin`` were SETTLED_MS."""

        def instant(at: float) -> Instant:
            return Instant(round((at - begin) * MICROS_PER_SECOND) + SETTLED_MS * MICROS_PER_MILLI)

        found, since = [], dict[str, Instant]()
        for sign, name, at in self._lines:
            if sign == "+":
                since[name] = instant(at)
            else:
                found.append((name, since.pop(name), instant(at)))
        found += [(name, start, _HOURS) for name, start in since.items()]
        return [
            OwnershipInterval(
                partition=TopicPartition(name, 0), owner="", begin=start, ready=start, end=end
            )
            for name, start, end in found
        ]


def _until_running(crew: list[_Process], tasks: int) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while sum(process.running for process in crew) != tasks:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{tasks} tasks do not run within an hour")
        time.sleep(_LOOK_S)


# -- the process of a worker ----------------------------------------------------------------------


def _work(address: str, protocol: str, path: str) -> None:
    file = Path(path)
    read = int(file.read_text(encoding="utf-8"))

    def configuration() -> Configuration:
        return Configuration(offset=read, tasks={f"c{n}": TASKS for n in range(read)})

    def say(sign: str, what: object) -> None:
        sys.stdout.write(f"{sign} {what} {time.monotonic()}\n")
        sys.stdout.flush()

    def told(sign: str, work: ConnectorTask) -> None:
        if not work.is_connector:
            say(sign, work)

    def stop(work: ConnectorTask) -> None:
        if not work.is_connector:
            time.sleep(STOP_MS * WORKERS / 1_000)

    with Worker(
        bootstrap_servers=address,
        group_id=GROUP,
        heartbeat_interval_ms=100,
        max_poll_interval_ms=_LONGEST_S * 1_000,
        protocols=(protocol,),
        configuration=configuration,
        on_start=lambda work: told("+", work),
        on_stopping=lambda work: told("-", work),
        on_stop=stop,
    ) as worker:
        ended = threading.Event()
        threading.Thread(target=_until_closed, args=(ended,), daemon=True).start()
        generation = 0
        while not ended.wait(_LOOK_S):
            if (seen := worker.snapshot().generation) != generation:
                generation = seen
                say("generation", generation)
            now = int(file.read_text(encoding="utf-8"))
            if now != read:
                read = now
                worker.configuration_changed()


def _until_closed(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
