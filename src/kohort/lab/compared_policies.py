"""The policies that scenarios compare, by name.

In: a name from a user. Out: the behaviour of each consumer of the group. A new design takes part by
being registered here. Must not know: scenarios, the computation of assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kohort.lab.plan import Behaviour
from kohort.model.errors import ConfigError
from kohort.policies.registry import assignors


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPolicy:
    """One policy.

    ``adapt`` turns the behaviour of a scenario into the behaviour of a consumer with this policy.
    With ``static``, members have a ``group.instance.id`` and do not leave the group (KIP-345).
    """

    name: str
    title: str
    adapt: Callable[[Behaviour], Behaviour]
    static: bool = False


COMPARED_POLICIES: dict[str, ComparedPolicy] = {}


def register(policy: ComparedPolicy) -> None:
    """Let a policy take part in every scenario and in the table.

    Raises:
        ConfigError: the name is taken.
    """
    if policy.name in COMPARED_POLICIES:
        raise ConfigError(f"policy {policy.name!r} is registered already")
    COMPARED_POLICIES[policy.name] = policy


def compared_policy(name: str) -> ComparedPolicy:
    """The policy of that name.

    Raises:
        ConfigError: nobody registered it; the message has the choices.
    """
    found = COMPARED_POLICIES.get(name.strip())
    if found is None:
        raise ConfigError(
            f"policy {name!r} is unknown; choose among: {', '.join(COMPARED_POLICIES)}"
        )
    return found


def strategy(
    assignor: str, title: str, *, name: str | None = None, static: bool = False
) -> ComparedPolicy:
    """A policy that is nothing but a ``partition.assignment.strategy``, named like it or else.

    Raises:
        ConfigError: no assignor has that name.
    """
    assignors(assignor)

    def adapt(behaviour: Behaviour) -> Behaviour:
        return replace(behaviour, strategy=assignor)

    return ComparedPolicy(name=name or assignor, title=title, adapt=adapt, static=static)


register(strategy("range", "Eager, range"))
register(strategy("roundrobin", "Eager, round robin"))
register(strategy("sticky", "Eager, sticky"))
register(strategy("cooperative-sticky", "Design I: cooperative sticky"))
register(
    strategy(
        "cooperative-sticky",
        "Static members, cooperative sticky",
        name="static-cooperative-sticky",
        static=True,
    )
)
