"""Changes of policies and settings: checked, chosen for a deployment, and told to people.

In: a deployment from the evidence, names and values from a user. Out: `Change` values, the
behaviour of consumers with a change, the settings to change. Must not know: worlds, runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from kohort.explain.amounts import Known
from kohort.explain.deployments import Deployment, What
from kohort.explain.figures import Figure
from kohort.lab.compared_policies import compared_policy
from kohort.lab.plan import Behaviour
from kohort.model.errors import ConfigError
from kohort.policies.registry import assignors

IN_FORCE: Final = "as it is"
STRATEGY: Final = "partition.assignment.strategy"
INSTANCE: Final = "group.instance.id"
SESSION: Final = "session.timeout.ms"
HEARTBEAT: Final = "heartbeat.interval.ms"
POLL: Final = "max.poll.interval.ms"
WAIT: Final = "scheduled.rebalance.max.delay.ms"
DELAY: Final = "group.initial.rebalance.delay.ms"
SERVER_SIDE: Final = "kip-848"
EACH: Final = "each"
_WHOLE: Final = {
    SESSION: (1, 86_400_000),
    HEARTBEAT: (1, 86_400_000),
    POLL: (1, 86_400_000),
    WAIT: (0, 86_400_000),
    DELAY: (0, 3_600_000),
    "auto.commit.interval.ms": (1, 86_400_000),
    "kohort.max.moves.per.round": (0, 100_000),
    "restart.ms": (0, 3_600_000),
    "batch.ms": (0, 3_600_000),
    "flush.ms": (0, 3_600_000),
    "flush.each.ms": (0, 3_600_000),
    "restore.ms": (0, 3_600_000),
    "restore.again.ms": (0, 3_600_000),
    "members": (1, 1_000),
    "partitions": (1, 20_000),
}
SETTINGS: Final = (STRATEGY, INSTANCE, *_WHOLE, "records.per.second")
"""The names of all settings and numbers that a caller may change."""
_FIELDS: Final = {
    SESSION: "session_timeout_ms",
    HEARTBEAT: "heartbeat_interval_ms",
    POLL: "max_poll_interval_ms",
    WAIT: "scheduled_rebalance_max_delay_ms",
    "auto.commit.interval.ms": "auto_commit_interval_ms",
    "kohort.max.moves.per.round": "max_moves_per_round",
    "batch.ms": "batch_ms",
    "flush.ms": "flush_ms",
    "flush.each.ms": "flush_each_ms",
    "restore.ms": "restore_cold_ms",
    "restore.again.ms": "restore_warm_ms",
    "look.ms": "look_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A policy and settings that differ from those in force."""

    title: str
    policy: str = ""
    """A name of the lab's policies; empty: the policy in force."""
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def static(self) -> bool | None:
        """Whether each member has an instance id; None: as it is."""
        if dict(self.settings).get(INSTANCE) is not None:
            return dict(self.settings)[INSTANCE] == EACH
        return True if self.policy and compared_policy(self.policy).static else None


def checked_setting(name: str, value: str) -> tuple[str, str]:
    """A setting by its name, with a value that it can have.

    Raises:
        ConfigError: an unknown name, or an impossible value.
    """
    if name not in SETTINGS:
        raise ConfigError(f"setting {name!r} is unknown; choose among: {', '.join(SETTINGS)}")
    if name == STRATEGY:
        if value != SERVER_SIDE:
            assignors(value)
    elif name == INSTANCE:
        if value not in {EACH, "none"}:
            raise ConfigError(
                f"{INSTANCE}={value} is not possible here; give {EACH!r} (each process has its own "
                "id) or 'none'"
            )
    elif name == "records.per.second":
        if not _number(value) or not 0 < float(value) <= 1e6:
            raise ConfigError(f"{name}={value}: expected a number above 0, at most 1,000,000")
    else:
        low, high = _WHOLE[name]
        if not value.isdecimal() or not low <= int(value) <= high:
            raise ConfigError(f"{name}={value}: expected a whole number from {low} to {high}")
    return name, value


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def assumed(deployment: Deployment, settings: Iterable[tuple[str, str]]) -> Deployment:
    """The deployment with figures that the user knows better than the evidence."""
    figures = dict(deployment.figures)
    found = deployment
    for name, value in settings:
        typed = value if name in {STRATEGY, INSTANCE} else float(value)
        figures[name] = Figure(value=typed, known=Known.ASSUMED, source="given on the command line")
        found = _sized(found, name, value)
    return replace(found, figures=figures)


