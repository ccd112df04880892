"""Evidence about groups: their stories, and the lives of their members, from one reading.

In: everything that sources tell, in the order of the times. Out: the explanation of each group, and
the deployment of one. Must not know: files, the lab.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.explain.deployments import Deployment, deployment_of
from kohort.explain.explaining import MOST_GROUPS, Explained, Explainer
from kohort.explain.lives import Lives
from kohort.explain.offsets_topic.generations import Planner
from kohort.explain.told import Told
from kohort.model.errors import ConfigError

_LISTED = 5


class Evidence:
    """Collects what sources tell.

    Args:
        planner: as in `Explainer`.
    """

    def __init__(self, planner: Planner | None = None) -> None:
        self.explainer = Explainer(planner)
        self._lives: dict[str, Lives] = {}

    def feed(self, told: Told) -> None:
        """Take the next thing that a source tells."""
        self.explainer.feed(told)
        lives = self._lives.get(told.group)
        if lives is None:
            if len(self._lives) >= MOST_GROUPS:
                return
            lives = self._lives[told.group] = Lives()
        lives.feed(told)

    def feed_all(self, items: Iterable[Told]) -> None:
        """Take everything that sources tell, in the order of the times."""
        for item in items:
            self.feed(item)

    def name_topics(self, names: Mapping[str, str]) -> None:
        """Learn names of topics by their ids."""
        self.explainer.name_topics(names)

    def deployment(self, group: str | None = None) -> Deployment:
        """The deployment of one group; the sources end here.

        Args:
            group: its name; may be None if the evidence has one group with a rebalance.

        Raises:
            ConfigError: no such group, several groups, no rebalance, or no member.
        """
        found = self.explainer.finish()
        if group is not None:
            found = [each for each in found if each.story.group == group]
            if not found:
                raise ConfigError(f"the evidence has no group {group!r}")
        elif not found:
            raise ConfigError(
                "no line of the evidence tells anything about a group; name logs of brokers or "
                "clients, histories of kohort, or --bootstrap-server"
            )
        else:
            found = [each for each in found if each.story.total] or found[:1]
        if len(found) > 1:
            raise ConfigError(
                f"the evidence has {len(found)} groups with rebalances ({_names(found)}); choose "
                "one with --group"
            )
        lives = self._lives.get(found[0].story.group)
        if lives is None:
            raise ConfigError("the evidence has too many groups; give logs of fewer groups")
        return deployment_of(found[0], lives)


def _names(found: list[Explained]) -> str:
    names = [each.story.group or "one without a name" for each in found[:_LISTED]]
    return ", ".join(names) + ", …" * (len(found) > _LISTED)
