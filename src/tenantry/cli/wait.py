"""`tenantry wait`: until tenants are ready, gone, or whatever a condition says; by watching, never by asking again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import click

from tenantry.api import reasons
from tenantry.api.errors import InputError, NotFound, TenantryError
from tenantry.api.model import Condition, ConditionStatus, KubernetesObject
from tenantry.api.wording import shortened
from tenantry.cli import complete, durations, kinds, output, place, session
from tenantry.cli.kinds import Asked
from tenantry.cli.target import Target, takes_target
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.kube.client import Client

DELETED = "deleted"


@click.command()
@takes_target
@click.argument("words", nargs=-1, metavar="KIND/NAME... | KIND NAME...", shell_complete=complete.objects)
@click.option(
    "--for",
    "what",
    default="ready",
    show_default=True,
    metavar="ready|deleted|condition=TYPE[=STATUS]",
    help="What to wait for; STATUS is True where it is left out.",
)
@place.namespace_option
@place.everywhere_option
@click.option("--all", "everything", is_flag=True, help="For all objects of the KIND that are there now.")
@click.option("--timeout", default="60s", show_default=True, type=durations.DURATION, help="As in 30s, 5m or 1h.")
def wait(
    target: Target,
    *,
    words: tuple[str, ...],
    what: str,
    namespace: str,
    everywhere: bool,
    everything: bool,
    timeout: int,
) -> None:
    r"""Wait until tenants are ready; the exit code is 1 when time is up first.

    \b
      tenantry wait tenant/acme tenant/globex --timeout 30s
      tenantry wait tenants --all
      tenantry wait tenant acme --for condition=Suspended
      tenantry wait subnamespace web -n acme
    """
    wanted = parse_goal(what)
    asked = kinds.parse(words)
    if not asked:
        raise InputError("name what to wait for, as in `tenantry wait tenant/acme`, or `tenantry wait tenants --all`")
    for each in asked:
        if bool(each.names) == everything:
            plural = each.kind.resource.plural
            raise InputError(f"give either names of {plural} or --all, as in `tenantry wait {plural} --all`")
    asked = place.settle(target, asked, namespace, everywhere=everywhere, may_be_everywhere=True)
    session.run(target, lambda client: wait_for_all(client, asked, wanted, seconds=timeout))


class Goal:
    """What is waited for.

    Args:
        type_: The condition's type; "" for the object's end.
        status: Its status.
    """

    def __init__(self, type_: str, status: str = ConditionStatus.TRUE) -> None:
        self.type = type_
        self.status = status

    def reached(self, value: KubernetesObject | None) -> bool:
        """Tell whether it is so; a condition about an older spec does not count."""
        if value is None or not self.type:
            return value is None and not self.type
        found = _condition(value, self.type)
        if found is None:
            # A condition that is there only while it is true is false when it is not there.
            return self.status == ConditionStatus.FALSE and self.type != reasons.READY and _is_current(value)
        return found.status == self.status and found.observed_generation >= value.metadata.generation

    def __str__(self) -> str:
        """Return words that stand after "is not"."""
        if not self.type:
            return "gone"
        if self.type == reasons.READY and self.status == ConditionStatus.TRUE:
            return "ready"
        return f"at {self.type}={self.status}"


def parse_goal(text: str) -> Goal:
    """Return the goal of `--for`.

    Raises:
        InputError: It is none.
    """
    word, _, rest = text.partition("=")
    match word:
        case "ready" if not rest:
            return Goal(reasons.READY)
        case "deleted" | "delete" if not rest:
            return Goal("")
        case "condition":
            type_, _, status = rest.partition("=")
            known = {each.value.lower(): each for each in ConditionStatus}
            if type_ and (not status or status.lower() in known):
                return Goal(type_, known[status.lower()] if status else ConditionStatus.TRUE)
        case _:
            pass
    raise InputError(
        f"--for {text!r} must be ready, deleted or condition=TYPE[=True|False|Unknown], as in condition=Suspended"
    )


async def wait_for_all(
    client: Client,
    asked: Sequence[Asked],
    goal: Goal,
    *,
    seconds: float,
    reached: Callable[[str], None] | None = None,
) -> None:
    """Wait until every object asked for has reached the goal; no names means all that are there.

    Args:
        client: Of the cluster.
        asked: The objects.
        goal: What they are waited for.
        seconds: How long.
        reached: Told the full name of each as it gets there; prints it where it is not given.

    Raises:
        NotFound: One of them is not there, or goes away.
        TenantryError: Time is up; says what each is waiting for.
    """

    def say(name: str) -> None:
        output.talk(f"{name} is {goal}")

    tell = reached or say
    waiting = [_Waiting(each, goal, tell) for each in asked]
    try:
        async with asyncio.timeout(seconds):
            for each in waiting:
                await each.run(client)
    except TimeoutError:
        left = [line for each in waiting for line in each.left()]
        listed = shortened(left, separator="\n  ", in_order=True)
        raise TenantryError(f"not {goal} after {durations.text(round(seconds))}:\n  {listed}") from None


class _Waiting:
    """One kind's share of a wait."""

    def __init__(self, asked: Asked, goal: Goal, tell: Callable[[str], None]) -> None:
        self._asked = asked
        self._kind = asked.kind
        self._names = asked.names
        self._goal = goal
        self._tell = tell
        self._waiting: dict[str, KubernetesObject | None] = dict.fromkeys(asked.keys)

    async def run(self, client: Client) -> None:
        """Watch until all are there."""
        from tenantry.cli.following import follow, only

        first = True
        selectors, namespace = only(self._names), self._asked.namespace
        async with aclosing(follow(client, self._kind, selectors=selectors, namespace=namespace)) as changes:
            async for found in changes:
                if first and not self._names:
                    self._waiting = dict.fromkeys(found)
                    if not found:
                        output.talk(f"there are no {self._kind.resource.plural}: nothing to wait for")
                first = False
                self._look(found)
                if not self._waiting:
                    return

    def _look(self, found: Mapping[str, KubernetesObject]) -> None:
        for key in list(self._waiting):
            value = found.get(key)
            self._waiting[key] = value
            if self._goal.reached(value):
                del self._waiting[key]
                self._tell(kinds.told_key(self._kind, key))
            elif value is None:
                if not self._names:
                    del self._waiting[key]  # one of all, deleted meanwhile
                    continue
                told = kinds.told_key(self._kind, key)
                raise NotFound(f"{told} is not there; `{self._asked.listing}` lists all")

    def left(self) -> list[str]:
        """Return a line for each that is not there yet, saying why as far as it is known."""
        return [f"{kinds.told_key(self._kind, key)}: {why(value)}" for key, value in self._waiting.items()]


def why(value: KubernetesObject | None) -> str:
    """Return what keeps an object from being ready, as its conditions say it."""
    if value is None:
        return "nothing is known of it yet"
    ready = _condition(value, reasons.READY)
    if value.metadata.deletion_timestamp:
        held = ready is not None and ready.status is not ConditionStatus.TRUE
        return f"it is being deleted; {ready.reason}: {ready.message}" if ready and held else "it is being deleted"
    if ready is None or ready.observed_generation < value.metadata.generation:
        return "the operator has not dealt with it yet; does it run?"
    if ready.status is ConditionStatus.TRUE:
        return "it is ready"
    return f"{ready.reason}: {ready.message}"


def _condition(value: KubernetesObject, type_: str) -> Condition | None:
    return find(conditions_of(value), type_)


def _is_current(value: KubernetesObject) -> bool:
    ready = _condition(value, reasons.READY)
    return ready is not None and ready.observed_generation >= value.metadata.generation


def conditions_of(value: KubernetesObject) -> tuple[Condition, ...]:
    """Return the conditions of an object of any of our kinds: each has `status.conditions`."""
    return cast("tuple[Condition, ...]", getattr(getattr(value, "status", None), "conditions", ()))
