"""The ``kohort`` command: one file for each subcommand, imported only when it is run.

In: the command line. Out: an exit status and, for a mistake of the user, one line on standard
error. Must not know: the subcommands' work. Nothing heavy may be imported here: ``kohort --help``
has a budget of 300 ms.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

import kohort
from kohort.model.errors import FULL_DISK, KohortError

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, if the command has no ordinary end then; shells use the same."""
USER_ERROR: Final = 2
"""The exit status if the command cannot be done as requested; click uses the same."""

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("kohort.cli.demo.command:demo", "Show a group of Spark applications at work."),
    "broker": ("kohort.cli.broker:broker", "Run an embedded Kafka-compatible broker."),
    "topics": ("kohort.cli.topics:topics", "Create, list, describe and delete topics."),
    "groups": ("kohort.cli.groups.commands:groups", "Look at and change consumer groups."),
    "consume": ("kohort.cli.consume:consume", "Read topics as a member of a group."),
    "produce": ("kohort.cli.produce:produce", "Write lines to a topic."),
    "verifiable-consumer": (
        "kohort.cli.verifiable_consumer:verifiable_consumer",
        "Read a topic and print events, as Kafka's VerifiableConsumer does.",
    ),
    "metrics": ("kohort.cli.metrics:metrics", "Serve metrics of groups for Prometheus."),
    "mirror": ("kohort.cli.mirror:mirror", "Copy topics from one cluster to another."),
    "pipeline": (
        "kohort.cli.spark.pipeline:pipeline",
        "Run a Spark application that shares a group.",
    ),
    "table": ("kohort.cli.spark.table:table", "List, clean, verify and move a pipeline's table."),
    "spark": (
        "kohort.cli.spark.commands:spark",
        "Run batch jobs on Spark: sweeps, histories of many groups.",
    ),
    "lab": ("kohort.cli.lab.commands:lab", "Run groups in a simulated world."),
    "explain": ("kohort.cli.explain.command:explain", "Explain why groups rebalanced, from logs."),
    "what-if": (
        "kohort.cli.explain.what_if:what_if",
        "Replay a group's events under other policies and settings.",
    ),
    "dashboard": ("kohort.cli.dashboard:dashboard", "Show groups on a page, live."),
    "check": ("kohort.cli.check:check", "Check recorded histories of groups."),
    "kafka": ("kohort.cli.kafka:kafka", "Fetch, start and stop a real Apache Kafka."),
}
"""Name -> (module:attribute, the line in ``--help``), so that help imports no subcommand."""


class LazyGroup(click.Group):
    """A click group that imports a subcommand's module when the subcommand is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command; None for an unknown name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        module_name, _, attribute = entry[0].partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry[0]} is not a click command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands and options, without imports."""
        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of ``COMMANDS`` without imports."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`kohort COMMAND --help` shows the options of a command.",
)
@click.version_option(kohort.__version__, prog_name="kohort")
def cli() -> None:
    """Consumer groups that do not stop the world."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line; the entry point of the process.

    Every ``KohortError``, a wrong command line and a full device become one line on standard error
    and an exit status. So a traceback is always a bug.
    """
    try:
        status = cli.main(args=args, prog_name="kohort", standalone_mode=False)
        raise SystemExit(status or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        raise SystemExit(error.exit_code) from error
    except click.ClickException as error:
        click.echo(f"kohort: {_of_click(error)}", err=True)
        raise SystemExit(error.exit_code) from error
    except click.Abort as error:
        click.echo("Aborted!", err=True)
        interrupted = isinstance(error.__cause__, KeyboardInterrupt)
        raise SystemExit(INTERRUPTED if interrupted else 1) from error
    except KohortError as error:
        click.echo(f"kohort: {error}", err=True)
        raise SystemExit(error.exit_status) from error
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        click.echo(f"kohort: output cannot be written: {error.strerror}; make room", err=True)
    raise SystemExit(USER_ERROR)


def _of_click(error: click.ClickException) -> str:
    """A mistake on the command line in one line; click itself writes four lines."""
    told = " ".join(error.format_message().split()).removesuffix(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        told += " " if told.endswith("?") else "; "
        told += f"`{context.command_path} --help` shows the usage"
    return told[:1].lower() + told[1:]


if __name__ == "__main__":
    main()
