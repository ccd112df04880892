"""The policies that scenarios compare, by name.

In: a name from a user. Out: the behaviour of each consumer of the group. A new design takes part by
being registered here. Must not know: scenarios, the computation of assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from kohort.lab.plan import Behaviour
from kohort.model.errors import ConfigError
from kohort.policies.registry import assignors

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPolicy:
    """One policy.

    ``adapt`` turns the behaviour of a scenario into the behaviour of a consumer with this policy.
    With ``static``, members have a ``group.instance.id`` and do not leave the group (KIP-345). With
    ``drains``, an operator drains each member that will not return; with ``drains_always``, each
    member that stops.
    """

    name: str
    title: str
    adapt: Callable[[Behaviour], Behaviour]
    static: bool = False
    drains: bool = False
    drains_always: bool = False
    server_side: bool = False


def compared_policy(name: str) -> ComparedPolicy:
    """The policy of that name.

    Raises:
        ConfigError: nobody registered it; the message has the choices.
    """
    return chosen("policy", name, COMPARED_POLICIES)


def chosen(what: str, name: str, known: Mapping[str, T]) -> T:
    """The value of that name; ConfigError with the choices if there is none."""
    found = known.get(name.strip())
    if found is None:
        raise ConfigError(f"{what} {name!r} is unknown; choose among: {', '.join(known)}")
    return found


def strategy(
    assignor: str,
    title: str,
    *,
    name: str | None = None,
    static: bool = False,
    drains: bool = False,
    **settings: Any,
) -> ComparedPolicy:
    """A ``partition.assignment.strategy`` with settings of ``Behaviour``, named like it or else.

    Raises:
        ConfigError: no assignor has that name.
    """
    assignors(assignor)

    def adapt(behaviour: Behaviour) -> Behaviour:
        return replace(behaviour, strategy=assignor, **settings)

    return ComparedPolicy(
        name=name or assignor,
        title=title,
        adapt=adapt,
        static=static,
        drains=drains,
    )


def _automatic(behaviour: Behaviour) -> Behaviour:
    """A user who knows what a move costs: the time to restore the state of a partition."""
    return replace(behaviour, strategy=_COOPERATIVE, move_cost_ms=max(1, behaviour.restore_cold_ms))


def _prepared(behaviour: Behaviour) -> Behaviour:
    """A user who gives a process that ends the time in which others restore its state."""
    return replace(
        behaviour,
        strategy=_COOPERATIVE,
        handover_ms=10 * _MINUTE_MS,
        grace_ms=behaviour.grace_ms + 2 * behaviour.restore_cold_ms,
    )


def _with_standbys(behaviour: Behaviour) -> Behaviour:
    """The same with one copy of each partition at another member, before anything happens."""
    return replace(_prepared(behaviour), standbys=1)


_COOPERATIVE: Final = "cooperative-sticky"
_MINUTE_MS: Final = 60_000
_WAIT: Final[dict[str, Any]] = {"scheduled_rebalance_max_delay_ms": _MINUTE_MS}
_SERVER_HEARTBEAT_MS: Final = 5_000
"""The default of ``group.consumer.heartbeat.interval.ms``."""

_ALL: Final = (
    strategy("range", "Eager, range"),
    strategy("roundrobin", "Eager, round robin"),
    strategy("sticky", "Eager, sticky"),
    strategy(_COOPERATIVE, "Design I: cooperative sticky"),
    strategy(_COOPERATIVE, "Design II: a wait of 60 s", name="wait-60s", **_WAIT),
    strategy(
        _COOPERATIVE,
        "Design II: a wait of 60 s, and drains",
        name="wait-60s-drains",
        drains=True,
        **_WAIT,
    ),
    ComparedPolicy(name="wait-auto", title="Design II: automatic wait", adapt=_automatic),
    strategy(
        _COOPERATIVE,
        "Connect's rule: a wait of 60 s",
        name="connect-60s",
        connect_rule=True,
        **_WAIT,
    ),
    ComparedPolicy(
        name="kip-848",
        title="KIP-848 (modelled)",
        adapt=lambda behaviour: replace(behaviour, heartbeat_interval_ms=_SERVER_HEARTBEAT_MS),
        server_side=True,
    ),
    strategy(
        _COOPERATIVE,
        "Design III: one move a round, 5 s apart",
        name="paced",
        max_moves_per_round=1,
        moves_interval_ms=5_000,
    ),
    ComparedPolicy(
        name="handover", title="Warm handover, and drains", adapt=_prepared, drains_always=True
    ),
    ComparedPolicy(
        name="standby",
        title="Warm handover, drains, and a standby",
        adapt=_with_standbys,
        drains_always=True,
    ),
    strategy(
        _COOPERATIVE, "Static members, Design I", name="static-cooperative-sticky", static=True
    ),
    strategy(
        _COOPERATIVE,
        "Static members, Design II: a wait of 60 s",
        name="static-wait-60s",
        static=True,
        **_WAIT,
    ),
)

COMPARED_POLICIES: dict[str, ComparedPolicy] = {policy.name: policy for policy in _ALL}
