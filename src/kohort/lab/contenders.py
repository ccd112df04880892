"""The policies that scenarios are run under, by name: what a row of the table is.

In: a name from a user; out: how each consumer of the group behaves. A new design takes part by
being registered here. Must not know: scenarios, what policies compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kohort.lab.plan import Behaviour
from kohort.model.errors import ConfigError
from kohort.policies.registry import assignors


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One policy.

    ``adapt`` makes of a scenario's behaviour the one of a consumer that has this policy.
    """

    name: str
    title: str
    adapt: Callable[[Behaviour], Behaviour]


CONTENDERS: dict[str, Contender] = {}


def register(contender: Contender) -> None:
    """Let a policy take part in every scenario and in the table.

    Raises:
        ConfigError: the name is taken.
    """
    if contender.name in CONTENDERS:
        raise ConfigError(f"policy {contender.name!r} is registered already")
    CONTENDERS[contender.name] = contender


def contender(name: str) -> Contender:
    """The policy of that name.

    Raises:
        ConfigError: nobody registered it; the message has the choices.
    """
    found = CONTENDERS.get(name.strip())
    if found is None:
        raise ConfigError(f"policy {name!r} is unknown; choose among: {', '.join(CONTENDERS)}")
    return found


def strategy(name: str, title: str) -> Contender:
    """A policy that is nothing but a ``partition.assignment.strategy``.

    Raises:
        ConfigError: no assignor has that name.
    """
    assignors(name)

    def adapt(behaviour: Behaviour) -> Behaviour:
        return replace(behaviour, strategy=name)

    return Contender(name=name, title=title, adapt=adapt)


register(strategy("range", "Eager, range"))
register(strategy("roundrobin", "Eager, round robin"))
register(strategy("sticky", "Eager, sticky"))
register(strategy("cooperative-sticky", "Design I: cooperative sticky"))
