"""``kohort groups delete``, ``delete-offsets`` and ``remove-members``: dry runs first.

In: flags. Out: the words of Kafka's tool, or JSON; each command returns whether everything was
done. Must not know: requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from kohort.cli.asking import asking
from kohort.cli.groups.choice import (
    Groups,
    execute_option,
    groups_options,
    partitions_of,
    refusal,
    scopes_option,
)
from kohort.cli.groups.reports import described, member_json
from kohort.cli.output import (
    bootstrap_option,
    json_option,
    note,
    print_json,
    print_table,
    separate,
)
from kohort.client.admin import Admin
from kohort.client.descriptions import GroupMemberDescription
from kohort.client.errors import RequestFailed
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition

PLANNED = "Planned"
SUCCESSFUL = "Successful"


@click.command()
@groups_options
@execute_option
@bootstrap_option
@json_option
def delete(*, groups: Groups, execute: bool, bootstrap: str, as_json: bool) -> bool:
    """Delete groups without members, and their offsets."""
    refused: dict[str, str] = {}
    deleted: list[str] = []
    with asking(bootstrap) as admin:
        for group_id in groups.found(admin):
            code = _delete(admin, group_id) if execute else _deletable(admin, group_id)
            if code is ErrorCode.NONE:
                deleted.append(group_id)
            else:
                refused[group_id] = refusal(code)
    names = ", ".join(f"'{group_id}'" for group_id in deleted)
    if as_json:
        print_json({"executed": execute, "deleted": deleted, "refused": refused})
    elif deleted and not execute:
        click.echo(f"These consumer groups would be deleted: {names}")
    elif deleted and refused:
        click.echo(f"These consumer groups were deleted successfully: {names}")
    elif deleted:
        click.echo(f"Deletion of requested consumer groups ({names}) was successful.")
    if refused:
        would = "failed" if execute else "would fail"
        note(f"Error: Deletion of some consumer groups {would}:")
    for group_id, why in refused.items():
        note(f"* Group '{group_id}' could not be deleted due to: {why}")
    return not refused


def _deletable(admin: Admin, group_id: str) -> ErrorCode:
    state = admin.describe_group(group_id).state
    if state == "Dead":
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if state == "Empty" else ErrorCode.NON_EMPTY_GROUP


def _delete(admin: Admin, group_id: str) -> ErrorCode:
    try:
        admin.delete_group(group_id)
    except RequestFailed as error:
        return error.code
    return ErrorCode.NONE


@click.command("delete-offsets")
@groups_options
@scopes_option(required=True)
@execute_option
@bootstrap_option
@json_option
def delete_offsets(
    *, groups: Groups, scopes: tuple[str, ...], execute: bool, bootstrap: str, as_json: bool
) -> bool:
    """Delete offsets of topics that a group does not read."""
    with asking(bootstrap) as admin:
        partitions = partitions_of(admin, scopes)
        codes = {
            group_id: _delete_offsets(admin, group_id, partitions, execute)
            for group_id in groups.found(admin)
        }
    wrong = [group_id for group_id, each in codes.items() if any(each.values())]
    if as_json:
        print_json(
            [
                {
                    "group": group_id,
                    "executed": execute,
                    "partitions": [
                        {"topic": tp.topic, "partition": tp.partition, "error": _name(code)}
                        for tp, code in each.items()
                    ],
                }
                for group_id, each in codes.items()
            ]
        )
        return not wrong
    done = SUCCESSFUL if execute else PLANNED
    for group_id, each in codes.items():
        if group_id in wrong:
            note("Error: Encountered some partition-level error, see the follow-up details.")
        else:
            separate()
            done_text = (
                "Request succeeded for deleting offsets" if execute else "Would delete offsets"
            )
            click.echo(f"{done_text} from group {group_id}.")
        print_table(
            ["TOPIC", "PARTITION", "STATUS"],
            [(*tp, f"Error: {refusal(code)}" if code else done) for tp, code in each.items()],
        )
    return not wrong


def _name(code: ErrorCode) -> str | None:
    return code.name if code else None


def _delete_offsets(
    admin: Admin, group_id: str, partitions: Sequence[TopicPartition], execute: bool
) -> dict[TopicPartition, ErrorCode]:
    if not execute:
        found = admin.describe_group(group_id)
        read = {topic for member in found.members for topic in member.topics}
        if found.state == "Dead":
            return dict.fromkeys(partitions, ErrorCode.GROUP_ID_NOT_FOUND)
        return {
            tp: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if tp.topic in read else ErrorCode.NONE
            for tp in partitions
        }
    try:
        return admin.delete_offsets(group_id, partitions)
    except RequestFailed as error:
        return dict.fromkeys(partitions, error.code)


@click.command("remove-members")
@groups_options
@click.option(
    "--member", "member_ids", multiple=True, metavar="ID", help="Member id. May be repeated."
)
@click.option(
    "--instance-id",
    "instance_ids",
    multiple=True,
    metavar="ID",
    help="group.instance.id of a static member. May be repeated.",
)
@click.option("--all-members", is_flag=True, help="All members of the groups.")
@click.option(
    "--reason",
    default="removed with kohort groups remove-members",
    show_default=True,
    help="For the broker's log.",
)
@execute_option
@bootstrap_option
@json_option
def remove_members(
    *,
    groups: Groups,
    member_ids: tuple[str, ...],
    instance_ids: tuple[str, ...],
    all_members: bool,
    reason: str,
    execute: bool,
    bootstrap: str,
    as_json: bool,
) -> bool:
    """Let members leave groups.

    For example static members that will not come back. Their partitions go to the other members.
    A process that still runs joins again.
    """
    if bool(member_ids or instance_ids) == all_members:
        raise click.UsageError("expected --member, --instance-id, or --all-members")
    removed: list[tuple[str, GroupMemberDescription, ErrorCode]] = []
    names = {*member_ids, *instance_ids}
    with asking(bootstrap) as admin:
        found = described(admin, groups.found(admin))
        described_as = {group.group_id: group for group in found}
        chosen = {
            group.group_id: [m for m in group.members if all_members or names & _names(m)]
            for group in found
        }
        _check_found(names, [m for members in chosen.values() for m in members])
        for group_id, members in chosen.items():
            codes = [ErrorCode.NONE] * len(members)
            if execute:
                codes = admin.remove_members(group_id, members, reason)
            removed += [(group_id, *each) for each in zip(members, codes, strict=True)]
    if as_json:
        print_json(
            [
                {
                    "group": group_id,
                    **member_json(described_as[group_id], member),
                    "executed": execute,
                    "error": _name(code),
                }
                for group_id, member, code in removed
            ]
        )
    else:
        done = SUCCESSFUL if execute else PLANNED
        print_table(
            ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "STATUS"],
            [
                (
                    *(group_id, member.member_id, member.group_instance_id),
                    *(member.client_host, member.client_id),
                    f"Error: {code.name} ({int(code)})" if code else done,
                )
                for group_id, member, code in removed
            ],
        )
    return not any(code for *_, code in removed)


def _names(member: GroupMemberDescription) -> set[str | None]:
    return {member.member_id, member.group_instance_id}


def _check_found(names: set[str], members: Iterable[GroupMemberDescription]) -> None:
    known = {name for member in members for name in _names(member)}
    if missing := sorted(names - known):
        raise ConfigError(
            f"no member {', '.join(missing)}: `kohort groups members` shows all members of a group"
        )