def _sized(deployment: Deployment, name: str, value: str) -> Deployment:
    """The deployment with another size, or other restart times."""
    if name == "partitions":
        return replace(deployment, topics=((deployment.topics[0][0], int(value)),))
    if name == "restart.ms":
        away = {What.STOPPED, What.KILLED}
        return replace(
            deployment,
            incidents=tuple(
                replace(i, for_s=int(value) / 1_000, known=Known.ASSUMED)
                if i.what in away and i.for_s is not None
                else i
                for i in deployment.incidents
            ),
        )
    if name != "members":
        return deployment
    wanted, busy = int(value), {incident.pod for incident in deployment.incidents}
    kept = [pod for pod in deployment.pods if pod in busy]
    if wanted < len(kept):
        raise ConfigError(
            f"members={value} contradicts the evidence: {len(kept)} members came, went or were late"
        )
    idle = [pod for pod in deployment.pods if pod not in busy]
    more = [f"more {n + 1}" for n in range(wanted - len(kept) - len(idle))]
    chosen = {*kept, *idle[: wanted - len(kept)], *more}
    order = [pod for pod in [*deployment.pods, *more] if pod in chosen]
    return replace(deployment, pods=tuple(order))


def check_change(deployment: Deployment, change: Change) -> None:
    """Whether the settings of a change fit each other and the deployment.

    Raises:
        ConfigError: they contradict each other; the message says which to change.
    """
    given = dict(change.settings)
    if change.policy and STRATEGY in given:
        raise ConfigError(
            f"--policy {change.policy} and --set {STRATEGY} contradict each other: both name the "
            "assignor; give one of them"
        )
    if change.policy and compared_policy(change.policy).static and given.get(INSTANCE) == "none":
        raise ConfigError(
            f"--policy {change.policy} gives each member an instance id, and --set {INSTANCE}=none "
            "takes it away; give one of them"
        )
    then = assumed(deployment, change.settings)
    behaviour, _ = behaviour_of(then, change)
    server_side = is_server_side(then, change)
    if behaviour.heartbeat_interval_ms >= behaviour.session_timeout_ms:
        raise ConfigError(
            f"{HEARTBEAT}={behaviour.heartbeat_interval_ms} is not below "
            f"{SESSION}={behaviour.session_timeout_ms}: no member would stay in the group; "
            "heartbeats should come at least three times a session"
        )
    eager = server_side or "cooperative" not in behaviour.strategy
    late = [name for name in (WAIT, "kohort.max.moves.per.round") if given.get(name, "0") != "0"]
    if late and eager:
        strategy = SERVER_SIDE if server_side else behaviour.strategy
        raise ConfigError(
            f"{late[0]} has no effect with {strategy}: only cooperative-sticky has it; add "
            "--policy cooperative-sticky"
        )


