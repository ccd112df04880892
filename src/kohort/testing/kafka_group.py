"""A group of real consumer processes that tests kill, pause and stall.

In: the address of brokers, sizes, an assignor. Out: processes (``kohort verifiable-consumer``) with
the partitions that each of them owns at each moment. Must not know: the caller's test.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from kohort.client.admin import Admin
from kohort.host.last_lines import last_lines
from kohort.model.errors import ConfigError, KohortError
from kohort.testing.holders import Holders

SETTINGS: Final = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
"""The shortest session that brokers permit by default: a killed member is noticed soon."""
_SETTLED_S: Final = 120.0


class NotSettled(KohortError):
    """The group did not give each partition an owner in time."""


class _Member:
    """One member: its process, if it has one at present."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.state = "ended"
        self._command = command
        self.log = Path()
        self.process: subprocess.Popen[str] | None = None
        self.reader: threading.Thread | None = None

    def start(self, read: Callable[[_Member, subprocess.Popen[str]], None]) -> None:
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is for the caller, which ends the members
            )
        self.state = "runs"
        self.reader = threading.Thread(target=read, args=(self, self.process), daemon=True)
        self.reader.start()

    def send(self, number: int) -> None:
        if self.process is None or self.process.poll() is not None:
            raise ConfigError(f"member {self.name} does not run; start it first")
        self.process.send_signal(number)

    def wait(self) -> None:
        """Wait for the end of the process, and until its last event was read."""
        if self.process is not None and self.reader is not None:
            self.process.wait(_SETTLED_S)
            self.reader.join(_SETTLED_S)

    def tail(self) -> str:
        return last_lines(self.log, 5)


