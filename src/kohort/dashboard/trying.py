"""Comparisons of policies and settings for a dashboard, one at a time, in processes of their own.

In: the name of a group, changes of policies and settings. Out: messages for browsers: the progress,
then the costs side by side. Must not know: HTTP, how evidence is read.

The comparison runs in a thread that gives the runs to other processes, so that the page stays
quick. A cancelled comparison ends its processes at once.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kohort.explain.deployments import Deployment
from kohort.history.cost_values import Metrics
from kohort.lab.changes import (
    IN_FORCE,
    SETTINGS,
    Change,
    check_change,
    checked_setting,
    sensible_changes,
)
from kohort.lab.compared_policies import COMPARED_POLICIES, compared_policy
from kohort.lab.what_if import COLUMNS, Job, collect, jobs, measured_run
from kohort.lab.what_if_words import (
    cost_cells,
    evidence_cells,
    figure_rows,
    guessed,
    headline,
    run_picture,
    verdict,
)
from kohort.model.errors import ConfigError, KohortError

MOST_CHANGES: Final = 8
MOST_SEEDS: Final = 20
_LOOK_S: Final = 0.2
"""A run under way is given up so soon after the comparison was cancelled."""

_END_S: Final = 5.0

Find = Callable[[str], Deployment]
"""The name of a group -> its deployment in the evidence."""


class Busy(ConfigError):
    """Another comparison is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A comparison that a browser asks for.

    Attributes:
        group: its name.
        changes: to compare with the present; empty: those that fit the events.
        seeds: runs of each.
    """

    group: str
    changes: tuple[Change, ...]
    seeds: int

    @classmethod
    def of(cls, values: object) -> Wanted:
        """The comparison in the JSON of a request.

        Raises:
            ConfigError: it is none; the message names the wrong value.
        """
        if not isinstance(values, Mapping) or not isinstance(values.get("group"), str):
            raise ConfigError("expected an object with a group, changes and seeds")
        given, seeds = values.get("changes", []), values.get("seeds", 5)
        if not isinstance(given, list) or len(given) > MOST_CHANGES:
            raise ConfigError(f"expected a list of at most {MOST_CHANGES} changes")
        if not isinstance(seeds, int) or not 1 <= seeds <= MOST_SEEDS:
            raise ConfigError(f"{seeds!r} runs: expected 1 to {MOST_SEEDS}")
        return cls(group=values["group"], changes=tuple(map(_change, given)), seeds=seeds)


def _change(values: object) -> Change:
    if not isinstance(values, Mapping):
        raise ConfigError("a change is an object with a policy and settings")
    policy, texts = values.get("policy", ""), values.get("settings", "")
    if not isinstance(policy, str) or not isinstance(texts, str):
        raise ConfigError("the policy and the settings of a change are texts")
    if policy:
        compared_policy(policy)
    settings = []
    for text in texts.replace(",", " ").split():
        name, sign, value = text.partition("=")
        if not sign:
            raise ConfigError(f"{text!r}: expected NAME=VALUE")
        settings.append(checked_setting(name, value))
    if not policy and not settings:
        raise ConfigError("a change without a policy and without settings changes nothing")
    told = [policy] * bool(policy) + [f"{name}={value}" for name, value in settings]
    return Change(title=", ".join(told), policy=policy, settings=tuple(settings))


class Trying:
    """The comparisons of one dashboard.

    Args:
        find: reads the evidence about a group; called in a thread.
        processes: runs at a time.
    """

    def __init__(self, find: Find, processes: int = 1) -> None:
        self._find = find
        self._processes = processes
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None
        self._latest: tuple[int, dict[str, Any]] = 0, {"state": "none"}

    @staticmethod
    def choices() -> dict[str, Any]:
        """The policies and the settings that a change may have."""
        policies = [[each.name, each.title] for each in COMPARED_POLICIES.values()]
        return {"policies": policies, "settings": list(SETTINGS), "most": MOST_CHANGES}

    def begin(self, wanted: Wanted) -> None:
        """Begin a comparison.

        Raises:
            Busy: another one is under way.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise Busy("a comparison is under way; wait for its end, or cancel it")
            self._cancelled.clear()
            self._thread = threading.Thread(target=self._try, args=(wanted,), daemon=True)
            self._tell(wanted, "reading")
            self._thread.start()

    def cancel(self) -> None:
        """Give up the comparison that is under way, if there is one."""
        self._cancelled.set()

    def end(self) -> None:
        """Give up, and wait for the end of the processes."""
        self.cancel()
        if (thread := self._thread) is not None:
            thread.join(_END_S)

    def news(self, version: int) -> tuple[int, dict[str, Any]] | None:
        """The state of the last comparison, if its version is another one."""
        latest = self._latest
        return None if version == latest[0] else latest

    def _tell(self, wanted: Wanted, state: str, **values: object) -> None:
        told = {"group": wanted.group, "state": state, **values}
        self._latest = self._latest[0] + 1, told

    def _try(self, wanted: Wanted) -> None:
        try:
            self._compare(wanted)
        except KohortError as error:
            self._tell(wanted, "failed", why=str(error))
        except Exception as error:
            self._tell(wanted, "failed", why=f"{type(error).__name__}: {error}")

    def _compare(self, wanted: Wanted) -> None:
        deployment = self._find(wanted.group)
        changes = list(wanted.changes) or sensible_changes(deployment)
        for change in (Change(title=IN_FORCE), *changes):
            check_change(deployment, change)
        runs = jobs(deployment, changes, range(1, wanted.seeds + 1))
        done: list[tuple[Job, Metrics]] = []
        pictures: dict[Change, dict[str, Any] | None] = {}
        self._tell(wanted, "running", done=0, total=len(runs))
        for job, metrics, picture in self._runs(runs):
            done.append((job, metrics))
            if job.seed == 1:
                pictures[job.change] = picture
            self._tell(wanted, "running", done=len(done), total=len(runs))
        if len(done) < len(runs):
            self._tell(wanted, "cancelled")
        else:
            self._tell(wanted, "done", **outcome_values(deployment, runs, done, pictures))

    def _runs(self, wanted: Sequence[Job]) -> Iterator[Done]:
        """The results as they come, until the comparison is cancelled."""
        if self._cancelled.is_set():
            return
        context = multiprocessing.get_context("spawn")  # a fork would copy the server's threads
        with context.Pool(min(self._processes, len(wanted))) as pool:  # its end kills processes
            results = pool.imap_unordered(do_with_picture, wanted)
            left = len(wanted)
            while left and not self._cancelled.is_set():
                try:
                    yield results.next(timeout=_LOOK_S)
                    left -= 1
                except multiprocessing.TimeoutError:
                    continue