def sensible_changes(deployment: Deployment) -> list[Change]:
    """The changes that are worth a comparison for these events."""
    strategy = deployment.text(STRATEGY)
    static = deployment.text(INSTANCE) == EACH
    kinds = {incident.what for incident in deployment.incidents}
    away = [
        i.for_s
        for i in deployment.incidents
        if i.what in {What.STOPPED, What.KILLED} and i.for_s is not None
    ]
    found = [
        Change(title=name, policy=name)
        for name in ("sticky", "cooperative-sticky", "wait-60s")
        if name != strategy
    ]
    session = deployment.number(SESSION)
    if not static and away:
        longer = _rounded(1_500 * max(away))
        more = ((SESSION, str(longer)),) if longer > session else ()
        title = "static-cooperative-sticky" + f", {SESSION}={longer}" * bool(more)
        found.append(Change(title=title, policy="static-cooperative-sticky", settings=more))
    if What.KILLED in kinds and session > 10_000:
        found.append(_setting(SESSION, "10000", deployment))
    paused = [i.for_s for i in deployment.incidents if i.what is What.PAUSED and i.for_s]
    if paused:
        found.append(_setting(SESSION, str(_rounded(1_500 * max(paused))), deployment))
    late = [i.for_s for i in deployment.incidents if i.what is What.SLOW and i.for_s]
    if late and 1_000 * max(late) >= deployment.number(POLL):
        found.append(_setting(POLL, str(_rounded(1_500 * max(late))), deployment))
    if kinds == {What.STARTED} and deployment.begins and deployment.number(DELAY) < 10_000:
        found.append(_setting(DELAY, "10000", deployment))
    return found


def _setting(name: str, value: str, deployment: Deployment) -> Change:
    settings = [(name, value)]
    if name == SESSION and deployment.number(HEARTBEAT) * 3 > int(value):
        settings.append((HEARTBEAT, str(int(value) // 3)))
    return Change(title=", ".join(f"{n}={v}" for n, v in settings), settings=tuple(settings))


def _rounded(millis: float) -> int:
    """A setting that people would write: whole seconds, or tens of seconds."""
    step = 1_000 if millis < 30_000 else 10_000
    return max(1_000, -(-round(millis) // step) * step)


def is_server_side(deployment: Deployment, change: Change) -> bool:
    """Whether the coordinator assigns (KIP-848)."""
    if change.policy:
        return compared_policy(change.policy).server_side
    return deployment.text(STRATEGY) == SERVER_SIDE


def behaviour_of(deployment: Deployment, change: Change) -> tuple[Behaviour, bool]:
    """The settings of every consumer, and whether each has an instance id."""
    strategy = deployment.text(STRATEGY)
    values: dict[str, Any] = {
        attribute: round(deployment.number(name))
        for name, attribute in _FIELDS.items()
        if name in deployment.figures
    }
    behaviour = Behaviour(
        topics=tuple(name for name, _ in deployment.topics),
        **values,
    )
    if change.policy:
        policy = compared_policy(change.policy)
        behaviour = policy.adapt(behaviour)
        given: dict[str, Any] = {
            _FIELDS[n]: round(float(v)) for n, v in change.settings if n in _FIELDS
        }
        behaviour = replace(behaviour, **given)
    elif strategy != SERVER_SIDE:
        behaviour = replace(behaviour, strategy=strategy)
    static = change.static
    return behaviour, deployment.text(INSTANCE) == EACH if static is None else static


def steps(deployment: Deployment, change: Change) -> list[tuple[str, str, str]]:
    """The settings to change: name, present value, new value."""
    behaviour, static = behaviour_of(assumed(deployment, change.settings), change)
    server_side = is_server_side(deployment, change)
    new: dict[str, str] = {INSTANCE: EACH if static else "none"}
    new[STRATEGY] = SERVER_SIDE if server_side else behaviour.strategy
    new[WAIT] = str(behaviour.scheduled_rebalance_max_delay_ms)
    new |= {name: value for name, value in change.settings if name not in new}
    if behaviour.move_cost_ms:
        new[WAIT] = "auto"
    if behaviour.max_moves_per_round:
        new["kohort.max.moves.per.round"] = str(behaviour.max_moves_per_round)
    found = []
    for name, value in new.items():
        figure = deployment.figures.get(name)
        old = "" if figure is None else _text(figure.value)
        if old != value:
            found.append((name, old or "0", value))
    return found


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"
