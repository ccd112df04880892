"""``kohort lab``: groups in a simulated world; the same seed always gives the same history.

In: subcommands from the files of this folder. Out: the click group. Must not know: scenarios.
"""

from __future__ import annotations

import click

from kohort.cli import lab_scenarios, lab_seeds


@click.group()
def lab() -> None:
    """Run groups in a simulated world, with faults, and measure them."""


lab.add_command(lab_scenarios.run)
lab.add_command(lab_scenarios.table)
lab.add_command(lab_scenarios.scenarios)
lab.add_command(lab_seeds.seeds)
lab.add_command(lab_seeds.soak)
lab.add_command(lab_seeds.replay)
lab.add_command(lab_seeds.exhaust)
