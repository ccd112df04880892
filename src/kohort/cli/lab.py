"""``kohort lab``: groups in a simulated world, where the same seed always gives the same history.

In come commands; out goes nothing of its own: each command has a file beside this one.
"""

from __future__ import annotations

import click

from kohort.cli import lab_scenarios, lab_seeds


@click.group()
def lab() -> None:
    """Let things happen to groups in a simulated world, and measure them."""


lab.add_command(lab_scenarios.run)
lab.add_command(lab_scenarios.table)
lab.add_command(lab_scenarios.scenarios)
lab.add_command(lab_seeds.seeds)
lab.add_command(lab_seeds.soak)
lab.add_command(lab_seeds.replay)
lab.add_command(lab_seeds.exhaust)
