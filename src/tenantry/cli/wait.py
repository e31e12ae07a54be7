"""`tenantry wait`: waits by watching until objects are ready, gone, or meet another condition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import click

from tenantry.api import reasons
from tenantry.api.errors import InputError, NotFound, TenantryError
from tenantry.api.model import Condition, ConditionStatus, KubernetesObject
from tenantry.api.wording import shortened, suggestion
from tenantry.cli import durations, kinds, output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.argument("words", nargs=-1, metavar="KIND/NAME... | KIND NAME...", shell_complete=candidates.objects)
@click.option(
    "--for",
    "what",
    default="ready",
    show_default=True,
    metavar="ready|deleted|condition=TYPE[=STATUS]",
    help="Condition to wait for; STATUS is True if omitted.",
)
@place.namespace_option
@place.everywhere_option
@click.option("--all", "everything", is_flag=True, help="Wait for all objects of the KIND that exist now.")
@durations.timeout_option("60s", "Deadline, as in 30s, 5m or 1h.")
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
    r"""Wait until objects are ready, gone, or meet another condition; the exit code after the deadline is 1.

    \b
      tenantry wait tenant/acme tenant/globex --timeout 30s
      tenantry wait tenants --all
      tenantry wait tenant acme --for condition=Suspended
      tenantry wait subnamespace web -n acme
    """
    condition = parse_condition(what)
    asked = kinds.parse(words)
    if not asked:
        raise InputError("name what to wait for, as in `tenantry wait tenant/acme`, or `tenantry wait tenants --all`")
    for each in asked:
        if bool(each.names) == everything:
            plural = each.kind.resource.plural
            raise InputError(f"give either names of {plural} or --all, as in `tenantry wait {plural} --all`")
    asked = place.settle(target, asked, namespace, everywhere=everywhere, may_be_everywhere=True)
    session.run(target, lambda client: wait_for_all(client, asked, condition, seconds=timeout))


class WaitCondition:
    """A condition to wait for.

    Args:
        type_: The condition's type; "" for the deletion of the object.
        status: Its status.
    """

    def __init__(self, type_: str, status: str = ConditionStatus.TRUE) -> None:
        self.type = type_
        self.status = status

    def is_met(self, value: KubernetesObject | None) -> bool:
        """Return whether an object meets it; a condition about an older spec does not count."""
        if value is None or not self.type:
            return value is None and not self.type
        found = find(conditions_of(value), self.type)
        if found is None:
            # A condition that exists only while it is True counts as False when it is absent.
            return self.status == ConditionStatus.FALSE and self.type != reasons.READY and _is_current(value)
        return found.status == self.status and found.observed_generation >= value.metadata.generation

    @property
    def met(self) -> str:
        """Return words that follow the name of an object that meets it."""
        return f"is {self}" if str(self) in {"gone", "ready"} else f"condition met: {self}"

    def __str__(self) -> str:
        """Return it in words."""
        if not self.type:
            return "gone"
        if self.type == reasons.READY and self.status == ConditionStatus.TRUE:
            return "ready"
        return f"{self.type}={self.status}"


READY = WaitCondition(reasons.READY)
GONE = WaitCondition("")


def parse_condition(text: str) -> WaitCondition:
    """Return the condition of `--for`.

    Raises:
        InputError: The text is not a condition.
    """
    word, _, rest = text.partition("=")
    match word:
        case "ready" if not rest:
            return READY
        case "deleted" | "delete" if not rest:
            return GONE
        case "condition":
            type_, _, status = rest.partition("=")
            known = {each.value.lower(): each for each in ConditionStatus}
            if type_ and type_ not in reasons.CONDITION_TYPES:
                types = sorted(reasons.CONDITION_TYPES)
                raise InputError(
                    f"--for {text!r}: {type_!r} is not a condition of Tenantry's kinds{suggestion(type_, types)};"
                    f" conditions are {', '.join(types)}"
                )
            if type_ and (not status or status.lower() in known):
                return WaitCondition(type_, known[status.lower()] if status else ConditionStatus.TRUE)
        case _:
            pass
    raise InputError(
        f"--for {text!r} must be ready, deleted or condition=TYPE[=True|False|Unknown], as in condition=Suspended"
    )


async def wait_for_all(
    client: Client,
    asked: Sequence[ObjectSelection],
    condition: WaitCondition = READY,
    *,
    seconds: float,
    quiet: bool = False,
    stalls: bool = False,
) -> None:
    """Wait until every selected object meets a condition; a selection without names means all that exist now.

    Args:
        client: The client of the cluster.
        asked: The objects.
        condition: The condition that each must meet.
        seconds: The deadline.
        quiet: Do not print the objects that meet it.
        stalls: Fail as soon as an object is Stalled, because waiting does not help then.

    Raises:
        NotFound: One of them does not exist, or is deleted.
        TenantryError: The deadline has passed, or an object is stalled; the message says what the object waits for.
    """
    waiting = [_Waiting(each, condition, quiet=quiet, stalls=stalls) for each in asked]
    try:
        async with asyncio.timeout(seconds):
            for each in waiting:
                await each.run(client)
    except TimeoutError:
        left = shortened([line for each in waiting for line in each.left()], separator="\n  ", in_order=True)
        raise TenantryError(f"not {condition} after {durations.text(round(seconds))}:\n  {left}") from None


async def judged(client: Client, asked: ObjectSelection) -> str:
    """Wait until one object is ready, or will not be until a person acts; return why it is not ready, "" if it is.

    Args:
        client: The client of the cluster.
        asked: The object; the caller sets the deadline.

    Raises:
        NotFound: It was deleted.
    """
    from tenantry.cli.following import follow, only

    (key,) = asked.keys
    async with aclosing(follow(client, asked.kind, selectors=only(asked.names), namespace=asked.namespace)) as changes:
        async for found in changes:
            value = found.get(key)
            if value is None:
                raise NotFound(f"{kinds.told_key(asked.kind, key)} was deleted; `{asked.listing}` lists all")
            if READY.is_met(value):
                return ""
            if _is_stalled(value):
                return why(value)
    raise NotFound(f"the watch of {kinds.told_key(asked.kind, key)} ended")


class _Waiting:
    """The objects of one selection that do not meet the condition yet."""

    def __init__(self, asked: ObjectSelection, condition: WaitCondition, *, quiet: bool, stalls: bool) -> None:
        self._asked = asked
        self._kind = asked.kind
        self._condition = condition
        self._quiet = quiet
        self._stalls = stalls
        self._left: dict[str, KubernetesObject | None] = dict.fromkeys(asked.keys)

    async def run(self, client: Client) -> None:
        """Watch until none is left."""
        from tenantry.cli.following import follow, only

        names, namespace = self._asked.names, self._asked.namespace
        first = True
        async with aclosing(follow(client, self._kind, selectors=only(names), namespace=namespace)) as changes:
            async for found in changes:
                if first and not names:
                    # Objects that are created later do not count.
                    self._left = dict.fromkeys(found)
                    if not found:
                        output.talk(f"there are no {self._kind.resource.plural}: nothing to wait for")
                first = False
                for key in list(self._left):
                    self._check(key, found.get(key))
                if not self._left:
                    return

    def _check(self, key: str, value: KubernetesObject | None) -> None:
        self._left[key] = value
        name = kinds.told_key(self._kind, key)
        if self._condition.is_met(value):
            del self._left[key]
            if not self._quiet:
                output.talk(f"{name} {self._condition.met}")
        elif value is None:
            if self._asked.names:
                raise NotFound(f"{name} does not exist; `{self._asked.listing}` lists all")
            del self._left[key]  # one of all, deleted meanwhile
        elif self._stalls and _is_stalled(value):
            raise TenantryError(f"{name} will not be {self._condition} until a person acts: {why(value)}")

    def left(self) -> list[str]:
        """Return a line for each object that is left, with the reason if it is known."""
        return [f"{kinds.told_key(self._kind, key)}: {why(value)}" for key, value in self._left.items()]


def why(value: KubernetesObject | None) -> str:
    """Return what keeps an object from being ready, as its conditions say it."""
    if value is None:
        return "nothing is known of it yet"
    ready = find(conditions_of(value), reasons.READY)
    if value.metadata.deletion_timestamp:
        held = ready is not None and ready.status is not ConditionStatus.TRUE
        return f"it is being deleted; {ready.reason}: {ready.message}" if ready and held else "it is being deleted"
    if ready is None or not _is_current(value):
        return "the operator has not processed it yet; is the operator running?"
    if ready.status is ConditionStatus.TRUE:
        return "it is ready"
    return f"{ready.reason}: {ready.message}"


def _is_current(value: KubernetesObject) -> bool:
    ready = find(conditions_of(value), reasons.READY)
    return ready is not None and ready.observed_generation >= value.metadata.generation


def _is_stalled(value: KubernetesObject) -> bool:
    stalled = find(conditions_of(value), reasons.STALLED)
    if stalled is None or stalled.status is not ConditionStatus.TRUE:
        return False
    return stalled.observed_generation >= value.metadata.generation


def conditions_of(value: KubernetesObject) -> tuple[Condition, ...]:
    """Return the conditions of an object of any Tenantry kind: each has `status.conditions`."""
    return cast("tuple[Condition, ...]", getattr(getattr(value, "status", None), "conditions", ()))