class KafkaGroup:
    """A group of consumer processes ``c1``, ``c2``, … on one topic. A context manager.

    A method that disturbs the group returns when the disturbance is over and each partition has an
    owner again. `max_idle_partition_s` has the longest time in which a partition had none.

    Args:
        bootstrap_servers: addresses of the brokers.
        members: their number.
        partitions: of the topic, which is created.
        policy: assignors by wire name or Java class name, comma separated.
        group: the group id; the topic has the same name.
        settings: of the consumers, beside `SETTINGS`.
        changed: called after each change of an owner, in a thread of this group.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        members: int = 3,
        partitions: int = 6,
        policy: str = "cooperative-sticky",
        group: str = "group",
        settings: Mapping[str, object] | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.group = group
        self.partitions = partitions
        self.policy = policy
        self._bootstrap = bootstrap_servers
        self._settings = {**SETTINGS, **(settings or {})}
        self._changed = changed
        self._holders = Holders(partitions)
        self._lock = threading.Condition()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._members = {name: self._member(name) for name in _names(members)}

    def _member(self, name: str) -> _Member:
        settings = {**self._settings, "client.id": name}
        command = [sys.executable, "-m", "kohort", "verifiable-consumer"]
        command += ["--bootstrap-server", self._bootstrap, "--topic", self.group]
        command += ["--group-id", self.group, "--assignment-strategy", self.policy]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return _Member(name, command)

    # -- the beginning and the end ----------------------------------------------------------------

    def start(self) -> Self:
        """Create the topic, start all members, and wait until each partition has an owner.

        Raises:
            NotSettled: a partition had no owner in time.
        """
        with Admin({"bootstrap.servers": self._bootstrap}) as admin:
            admin.create_topic(self.group, self.partitions)
        self._folder = tempfile.TemporaryDirectory(prefix="kohort-group-")
        for name, member in self._members.items():
            member.log = Path(self._folder.name) / name
            member.start(self._read)
        self.wait_settled()
        return self

    def close(self) -> None:
        """Kill all members at once."""
        for member in self._members.values():
            if member.process is not None:
                member.process.kill()  # a paused process, too
                member.wait()
            member.state = "ended"
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_raised: object) -> None:
        self.close()

    # -- disturbances -----------------------------------------------------------------------------

    def kill(self, name: str, back_s: float | None = None) -> None:
        """Kill a member with SIGKILL.

        Args:
            name: of the member.
            back_s: it is started again after this many seconds; None: never.

        Raises:
            ConfigError: there is no such member, or it does not run.
            NotSettled: a partition had no owner in time.
        """
        member = self._named(name)
        member.send(signal.SIGKILL)
        member.state = "killed"
        member.wait()
        if back_s is not None:
            time.sleep(back_s)
            self.restart(name)
        self.wait_settled()

    def stop(self, name: str) -> None:
        """Ask a member to end: it leaves the group. Raises as `kill`."""
        member = self._named(name)
        member.send(signal.SIGTERM)
        member.wait()
        member.state = "ended"
        self.wait_settled()

    def restart(self, name: str) -> None:
        """Start a member that does not run, and wait until the group is settled.

        Raises:
            ConfigError: there is no such member, or it runs.
            NotSettled: a partition had no owner in time.
        """
        member = self._named(name)
        if member.process is not None and member.process.poll() is None:
            raise ConfigError(f"member {name} runs already")
        member.start(self._read)
        self.wait_for(lambda: name in self.owners.values() or len(self.running) > self.partitions)
        self.wait_settled()

    def pause(self, name: str, seconds: float) -> None:
        """Stop a member's process (SIGSTOP) for this many seconds. Raises as `kill`."""
        self._for_a_while(name, seconds, "paused", signal.SIGSTOP, signal.SIGCONT)

    def stall(self, name: str, seconds: float) -> None:
        """A member sends heartbeats, but polls nothing for this many seconds. Raises as `kill`."""
        self._for_a_while(name, seconds, "stalled", signal.SIGUSR1, signal.SIGUSR1)

    def _for_a_while(self, name: str, seconds: float, state: str, first: int, last: int) -> None:
        member = self._named(name)
        member.send(first)
        member.state = state
        time.sleep(seconds)
        member.send(last)
        member.state = "runs"
        self.wait_settled()

    def others_own(self, owners: Mapping[int, str], at: float) -> None:
        """Note the partitions of other clients in the group, which tell nothing here.

        Args:
            owners: by partition, as the group's last record has them.
            at: the present time, in seconds since 1970.
        """
        with self._lock:
            present = self._holders.owners
            for partition, owner in list(present.items()):
                if owner not in self._members and owners.get(partition) != owner:
                    self._holders.gave(owner, [partition], at)
            for partition, owner in owners.items():
                if partition not in present:
                    self._holders.got(owner, [partition], at)
            self._lock.notify_all()

    # -- what is known ----------------------------------------------------------------------------

    @property
    def owners(self) -> dict[int, str]:
        """The present owner of each partition with one, as the members tell it."""
        with self._lock:
            return dict(self._holders.owners)

    @property
    def states(self) -> dict[str, str]:
        """For each member ``runs``, ``paused``, ``stalled``, ``killed`` or ``ended``."""
        return {name: member.state for name, member in self._members.items()}

    @property
    def running(self) -> list[str]:
        """The members with a process."""
        return [name for name, state in self.states.items() if state not in {"killed", "ended"}]

    @property
    def max_idle_partition_s(self) -> float:
        """The longest time in seconds in which a partition that had an owner had none.

        A paused or stalled member owns its partitions until another member gets them.
        """
        with self._lock:
            return self._holders.longest_idle(time.time())

    @property
    def idle_partition_s(self) -> float:
        """The sum over all partitions of the seconds without an owner: partition-seconds."""
        with self._lock:
            return self._holders.idle(time.time())

    def wait_settled(self, timeout_s: float = _SETTLED_S) -> None:
        """Wait until each partition has an owner.

        Raises:
            NotSettled: it has none after this many seconds.
        """
        self.wait_for(lambda: self._holders.complete, timeout_s)

    def wait_for(self, test: Callable[[], bool], timeout_s: float = _SETTLED_S) -> None:
        """Wait until a test of the owners holds; it is tried after each change.

        Raises:
            NotSettled: it does not hold after this many seconds, or all members have ended.
        """
        begun = time.monotonic()
        with self._lock:
            self._lock.wait_for(lambda: test() or self._all_ended(), timeout_s)
            if test():
                return
            held = self._holders.owners
            idle = sorted(set(range(self.partitions)) - held.keys())
        tails = "; ".join(f"{m.name}: {tail}" for m in self._members.values() if (tail := m.tail()))
        raise NotSettled(
            f"group {self.group}: after {time.monotonic() - begun:.0f} s partitions {idle} have no "
            f"owner, members are {self.states}; the ends of their logs: {tails or 'empty'}"
        )

    def _all_ended(self) -> bool:
        processes = [member.process for member in self._members.values()]
        return all(each is None or each.poll() is not None for each in processes)

    def _named(self, name: str) -> _Member:
        found = self._members.get(name)
        if found is None:
            raise ConfigError(f"no member {name!r}; choose among {', '.join(self._members)}")
        return found

    def _read(self, member: _Member, process: subprocess.Popen[str]) -> None:
        """Follow the events of one process until its end."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    self._told(member.name, json.loads(line))
        process.wait()
        with self._lock:
            if member.process is process:
                self._holders.ended(member.name, time.time())
                self._lock.notify_all()
        self._changed()

    def _told(self, name: str, event: Any) -> None:
        what = event.get("name")
        if what not in {"partitions_assigned", "partitions_revoked"}:
            return
        partitions = [each["partition"] for each in event["partitions"]]
        note = self._holders.got if what == "partitions_assigned" else self._holders.gave
        with self._lock:
            note(name, partitions, event["timestamp"] / 1_000)
            self._lock.notify_all()
        self._changed()


def _names(count: int) -> list[str]:
    return [f"c{number}" for number in range(1, count + 1)]
