"""``kohort topics``: create, list, describe, change and delete topics of any Kafka.

In: flags. Out: Kafka's tables, or JSON. Must not know: requests (``kohort.client.admin``).
"""

from __future__ import annotations

import click

from kohort.cli.asking import asking
from kohort.cli.output import (
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    settings_option,
)
from kohort.client.descriptions import TopicDescription
from kohort.client.errors import RequestFailed
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import LATEST


@click.group()
def topics() -> None:
    """Create, list, describe, change and delete topics."""


@topics.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=int,
    default=-1,
    help="Number of partitions; by default the broker's default.",
)
@click.option("--replication-factor", type=int, default=-1, help="By default the broker's default.")
@settings_option("A topic setting.", "--config")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@bootstrap_option
@json_option
def create(
    *,
    name: str,
    partitions: int,
    replication_factor: int,
    assignments: dict[str, str],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create the topic NAME."""
    created = True
    with asking(bootstrap) as admin:
        try:
            admin.create_topic(name, partitions, replication_factor, assignments)
        except RequestFailed as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            created = False
    if as_json:
        print_json({"topic": name, "created": created})
    elif created:
        click.echo(f"Created topic {name}.")


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Do not list the cluster's own topics.")
@bootstrap_option
@json_option
def list_topics(*, exclude_internal: bool, bootstrap: str, as_json: bool) -> None:
    """List all topics, one a line."""
    with asking(bootstrap) as admin:
        found = _sorted(admin.topics())
    found = [topic for topic in found if not (exclude_internal and topic.internal)]
    if as_json:
        print_json([_summary(topic) for topic in found])
    else:
        for topic in found:
            click.echo(topic.name)


@topics.command(short_help="Show the partitions of topics.")
@click.argument("names", nargs=-1)
@bootstrap_option
@json_option
def describe(*, names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show the partitions of topics NAMES; by default of all topics."""
    with asking(bootstrap) as admin:
        found = _sorted(admin.topics(names or None))
    if as_json:
        print_json([_summary(topic) | {"partitions": _rows(topic)} for topic in found])
        return
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "ISR", "ERROR"],
        [(topic.name, *row.values()) for topic in found for row in _rows(topic)],
    )


@topics.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@bootstrap_option
@json_option
def delete(*, names: tuple[str, ...], if_exists: bool, bootstrap: str, as_json: bool) -> None:
    """Delete topics NAMES with all their records."""
    deleted = []
    with asking(bootstrap) as admin:
        for name in dict.fromkeys(names):
            try:
                admin.delete_topics([name])
                deleted.append(name)
            except RequestFailed as error:
                if not (if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise
    if as_json:
        print_json({"deleted": deleted})
    else:
        for name in deleted:
            click.echo(f"Deleted topic {name}.")


@topics.command(short_help="Show or change the settings of the topic NAME.")
@click.argument("name")
@settings_option("Change a setting.")
@click.option("--unset", multiple=True, metavar="NAME", help="Set back to the broker's default.")
@bootstrap_option
@json_option
def config(
    *,
    name: str,
    assignments: dict[str, str],
    unset: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show the settings of the topic NAME, after the changes."""
    with asking(bootstrap) as admin:
        if assignments or unset:
            admin.alter_topic(name, assignments, back_to_default=unset)
        found = admin.topic_settings(name)
    if as_json:
        print_json({s.name: {"value": s.value, "source": s.source} for s in found.values()})
        return
    print_table(
        ["SETTING", "VALUE", "SOURCE"], [(s.name, s.value, s.source) for s in found.values()]
    )


@topics.command("delete-records", short_help="Delete records of the topic NAME before an offset.")
@click.argument("name")
@click.option(
    "--before",
    required=True,
    metavar="OFFSET",
    help="The first offset to keep, or 'end' to delete all present records.",
)
@click.option(
    "--partition", "numbers", type=int, multiple=True, help="Only this partition. May be repeated."
)
@bootstrap_option
@json_option
def delete_records(
    *, name: str, before: str, numbers: tuple[int, ...], bootstrap: str, as_json: bool
) -> None:
    """Delete the records of the topic NAME before an offset, by default in all partitions."""
    if before != "end" and not before.isdecimal():
        raise click.BadParameter(f"{before!r} is not an offset, expected a number or 'end'")
    offset = LATEST if before == "end" else int(before)
    with asking(bootstrap) as admin:
        wanted = [TopicPartition(name, number) for number in numbers]
        partitions = wanted or admin.topics([name])[name].topic_partitions
        begins = admin.delete_records(dict.fromkeys(partitions, offset))
    rows = sorted((tp.partition, first) for tp, first in begins.items())
    if as_json:
        print_json([{"partition": number, "first_offset": first} for number, first in rows])
    else:
        print_table(["PARTITION", "FIRST-OFFSET"], rows)


def _sorted(found: dict[str, TopicDescription]) -> list[TopicDescription]:
    return [found[name] for name in sorted(found)]


def _summary(topic: TopicDescription) -> dict[str, object]:
    replicas = [len(p.replicas) for p in topic.partitions]
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "partition_count": len(topic.partitions),
        "replication_factor": max(replicas, default=0),
    }


def _rows(topic: TopicDescription) -> list[dict[str, object]]:
    return [
        {
            "partition": p.partition,
            "leader": p.leader_id,
            "leader_epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "isr": list(p.in_sync),
            "error": None if p.error is ErrorCode.NONE else p.error.name,
        }
        for p in topic.partitions
    ]
