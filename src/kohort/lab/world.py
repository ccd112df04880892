"""A world: one broker, its pods, their network, disk and clock, and the recorded history.

In: a plan. Out: a history of facts. One scheduler drives everything, and every choice comes from
generators that are seeded by the plan: the same plan gives the same history, byte for byte. Must
not know: how plans are drawn, the checks of histories.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.engine.member_engine import MemberEngine
from kohort.history.promises import BUILT_IN, DEFERRING, HANDING_OVER, INCREMENTAL
from kohort.lab.actions import Action
from kohort.lab.performing import PERFORMERS
from kohort.lab.plan import Plan
from kohort.lab.scheduler import Choose
from kohort.lab.world_parts import WORLD, WorldParts
from kohort.member.states import MemberState
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, ProtocolName, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant
from kohort.model.world_facts import (
    FaultsHealed,
    HistoryCalmed,
    PolicyDeclared,
    TopicSized,
)


class World(WorldParts):
    """One run of a plan; the arguments are those of `WorldParts`."""

    def __init__(
        self,
        plan: Plan,
        *,
        choose: Choose | None = None,
        recording: bool = True,
        take: Callable[[Recorded], None] | None = None,
    ) -> None:
        super().__init__(plan, choose=choose, recording=recording, take=take)
        self.core: tuple[str, ...] = ()
        """After healing: the pods that must converge, which are those without a fault."""
        self._schedule()

    def _schedule(self) -> None:
        scheduler = self.scheduler
        for topic in self.plan.topics:
            self.record(WORLD, 1, TopicSized(topic=topic.name, partitions=topic.partitions))
        if self.plan.defers or self.plan.moves_per_step or self.plan.hands_over:
            self.record(WORLD, 1, _promised(self.plan))
        scheduler.at(0, None, self.node.start)
        for pod in self.plan.pods:
            if pod.start_ms is not None:
                scheduler.after(pod.start_ms, None, self.pods[pod.name].start)
        for action in self.plan.actions:
            scheduler.after(action.at_ms, None, self.do, action)
        if self.plan.heal_ms is not None:
            scheduler.after(self.plan.heal_ms, None, self._heal)

    # -- running ----------------------------------------------------------------------------------

    def run(self, until_ms: int | None = None) -> None:
        """Run to an instant, or to the plan's end."""
        end = self.plan.duration_ms if until_ms is None else until_ms
        self.scheduler.run(Instant(end * MICROS_PER_MILLI))

    def do(self, action: Action) -> None:
        """Carry out an action, unless the world is frozen."""
        if not self.frozen:
            PERFORMERS[type(action)](self, action)

    def _heal(self) -> None:
        """End all faults of the core; the faults of other pods stay."""
        self.frozen = True
        self.network.plan = self.plan.healed_network
        self.node.journal.heal()
        self.node.coordinate()
        self.node.resume()
        if self.node.up and self.node.journal.broken:
            self.node.crash(power_cut=False, silent=False)
        self.node.start()
        for name, pod in self.pods.items():
            if name not in self.plan.core:
                pod.stays_down = True
                continue
            pod.heal()
            pod.resume()
            pod.keep_up()
        self.core = tuple(name for name, pod in self.pods.items() if pod.healthy)
        self.record(WORLD, 1, FaultsHealed(group_id=GroupId(self.plan.group_id), core=self.core))

    def calm(self) -> None:
        """Record that the history ends here on purpose."""
        self.record(WORLD, 1, HistoryCalmed(group_id=GroupId(self.plan.group_id)))

    # -- the state --------------------------------------------------------------------------------

    def converged(self, names: tuple[str, ...] | None = None) -> bool:
        """Whether these pods are one stable generation and own and read all subscribed partitions.

        None means the core without the pods that ended since.
        """
        if names is None:
            names = tuple(name for name in self.core if self.pods[name].up)
        pods = [self.pods[name] for name in names]
        if not pods or not all(pod.up and not pod.process.paused for pod in pods):
            return False
        members = [pod.driver.member for pod in pods]
        if not all(self._confirmed(member) for member in members):
            return False
        if len({member.core.synced_generation_id for member in members}) != 1:
            return False
        owned: list[TopicPartition] = []
        for pod in pods:
            mine = pod.driver.core.ownership
            if mine.releasing or not pod.application.reads(mine.owned):
                return False
            owned += mine.owned
        wanted = self.topics.all_of(frozenset(t for pod in pods for t in pod.subscription))
        return len(owned) == len(wanted) and set(owned) == wanted

    def _confirmed(self, member: MemberEngine) -> bool:
        """Whether a member is stable and the coordinator confirmed this within its session."""
        session = member.core.config.session_timeout_ms * MICROS_PER_MILLI
        heard = member.core.last_confirmed
        return (
            member.core.state is MemberState.STABLE
            and heard is not None
            and self.now - heard < session
        )

    def check(self) -> None:
        """Assert the invariants of every core; raises InvariantViolation."""
        if self.node.up:
            self.node.engine.check()
        for pod in self.pods.values():
            if pod.up:
                pod.driver.check()


def _promised(plan: Plan) -> PolicyDeclared:
    """The promises of a group in which leaders wait, have one limit of moves, or hand over."""
    name = ProtocolName("cooperative-sticky")
    words = set(BUILT_IN[name].promises)
    words |= {DEFERRING} if plan.defers else set()
    words |= {INCREMENTAL} if plan.moves_per_step else set()
    words |= {HANDING_OVER} if plan.hands_over else set()
    return PolicyDeclared(
        protocol_name=name,
        promises=tuple(sorted(words)),
        moves_per_step=plan.moves_per_step,
        step_interval_ms=plan.step_interval_ms,
    )