Done = tuple[Job, Metrics, dict[str, Any] | None]
"""A run, its costs, and the picture of the owners in the first run of a change."""


def do_with_picture(job: Job) -> Done:
    """Do one run."""
    measured = measured_run(job)
    return job, measured.metrics, run_picture(measured) if job.seed == 1 else None


def outcome_values(
    deployment: Deployment,
    runs: Sequence[Job],
    done: Sequence[tuple[Job, Metrics]],
    pictures: Mapping[Change, dict[str, Any] | None],
) -> dict[str, Any]:
    """The costs for a page: the present first."""
    outcomes = collect(runs, done)
    most = max(each.mean("unavailable_ms") + each.spread("unavailable_ms") for each in outcomes)
    return {
        "headline": headline(deployment),
        "notes": list(deployment.notes),
        "figures": figure_rows(deployment),
        "guessed": guessed(deployment),
        "columns": [heading for _, heading in COLUMNS],
        "evidence": evidence_cells(deployment, ""),
        "most": most,
        "outcomes": [
            {
                "cells": cost_cells(each, outcomes[0]),
                "dead": each.mean("unavailable_ms"),
                "spread": each.spread("unavailable_ms"),
                "picture": pictures.get(each.change),
            }
            for each in outcomes
        ],
        "verdict": verdict(deployment, outcomes),
    }
