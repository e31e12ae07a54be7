"""Flags that several verbs take, and their values: owners, quotas, labels, expiry times, waiting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import durations, kinds, output, refusals, session
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target
from tenantry.world.validation import Problem

if TYPE_CHECKING:
    from tenantry.kube.client import Client
F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", Tenant, Subnamespace, VirtualControlPlane, DedicatedCluster)

NEVER = "never"
_RESERVED_PREFIXES = ("system", "tenantry")

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
renewal_option = click.option(
    "--for",
    "until",
    required=True,
    metavar="DURATION|TIME|never",
    help="New end: a duration from now such as 72h, a time such as 2027-01-31T18:00:00Z, or never.",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print the object without creating it (as YAML unless -o is given)."
)


def takes_wait(
    text: str = "Wait until the change is complete.", *, default: bool = False, timeout: str = "60s"
) -> Callable[[F], F]:
    """Give a command --wait and --timeout, and the argument `seconds`: the deadline, or None without --wait.

    Args:
        text: The help of --wait.
        default: The command waits unless --no-wait is given.
        timeout: The default of --timeout.
    """
    flag = "--wait/--no-wait" if default else "--wait"

    def decorate(command: F) -> F:
        @click.option(flag, "waits", is_flag=True, default=default, show_default=default, help=text)
        @durations.timeout_option(timeout, "Deadline of --wait, as in 30s or 5m.")
        @functools.wraps(command)
        def waiting(*args: object, waits: bool, timeout: int, **kwargs: object) -> object:
            return command(*args, seconds=timeout if waits else None, **kwargs)

        return cast("F", waiting)

    return decorate


def owner_option(text: str, *, required: bool = False) -> Callable[[F], F]:
    """Return the option --owner of a verb.

    Args:
        text: The help, without "May be repeated.".
        required: The verb needs it.
    """
    said = f"{text} May be repeated."
    return click.option("--owner", "owners", multiple=True, required=required, metavar="[KIND:]NAME", help=said)


def owners_argument(command: F) -> F:
    """Give a verb the argument OWNER..., and the argument `added`: the owners that it names."""

    @click.argument("texts", nargs=-1, required=True, metavar="[KIND:]OWNER...")
    @functools.wraps(command)
    def adding(*args: object, texts: tuple[str, ...], **kwargs: object) -> object:
        return command(*args, added=tuple(parse_owner(each, "OWNER") for each in texts), **kwargs)

    return cast("F", adding)


def quota_option(text: str) -> Callable[[F], F]:
    """Return the option --quota of a verb; the help names the object that the quota is for."""
    said = f"{text} May be repeated."
    return click.option("--quota", "quotas", multiple=True, metavar="KEY=QUANTITY,...", help=said)


def expiry_option(text: str) -> Callable[[F], F]:
    """Return the option --expires of a verb, whose help begins with what happens then."""
    said = f"{text} after this time or at this time: 72h, or 2027-01-31T18:00:00Z."
    return click.option("--expires", default="", metavar="DURATION|TIME", help=said)


def choice_option(flag: str, default: StrEnum, text: str) -> Callable[[F], F]:
    """Return an option that takes one of an enumeration's values.

    Args:
        flag: The flag, as in --mode.
        default: The default, of the enumeration.
        text: The help.
    """
    values = click.Choice([each.value for each in type(default)], case_sensitive=False)
    return click.option(flag, type=values, default=default.value, show_default=True, help=text)


def control_plane_option(function: F) -> F:
    """Add --control-plane."""
    return choice_option(
        "--control-plane",
        ControlPlaneChoice.SHARED,
        "Virtual: an API server of its own, in which the owners are administrators. Dedicated, for tenants: the same"
        " with nodes of its own.",
    )(function)


def parse_owner(text: str, flag: str = "--owner") -> Owner:
    """Return the owner that `--owner` names: a User if it has no kind.

    A name with a colon, such as oidc:ada, needs the kind before it: User:oidc:ada. The names that Kubernetes and
    Tenantry reserve do not, because the validation of the object rejects them with a better message.

    Raises:
        InputError: The kind is unknown or has no name after it, or a ServiceAccount has no namespace.
    """
    prefix, colon, rest = text.partition(":")
    kind = next((kind for kind in OwnerKind if colon and kind.lower() == prefix.lower()), None)
    if kind is None and colon and prefix not in _RESERVED_PREFIXES:
        known = ", ".join(OwnerKind)
        raise InputError(
            f"{flag} {text!r} has the unknown kind {prefix!r}; kinds are {known}. If the colon belongs to the name of a"
            f" user, write User:{text}"
        )
    if kind is None:
        kind, rest = OwnerKind.USER, text
    if not rest:
        raise InputError(f"{flag} {text!r} must have a name, as in User:ada, Group:devs or ServiceAccount:ci/deployer")
    if kind is not OwnerKind.SERVICE_ACCOUNT:
        return Owner(kind=kind, name=rest)
    namespace, slash, name = rest.partition("/")
    if not slash or not namespace or not name:
        raise InputError(f"{flag} {text!r} must name the service account's namespace: ServiceAccount:NAMESPACE/NAME")
    return Owner(kind=kind, name=name, namespace=namespace)


def parse_quota(texts: Sequence[str], flag: str = "--quota") -> dict[str, int | str]:
    """Return the quantities of `--quota`; the validation of the object checks keys and quantities.

    Raises:
        InputError: A part is not KEY=QUANTITY, or a key is given twice.
    """
    hard: dict[str, int | str] = {}
    for text in texts:
        for part in text.split(","):
            key, equals, value = part.strip().partition("=")
            if not equals or not key or not value:
                raise InputError(f"{flag} {text!r}: {part!r} must be KEY=QUANTITY, as in cpu=4,memory=8Gi")
            if key in hard:
                raise InputError(f"{flag} gives {key!r} twice; keep one")
            hard[key] = value
    return hard


def parse_pairs(flag: str, parts: Sequence[str]) -> dict[str, str]:
    """Return the map of KEY=VALUE parts; a value may be empty.

    Raises:
        InputError: A part has no = or no key, or a key is given twice.
    """
    found: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.strip().partition("=")
        if not equals or not key:
            raise InputError(f"{flag} {part!r} must be KEY=VALUE")
        if key in found:
            raise InputError(f"{flag} gives {key!r} twice; keep one")
        found[key] = value
    return found


def parse_expiry(flag: str, text: str) -> str:
    """Return the RFC 3339 time that a duration from now, or a time, means; "" for "".

    Raises:
        InputError: The text is neither, or the time is past.
    """
    if not text:
        return ""
    now = datetime.now(UTC)
    found = durations.instant(text, now)
    if not found:
        raise InputError(f"{flag} {text!r} must be a duration, as in 72h or 30d, or a time, as in 2027-01-31T18:00:00Z")
    if durations.left(found, now) <= 0 and durations.parse(text) is None:
        raise InputError(f"{flag} {text!r} is past: it must be a time to come")
    return found


def parse_renewal(text: str) -> str | None:
    """Return the time that `--for` names; None for never.

    Raises:
        InputError: The text is not a time, a duration or "never".
    """
    if text.lower() == NEVER:
        return None
    if not text:
        raise InputError("--for must not be empty; say never for no end")
    return parse_expiry("--for", text)


async def renew(client: Client, asked: ObjectSelection, expires_at: str | None) -> None:
    """Change when objects expire; if one of them does not exist, none is changed.

    Args:
        client: The client of the cluster.
        asked: Tenants, Subnamespaces or SliceClaims, by name.
        expires_at: The new time, RFC 3339; None for never.

    Raises:
        NotFound: One of them does not exist.
    """
    for name in asked.names:
        await client.get(asked.kind, name, asked.namespace)
    for name in asked.names:
        patch = {"spec": {"expiresAt": expires_at}}
        await client.merge_patch(asked.kind.resource, asked.namespace, name, patch)
        told = kinds.told(asked.kind, name, asked.namespace)
        output.talk(f"{told} ends at {expires_at}" if expires_at else f"{told} has no end any more")


def make(
    target: Target,
    wanted: K,
    wrong: list[Problem],
    create: Callable[[Client, K], Coroutine[Any, Any, Json]],
    *,
    dry_run: bool,
    form: str | None,
) -> None:
    """Create an object, or only print it, and print the result in the format of -o.

    Args:
        target: The cluster.
        wanted: The object.
        wrong: The problems of the object.
        create: Creates it, and returns the server's answer.
        dry_run: Only print the object.
        form: The format of -o; None for nothing on stdout.

    Raises:
        InputError: The object has problems.
    """
    if wrong:
        raise InputError(refusals.summary(f"{wanted.resource.kind} {wanted.metadata.name!r}", wrong))
    if dry_run:
        print_one(wanted, output.whole(wanted), form or "yaml")
        return
    made = session.run(target, lambda client: create(client, wanted))
    if form:
        print_one(wanted, made, form)


def print_one(wanted: KubernetesObject, value: Json, form: str) -> None:
    """Print an object that was created, or would be, in the format of -o."""
    if form == "name":
        output.write(kinds.full_name(type(wanted), wanted.metadata.name))
    else:
        output.print_objects([value], form, single=True)
