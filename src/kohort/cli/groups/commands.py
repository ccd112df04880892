"""``kohort groups``: look at and change consumer groups of any Kafka.

In: flags. Out: the tables of Kafka's own tool, or JSON; `describe` prints a head with state and
total lag before its table. Warnings go to standard error. Must not know: requests
(``kohort.client.admin``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import click

from kohort.cli.asking import asking
from kohort.cli.groups.changes import delete, delete_offsets, remove_members
from kohort.cli.groups.choice import Groups, groups_options
from kohort.cli.groups.reports import (
    Report,
    print_head,
    print_members,
    print_offsets,
    print_state,
    reports,
    warn,
)
from kohort.cli.groups.resets import reset_offsets
from kohort.cli.groups.watch import watch
from kohort.cli.output import bootstrap_option, json_option, print_json, print_table
from kohort.client.descriptions import GroupListing

STATES = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling", "NotReady"),
)
TYPES = ("classic", "consumer", "share", "streams")


@click.group()
def groups() -> None:
    """Look at and change consumer groups, with the columns of Kafka's tool.

    Exit status: 0 if everything was done, 1 if the cluster refused a part of it (standard error
    says which), 2 if nothing was done.
    """


@groups.command("list")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Show each group's state; with names only groups in these states.",
)
@click.option(
    "--type",
    "kind",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,...]",
    help="Show each group's type; with names only groups of these types.",
)
@bootstrap_option
@json_option
def list_groups(*, state: str | None, kind: str | None, bootstrap: str, as_json: bool) -> None:
    """List all groups, one a line.

    Also those of Connect and others, which Kafka's tool leaves out.
    """
    states, types = _filter("--state", state, STATES), _filter("--type", kind, TYPES)
    with asking(bootstrap) as admin:
        found = [
            group
            for group in admin.list_groups()
            if (not states or group.state.lower() in states)
            and (not types or group.type.lower() in types)
        ]
    if as_json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "type": group.type,
                    "protocol_type": group.protocol_type,
                    "state": group.state,
                }
                for group in found
            ]
        )
        return
    shown: list[tuple[str, Callable[[GroupListing], str]]] = []
    if kind is not None:
        shown.append(("TYPE", lambda group: group.type.capitalize()))
    if state is not None:
        shown.append(("STATE", lambda group: group.state))
    if shown:
        print_table(
            ["GROUP", *(name for name, _ in shown)],
            [(group.group_id, *(cell(group) or None for _, cell in shown)) for group in found],
        )
    else:
        for group in found:
            click.echo(group.group_id)


def _filter(option: str, given: str | None, known: Sequence[str]) -> set[str]:
    names = {name.strip().lower() for name in (given or "").split(",") if name.strip()}
    if unknown := names - {name.lower() for name in known}:
        raise click.BadParameter(
            f"{', '.join(sorted(unknown))}: expected some of {', '.join(known)}", param_hint=option
        )
    return names


@groups.command()
@groups_options
@click.option("--offsets", is_flag=True, help="Show offsets. The default.")
@click.option("--members", is_flag=True, help="Show members instead of offsets.")
@click.option("--state", "state", is_flag=True, help="Show the group's state only.")
@click.option("--verbose", is_flag=True, help="Show epochs too, and assignments of members.")
@bootstrap_option
@json_option
def describe(
    *,
    groups: Groups,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show state, lag and members of groups."""
    if offsets + members + state > 1:
        raise click.UsageError("--offsets, --members and --state show different tables: choose one")
    printer = print_state if state else print_members if members else _print_all

    def show(report: Report) -> None:
        printer(report, verbose=verbose)

    _show(groups, bootstrap, show, Report.as_json if as_json else None, offsets=True)


def _print_all(report: Report, *, verbose: bool) -> None:
    print_head(report)
    print_offsets(report, verbose=verbose)


def _show(
    groups: Groups,
    bootstrap: str,
    show: Callable[[Report], None],
    as_json: Callable[[Report], object] | None,
    *,
    offsets: bool = False,
) -> None:
    with asking(bootstrap) as admin:
        found = reports(admin, groups.found(admin), offsets=offsets)
    if as_json is not None:
        print_json([as_json(report) for report in found])
        return
    for report in found:
        warn(report.group)
        show(report)


@groups.command()
@groups_options
@click.option("--verbose", is_flag=True, help="Show epochs and assignments too.")
@bootstrap_option
@json_option
def members(*, groups: Groups, verbose: bool, bootstrap: str, as_json: bool) -> None:
    """Show the members of groups."""
    show = partial(print_members, verbose=verbose)
    _show(groups, bootstrap, show, Report.members_json if as_json else None)


@groups.command()
@groups_options
@click.option("--verbose", is_flag=True, help="Show the group's epochs too.")
@bootstrap_option
@json_option
def state(*, groups: Groups, verbose: bool, bootstrap: str, as_json: bool) -> None:
    """Show coordinator, assignor and state of groups."""
    show = partial(print_state, verbose=verbose)
    _show(groups, bootstrap, show, Report.state_json if as_json else None)


@groups.command()
@groups_options
@click.option("--verbose", is_flag=True, help="Show leader epochs of commits too.")
@bootstrap_option
@json_option
def offsets(*, groups: Groups, verbose: bool, bootstrap: str, as_json: bool) -> None:
    """Show committed offsets, lag and readers of groups."""
    show = partial(print_offsets, verbose=verbose)
    _show(groups, bootstrap, show, Report.offsets_json if as_json else None, offsets=True)


for command in (reset_offsets, delete, delete_offsets, remove_members, watch):
    groups.add_command(command)
