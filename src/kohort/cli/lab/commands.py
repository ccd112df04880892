"""``kohort lab``: groups in a simulated world; the same seed always gives the same history.

In: subcommands from the files of this folder. Out: the click group. Must not know: scenarios.
"""

from __future__ import annotations

import click

from kohort.cli.lab import scenarios as lab_scenarios
from kohort.cli.lab import seeds as lab_seeds
from kohort.model.errors import ConfigError


@click.group(invoke_without_command=True, no_args_is_help=True)
@click.option("--open", "browser", is_flag=True, help="Open the page of two live groups.")
@click.option(
    "--members", type=click.IntRange(1, 50), default=6, show_default=True,
    help="Members of each live group.",
)  # fmt: skip
@click.option(
    "--partitions", type=click.IntRange(1, 1_000), default=24, show_default=True,
    help="Partitions of each live group.",
)  # fmt: skip
@click.option(
    "--policy", default="eager", show_default=True, metavar="POLICY",
    help="Of the first live group: eager, cooperative, or an assignor.",
)  # fmt: skip
@click.option(
    "--against", default="cooperative", show_default=True, metavar="POLICY",
    help="Of the second live group.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, show_default="a free port",
    help="Port of the page of the live groups.",
)  # fmt: skip
@click.pass_context
def lab(
    ctx: click.Context,
    *,
    browser: bool,
    members: int,
    partitions: int,
    policy: str,
    against: str,
    port: int,
) -> None:
    """Run groups in a simulated world, with faults, and measure them.

    With one of the options and without a command, two live groups run on a real coordinator, with
    real processes on this machine, one under each policy. A page shows both side by side, and its
    keys kill, stall or pause the same member of both, or restart the coordinator. Ctrl-C ends all.
    """
    if ctx.invoked_subcommand is not None:
        if browser:
            raise ConfigError(f"--open shows live groups; {ctx.invoked_subcommand} has no page")
        return
    from kohort.cli.lab.live import live  # noqa: PLC0415 - clients and servers of processes

    live(
        members=members,
        partitions=partitions,
        policies=(policy, against),
        port=port,
        browser=browser,
    )


lab.add_command(lab_scenarios.run)
lab.add_command(lab_scenarios.table)
lab.add_command(lab_scenarios.scenarios)
lab.add_command(lab_seeds.seeds)
lab.add_command(lab_seeds.soak)
lab.add_command(lab_seeds.replay)
lab.add_command(lab_seeds.exhaust)
