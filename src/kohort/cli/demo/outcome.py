"""The outcome of the demo, in sentences and as one line of JSON. Values and wording only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The comparison of files and topic, and the claims that the demo showed."""

    records_in: int
    rows_out: int
    dead_letters: int
    filtered: int
    undecided: int
    """Records without a row; it is unknown whether the SQL left them out."""
    holes: int
    duplicates: int
    foreign: int
    """Rows that differ from their record, or have no record."""
    unsound: int
    """Other faults of files and manifest."""
    orphans: int
    """Files that no commit names, such as those of the killed micro-batch."""
    rebalances: int
    longest_pause_s: float | None
    """Of a partition that kept its owner, across a rebalance."""
    usual_pause_s: float
    """The median time between two commits of a partition."""
    joined_under_backlog: bool
    killed_under_backlog: bool
    killed_in_batch: bool
    output: str
    seconds: float

    @property
    def exactly_once(self) -> bool:
        """Whether every record landed once, and nothing else landed."""
        accounted = self.rows_out + self.dead_letters + self.filtered + self.undecided
        wrong = self.holes or self.duplicates or self.foreign or self.unsound
        return not wrong and self.records_in == accounted

    @property
    def verdict(self) -> str:
        """``exactly once``, ``lost``, ``doubled``, ``lost and doubled`` or ``altered``."""
        if self.exactly_once:
            return "exactly once"
        counts = {"lost": self.holes, "doubled": self.duplicates}
        return " and ".join(word for word, count in counts.items() if count) or "altered"

    def as_json(self) -> str:
        """One line for programs."""
        return json.dumps({"verdict": self.verdict, **asdict(self)})

    def lines(self) -> list[str]:
        """Sentences for people."""
        more = f"   dead letters {self.dead_letters:,}" if self.dead_letters else ""
        more += f"   filtered {self.filtered:,}" if self.filtered else ""
        pause = "none" if self.longest_pause_s is None else f"{self.longest_pause_s:.2f} s"
        lines = [
            f"records in {self.records_in:,}   rows out {self.rows_out:,}{more}   "
            f"holes {self.holes:,}   duplicates {self.duplicates:,}",
            f"rebalances {self.rebalances}   longest pause of a partition that kept its owner, "
            f"across a rebalance: {pause} (usual time between two commits "
            f"{self.usual_pause_s:.2f} s)",
            *(f"NOT SHOWN: {text}" for text in self._not_shown()),
        ]
        if self.orphans:
            lines.append(
                f"files without a commit {self.orphans}: the killed micro-batch left them; "
                "`kohort table clean` removes them"
            )
        lines.append(f"output in {self.output}, {self.seconds:.0f} s in all")
        if self.exactly_once:
            doubt = ", as far as can be told" if self.undecided else ""
            lines.append(f"verdict: every record landed exactly once{doubt}")
        else:
            lines.append(
                f"verdict: {self.verdict.upper()}: the files in {self.output} differ from the topic"
            )
        return lines

    def _not_shown(self) -> list[str]:
        few = "too few records for this story"
        shown = {
            f"whether {self.undecided:,} records without a row were filtered or lost; "
            "`kohort table verify` says why": not self.undecided,
            f"no backlog in every partition during the join: {few}": self.joined_under_backlog,
            f"no backlog in every partition during the kill: {few}": self.killed_under_backlog,
            "no micro-batch was under way at the kill": self.killed_in_batch,
        }
        return [text for text, was_shown in shown.items() if not was_shown]
