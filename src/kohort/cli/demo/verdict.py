"""How the demo ends: what was found in the table's files, in words and as one line of JSON.

Values and wording only. The numbers come from ``kohort table verify`` (records, rows, holes,
duplicates) and from ``rebalances``; who asked for them is not known here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome.

    Attributes:
        records_in: records in the topic.
        rows_out: rows in the committed files.
        dead_letters: records that the SQL could not take, kept beside the table.
        filtered: records that the SQL left out on purpose.
        untold: records without a row, of which the SQL cannot say whether it left them out.
        holes: records of the topic that are in no committed file.
        duplicates: records that are there more than once.
        foreign: rows that differ from their record, or have none.
        unsound: what else is wrong with files and manifest: sentences.
        orphans: files that no commit names, as the killed micro-batch leaves them; they count for
            nothing.
        rebalances: of the group.
        longest_pause_s: of a partition that kept its owner, across a rebalance; None without one.
        usual_pause_s: median time between two commits of a partition.
        joined_under_backlog: every partition had unread records while the third application joined.
        killed_under_backlog: the same while one was killed.
        killed_in_batch: the ledger shows the killed application's micro-batch, begun and not done.
        output: the table's directory.
        seconds: that the whole demo took.
    """

    records_in: int
    rows_out: int
    dead_letters: int
    filtered: int
    untold: int
    holes: int
    duplicates: int
    foreign: int
    unsound: int
    orphans: int
    rebalances: int
    longest_pause_s: float | None
    usual_pause_s: float
    joined_under_backlog: bool
    killed_under_backlog: bool
    killed_in_batch: bool
    output: str
    seconds: float

    @property
    def exactly_once(self) -> bool:
        """Whether every record landed once, and nothing else did."""
        accounted = self.rows_out + self.dead_letters + self.filtered + self.untold
        wrong = self.holes or self.duplicates or self.foreign or self.unsound
        return not wrong and self.records_in == accounted

    def as_json(self) -> str:
        """One line for programs."""
        told: dict[str, Any] = asdict(self)
        return json.dumps({"verdict": self.word, **told})

    @property
    def word(self) -> str:
        """``exactly once``, ``lost``, ``doubled``, ``lost and doubled`` or ``altered``."""
        if self.exactly_once:
            return "exactly once"
        wrong = [word for word, count in self._wrong() if count]
        return " and ".join(wrong) or "altered"

    def lines(self) -> list[str]:
        """The same for people."""
        dead = f"   dead letters {self.dead_letters:,}" if self.dead_letters else ""
        dead += f"   filtered {self.filtered:,}" if self.filtered else ""
        pause = "none" if self.longest_pause_s is None else f"{self.longest_pause_s:.2f} s"
        told = [
            f"records in {self.records_in:,}   rows out {self.rows_out:,}{dead}   "
            f"holes {self.holes:,}   duplicates {self.duplicates:,}",
            f"rebalances {self.rebalances}   longest pause of a partition that kept its owner, "
            f"across a rebalance: {pause} (usual time between two commits "
            f"{self.usual_pause_s:.2f} s)",
        ]
        if self.untold:
            told.append(
                f"NOT SHOWN: whether {self.untold:,} records without a row were filtered or lost; "
                "`kohort table verify` says why"
            )
        told += [f"NOT SHOWN: {text}" for shown, text in self._shown() if not shown]
        if self.orphans:
            told.append(
                f"files without a commit {self.orphans}: what the killed micro-batch left; "
                "`kohort table clean` removes them"
            )
        told.append(f"output in {self.output}, {self.seconds:.0f} s in all")
        told.append(f"verdict: {self._sentence()}")
        return told

    def _sentence(self) -> str:
        if self.exactly_once:
            so_far = ", as far as can be told" if self.untold else ""
            return f"every record landed exactly once{so_far}"
        return f"{self.word.upper()}: the files in {self.output} do not hold what the topic holds"

    def _wrong(self) -> list[tuple[str, int]]:
        return [("lost", self.holes), ("doubled", self.duplicates)]

    def _shown(self) -> list[tuple[bool, str]]:
        few = "too few records or too fast a table for this story"
        return [
            (self.joined_under_backlog, f"no backlog everywhere during the join: {few}"),
            (self.killed_under_backlog, f"no backlog everywhere during the kill: {few}"),
            (self.killed_in_batch, "no micro-batch was under way at the kill"),
        ]
