"""The options that commands about groups share: groups, partitions, dry run or change.

In: words of the command line. Out: group ids, partitions. Must not know: the changes of groups.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from kohort.cli.output import REFUSED, configured, note
from kohort.client.admin import Admin
from kohort.model.errors import ConfigError, ErrorCode, KohortError
from kohort.model.ids import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])

COMPLETION_MS = 1_500
"""A shell that completes a name waits for a cluster no longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of a command: those with these names, or all."""

    names: tuple[str, ...]
    every: bool

    def found(self, admin: Admin) -> list[str]:
        """The ids, in order; for all groups sorted."""
        if not self.every:
            return list(self.names)
        return [group.group_id for group in admin.list_groups() if is_consumer_group(group)]


def is_consumer_group(group: Any) -> bool:
    """Whether Kafka's ``kafka-consumer-groups`` shows this group of a list."""
    return group.protocol_type in {"consumer", ""} and group.type in {"consumer", "classic", ""}


def groups_options(command: F) -> F:
    """Add ``[GROUPS]``, ``--group`` and ``--all-groups``, as the argument ``groups``."""

    @click.argument("positional", nargs=-1, metavar="[GROUPS]...", shell_complete=complete_groups)
    @click.option(
        "--group",
        "named",
        multiple=True,
        metavar="GROUP",
        shell_complete=complete_groups,
        help="The same as an argument, by Kafka's name. May be repeated.",
    )
    @click.option("--all-groups", is_flag=True, help="All consumer groups.")
    @functools.wraps(command)
    def with_groups(
        *, positional: tuple[str, ...], named: tuple[str, ...], all_groups: bool, **rest: Any
    ) -> Any:
        names = tuple(dict.fromkeys([*positional, *named]))
        if bool(names) == all_groups:
            raise click.UsageError("expected names of groups, or --all-groups")
        return command(groups=Groups(names=names, every=all_groups), **rest)

    return with_groups  # type: ignore[return-value] # click returns the result of the command


def execute_option(command: F) -> F:
    """Add ``--execute`` and ``--dry-run`` to a command, as the argument ``execute``.

    The command returns whether the cluster did, or would do, all of it; else the exit status is 1.
    """

    @click.option("--execute", "do", is_flag=True, help="Do it; without this only show it.")
    @click.option("--dry-run", "dry", is_flag=True, help="Only show it. The default.")
    @functools.wraps(command)
    def with_execute(*, do: bool, dry: bool, **rest: Any) -> None:
        if do and dry:
            raise click.UsageError("--execute and --dry-run exclude each other")
        everything = command(execute=do, **rest)
        if not (do or dry or rest.get("export")):
            what = "it" if everything else "the allowed part"
            note(f"Dry run: nothing was changed. Add --execute to do {what}.")
        if not everything:
            click.get_current_context().exit(REFUSED)

    return with_execute  # type: ignore[return-value] # as above


def scopes_option(*, required: bool) -> Callable[[F], F]:
    """Add ``--topic TOPIC[:0,1]`` to a command, as the argument ``scopes``."""
    return click.option(
        "--topic",
        "scopes",
        multiple=True,
        required=required,
        metavar="TOPIC[:0,1]",
        shell_complete=complete_topics,
        help="A topic, or partitions of it. May be repeated.",
    )


def partitions_of(admin: Admin, scopes: Iterable[str]) -> list[TopicPartition]:
    """The partitions of scopes in Kafka's form: ``orders``, ``orders:0,2``.

    Raises:
        ConfigError: a number is none, or there is no such partition.
        RequestFailed: there is no such topic.
    """
    found: dict[TopicPartition, None] = {}
    for scope in scopes:
        topic, colon, numbers = scope.rpartition(":")
        if not colon:
            topic = numbers
        present = admin.topics([topic])[topic].topic_partitions
        if colon:
            wanted = [TopicPartition(topic, _number(scope, n)) for n in numbers.split(",")]
            if missing := [tp for tp in wanted if tp not in present]:
                raise ConfigError(
                    f'The partitions "{", ".join(map(str, missing))}" do not exist: topic {topic} '
                    f"has {len(present)}, from 0 on"
                )
            present = wanted
        found |= dict.fromkeys(present)
    return list(found)


def _number(scope: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(
            f"Invalid partition '{text}' specified in topic arg '{scope}', expected TOPIC or "
            "TOPIC:0,1"
        )
    return int(text)


def refusal(code: ErrorCode) -> str:
    """A sentence for a code that a coordinator gave for a group, a member or a partition."""
    sentence = _SENTENCES.get(code)
    return f"{code.name} ({int(code)})" + (f": {sentence}" if sentence else "")


_SENTENCES = {
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty: stop its members first.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist: `kohort groups list` shows all.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the "
    "consumer group is actively subscribed to it.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has active members: stop them first.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such partition, or it is not visible.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "This user may not do this with the group.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "This user may not do this with the topic.",
}


# -- completion ---------------------------------------------------------------------------------


def only_groups(command: F) -> F:
    """The option ``--group`` of commands that look at all groups without it: ``names``."""
    return click.option(
        "--group",
        "names",
        multiple=True,
        metavar="GROUP",
        shell_complete=complete_groups,
        help="Only this group. May be repeated.",
    )(command)


def complete_groups(
    context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem]:
    """Ids of groups for a shell; none if the cluster does not answer soon."""
    return _completed(context, begin, lambda admin: [g.group_id for g in admin.list_groups()])


def complete_topics(
    context: click.Context, _parameter: click.Parameter, begin: str
) -> list[CompletionItem]:
    """Names of topics for a shell; none if the cluster does not answer soon."""
    return _completed(
        context, begin, lambda admin: sorted(n for n, t in admin.topics().items() if not t.internal)
    )


def _completed(
    context: click.Context, begin: str, names: Callable[[Admin], list[str]]
) -> list[CompletionItem]:
    bootstrap = context.params.get("bootstrap") or "127.0.0.1:9092"
    soon = {
        "default.api.timeout.ms": str(COMPLETION_MS),
        "request.timeout.ms": str(COMPLETION_MS),
        "socket.connection.setup.timeout.ms": str(COMPLETION_MS),
    }
    try:
        with context.scope(cleanup=False):
            settings = configured(bootstrap) | soon
        with Admin(settings) as admin:
            admin.refused_tries = 1
            return [CompletionItem(name) for name in names(admin) if name.startswith(begin)]
    except KohortError:
        return []  # a shell shows nothing else than names
