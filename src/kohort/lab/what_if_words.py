"""A comparison of policies and settings in words and as values, for a terminal and for a page.

In: a deployment, the outcomes of its runs. Out: cells of tables, sentences, values for JSON, the
picture of a run. Must not know: terminals, pages, runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from kohort.explain.amounts import Known
from kohort.explain.deployments import Deployment
from kohort.explain.figures import Figure
from kohort.explain.findings import span_text
from kohort.explain.ownership import Owned
from kohort.explain.pages.picture import Cursor, Picture
from kohort.history.cost_values import Measured
from kohort.lab.changes import steps
from kohort.lab.what_if import COLUMNS, Outcome, best
from kohort.model.instants import MICROS_PER_MILLI, MICROS_PER_SECOND

_UNITS: Final = {"unavailable_ms": " ps", "longest_stop_ms": " s"}
_MOST_DRAWN: Final = 2_000
"""Times of ownership in the picture of a run; a larger run has no picture."""


def headline(deployment: Deployment) -> str:
    """The size of the group, and the events: how many members ended, died, and so on."""
    name = f"Group {deployment.group}" if deployment.group else "A group without a name"
    kinds = Counter(incident.what for incident in deployment.incidents)
    events = [
        f"{count} time{'s' * (count > 1)} a member {what.value}" for what, count in kinds.items()
    ]
    return (
        f"{name}: {deployment.number('members'):g} members, "
        f"{deployment.number('partitions'):g} partitions, {deployment.rebalances:,} rebalances in "
        f"the evidence. Replayed: {', '.join(events)}."
    )


def figure_rows(deployment: Deployment) -> list[tuple[str, str, str, str]]:
    """Name, value, way in which it is known, and source of each figure."""
    return [(n, _value(n, f), f.known.value, f.source) for n, f in deployment.figures.items()]


def _value(name: str, figure: Figure) -> str:
    if isinstance(figure.value, str):
        return figure.value
    return span_text(figure.value / 1_000) if name.endswith(".ms") else f"{figure.value:g}"


def evidence_cells(deployment: Deployment, missing: str) -> list[str]:
    """The cost that the evidence itself tells, to compare with the run of the same events.

    Empty if the evidence has no cost.
    """
    dead = deployment.dead
    if dead is None:
        return []
    sign = {Known.BOUNDED: "≤ ", Known.ASSUMED: "~ "}.get(dead.known, "")
    cost = f"{sign}{_number(dead.value)} ps"
    return ["the evidence", cost, missing, str(deployment.rebalances), missing, missing]


def cost_cells(outcome: Outcome, present: Outcome) -> list[str]:
    """Title and costs of an outcome; dead time also as a difference to the present."""
    row = [outcome.change.title]
    for name, _ in COLUMNS:
        mean, spread = outcome.mean(name), outcome.spread(name)
        text = f"{_number(mean)} ± {_number(spread)}{_UNITS.get(name, '')}"
        was = present.mean(name)
        if name == "unavailable_ms" and outcome is not present and was:
            by, error = (100 * part / was for part in outcome.difference(present, name))
            text += f" ({by:+.0f} ± {error:.0f} %)"
        row.append(text)
    return row


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def verdict(deployment: Deployment, outcomes: Sequence[Outcome]) -> list[str]:
    """The best change and the settings to change, in lines; or the advice to change nothing."""
    found = best(outcomes)
    if found is None:
        return ["No change is better than the present by more than its spread: change nothing."]
    now, then = outcomes[0].mean("unavailable_ms"), found.mean("unavailable_ms")
    lines = [
        f"Best: {found.change.title}, {_number(then)} in place of {_number(now)} dead "
        "partition-seconds. Change:"
    ]
    changes = steps(deployment, found.change)
    return lines + [f"  {name}={new}  (now {old})" for name, old, new in changes]


def guessed(deployment: Deployment) -> list[str]:
    """The names of figures that no source tells."""
    return [n for n, f in deployment.figures.items() if f.known is Known.ASSUMED]


def comparison(deployment: Deployment, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Figures, events, outcomes and the best change as values for JSON."""
    found = best(outcomes)
    return {
        "group": deployment.group,
        "rebalances_in_evidence": deployment.rebalances,
        "notes": list(deployment.notes),
        "figures": {name: asdict(figure) for name, figure in deployment.figures.items()},
        "events": [asdict(incident) for incident in deployment.incidents],
        "outcomes": [_outcome(outcome, outcomes[0]) for outcome in outcomes],
        "best": None if found is None else found.change.title,
        "change": []
        if found is None
        else [
            {"name": name, "now": old, "then": new}
            for name, old, new in steps(deployment, found.change)
        ],
    }


def _outcome(outcome: Outcome, present: Outcome) -> dict[str, Any]:
    differences = {name: outcome.difference(present, name) for name, _ in COLUMNS}
    return {
        "title": outcome.change.title,
        "policy": outcome.change.policy or None,
        "settings": dict(outcome.change.settings),
        "means": {name: outcome.mean(name) for name, _ in COLUMNS},
        "spreads": {name: outcome.spread(name) for name, _ in COLUMNS},
        "differences": {name: mean for name, (mean, _) in differences.items()},
        "difference_spreads": {name: spread for name, (_, spread) in differences.items()},
        "runs": [run.to_json() for run in outcome.runs],
    }


def run_picture(measured: Measured) -> dict[str, Any] | None:
    """The owners and the generations of a run, as the pages draw them; None if they are too many.

    Times begin with the measured window.
    """
    if len(measured.ownership) > _MOST_DRAWN:
        return None
    picture = Picture(base=0.0, dated=False)

    def at(instant: int) -> float:
        return max(0, instant - measured.begin) / MICROS_PER_SECOND

    for each in sorted(measured.ownership, key=lambda interval: interval.begin):
        begin = at(each.ready)
        if (end := at(min(each.end, measured.end))) > begin:
            picture.owned(Owned(str(each.partition), each.owner, begin, end))
    picture.reach(at(measured.end))
    message, _ = picture.message(Cursor())
    marks = [mark for mark in measured.marks if mark.kind == "generation"]
    message["rebalances"] = [
        {"generation": int(mark.text), "cause": "", "told": f"generation {mark.text}"}
        | dict.fromkeys(
            ("began", "joined", "ended"), (mark.at - measured.begin) // MICROS_PER_MILLI
        )
        for mark in marks
    ]
    return message
