"""Runs of the lab on several cores, with a progress bar.

In: jobs as plain values, the function that does one. Out: results in the order in which they are
done. Must not know: the meaning of a job.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

J = TypeVar("J")
R = TypeVar("R")


def with_progress(
    do: Callable[[J], R], wanted: Sequence[J], processes: int, words: Callable[[R], str]
) -> Iterator[R]:
    """Do all jobs, with a progress bar on standard error if that is a terminal.

    Args:
        do: does one job; a function of a module, because other processes import it.
        wanted: the jobs.
        processes: jobs at a time.
        words: describes a result, for the bar.
    """
    with runs_progress() as progress:
        bar = progress.add_task("runs", total=len(wanted))
        for done in _do_all(do, wanted, processes):
            progress.update(bar, advance=1, description=words(done))
            yield done


def runs_progress() -> Progress:
    """A progress bar for runs on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _do_all(do: Callable[[J], R], wanted: Sequence[J], processes: int) -> Iterator[R]:
    workers = min(processes, len(wanted))
    if workers <= 1:
        yield from map(do, wanted)
        return
    # A fork would copy the thread that draws the bar.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        try:
            for future in as_completed([pool.submit(do, job) for job in wanted]):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
