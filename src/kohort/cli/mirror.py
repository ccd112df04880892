"""``kohort mirror``: a worker that copies topics from one Kafka to another.

In: topics, two clusters, a group. Out: a line with the progress on standard error from time to
time. Must not know: records, offsets (``kohort.client.mirror``).
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Final

import click

from kohort.cli.output import FILE, note, settings_option
from kohort.client.mirror import Mirror
from kohort.host.settings import read_properties

PROGRESS_S: Final = 5.0


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--from", "source", required=True, metavar="HOST:PORT", help="The cluster to read.")
@click.option("--to", "target", required=True, metavar="HOST:PORT", help="The cluster to write.")
@click.option("--group", required=True, help="The workers of a group share the partitions.")
@click.option(
    "--rename",
    default="{topic}",
    show_default=True,
    help="The name in the target; {topic} is the name in the source.",
)
@settings_option("A setting of the reader.")
@click.option("--from-config", type=FILE, help="Settings of the reader: a line NAME=VALUE each.")
@click.option("--to-config", type=FILE, help="Settings of the writer: TLS and logins.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
def mirror(
    *,
    topics: tuple[str, ...],
    source: str,
    target: str,
    group: str,
    rename: str,
    assignments: dict[str, str],
    from_config: Path | None,
    to_config: Path | None,
    quiet: bool,
) -> None:
    """Copy topics; start it several times to share them.

    Every record arrives at least once, in the same partition and in order. A new group begins with
    the oldest records. Ctrl-C and SIGTERM hand the partitions over and end with status 0. With
    --set group.instance.id=NAME the worker keeps its partitions for its return.
    """
    settings = {
        **(read_properties(from_config) if from_config else {}),
        "bootstrap.servers": source,
        "group.id": group,
        "auto.offset.reset": "earliest",
        **assignments,
    }
    written = {**(read_properties(to_config) if to_config else {}), "bootstrap.servers": target}
    worker = Mirror(settings, written, topics, rename=rename)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stop())
    ended = threading.Event()
    if not quiet:
        threading.Thread(target=_tell, args=(worker, ended), daemon=True).start()
    try:
        worker.run()
    finally:
        ended.set()
        if not quiet:
            note(f"{worker.copied:,} records copied.")


def _tell(worker: Mirror, ended: threading.Event) -> None:
    before, since = 0, time.monotonic()
    while not ended.wait(PROGRESS_S):
        copied, now = worker.copied, time.monotonic()
        note(f"{copied:,} records copied, {(copied - before) / (now - since):,.0f} a second.")
        before, since = copied, now
