"""`tenantry vcp sleep` and `tenantry vcp wake`: request a phase of a control plane, and wait for the outcome.

annotation tenantry.dev/requested-phase ─► operator ─► status.handledRequest, status.phase
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from tenantry.api import reasons
from tenantry.api.errors import NotFound, TenantryError
from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.cli import durations, gitmanaged, kinds, output, place, session
from tenantry.cli.controlplane import group_of, read_started
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_called = click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
_in_tenant = place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
_timeout = durations.timeout_option("2m", "Deadline for the outcome, as in 30s or 5m.")


@click.command()
@takes_target
@_called
@_in_tenant
@_timeout
@gitmanaged.force_option
def sleep(target: Target, *, called: str, namespace: str, timeout: int, forced: bool) -> None:
    r"""End the process of a virtual control plane; its objects stay, and so do its pods with `workloads: Keep`.

    Requests and watches that are open end. The next connection, or `tenantry vcp wake`, starts the process again.

    \b
      tenantry vcp sleep web -n acme
    """
    bring(target, called, place.parent(target, namespace), PlanePhase.ASLEEP, timeout, forced=forced)


@click.command()
@takes_target
@_called
@_in_tenant
@_timeout
@gitmanaged.force_option
def wake(target: Target, *, called: str, namespace: str, timeout: int, forced: bool) -> None:
    r"""Start the process of a virtual control plane that sleeps, and wait until it is usable.

    \b
      tenantry vcp wake web -n acme
    """
    bring(target, called, place.parent(target, namespace), PlanePhase.AWAKE, timeout, forced=forced)


def bring(
    target: Target,
    called: str,
    namespace: str,
    phase: PlanePhase,
    seconds: int,
    *,
    kind: type[KubernetesObject] = VirtualControlPlane,
    forced: bool = False,
    spec: Json | None = None,
) -> None:
    """Request a phase of a control plane, and print how it has come there.

    Args:
        target: The cluster.
        called: The name of the control plane.
        namespace: Its namespace.
        phase: The phase.
        seconds: How long to wait for it.
        kind: What the request is written into, and messages name: the control plane, or the cluster of its name.
        forced: Write the request even if a GitOps tool manages this object.
        spec: A merge patch of the spec of this object, in the same write; None for none.

    Raises:
        TenantryError: It does not come there, or not in time: why.
    """
    session.run(
        target,
        lambda client: _bring(client, called, namespace, phase, seconds, kind=kind, forced=forced, spec=spec),
    )


async def _bring(
    client: Client,
    name: str,
    namespace: str,
    phase: PlanePhase,
    seconds: int,
    *,
    kind: type[KubernetesObject],
    forced: bool,
    spec: Json | None,
) -> None:
    """Request a phase, and print how the control plane has come there.

    Raises:
        TenantryError: It does not come there, or not in time: why.
    """
    import datetime as dt

    from tenantry.engine.clock import rfc3339_micro

    found = await read_started(client, name, namespace, kind)
    value = f"{phase} {rfc3339_micro(dt.datetime.now(dt.UTC))}"
    change: Json = {"metadata": {"annotations": {REQUESTED_PHASE: value}}, **({"spec": spec} if spec else {})}
    await gitmanaged.check(client, kind, name, namespace, change, forced=forced)
    await client.merge_patch(kind.resource, namespace, name, change)
    last, told = found, kinds.told(kind, name, namespace)
    try:
        async with asyncio.timeout(seconds):
            last = await _outcome(client, found, value, phase, told)
    except TimeoutError:
        raise TenantryError(
            f"{told} is not {phase.lower()} after {durations.text(seconds)}; the request stays:"
            f" `{group_of(kind)} describe {name} -n {namespace}` shows its state, and `tenantry status` the operator"
        ) from None
    ready = find(last.status.conditions, reasons.READY)
    message = f": {ready.message}" if ready is not None and phase is PlanePhase.ASLEEP else ""
    output.talk(f"{told} is {phase.lower()}{message}")


async def _outcome(
    client: Client, found: VirtualControlPlane, value: str, phase: PlanePhase, told: str
) -> VirtualControlPlane:
    """Wait until the request is handled and its outcome is known.

    Args:
        client: The client of the cluster.
        found: The control plane.
        value: The request.
        phase: The phase that it names.
        told: The name that messages have.

    Raises:
        TenantryError: It is refused.
    """
    from tenantry.cli.following import follow, only

    name, namespace = found.metadata.name, found.metadata.namespace
    watched = follow(client, VirtualControlPlane, selectors=only((name,)), namespace=namespace)
    async with aclosing(watched) as changes:
        async for each in changes:
            now = each.get(found.key)
            if now is None or now.metadata.deletion_timestamp:
                raise NotFound(f"{told} was deleted")
            if now.status.handled_request != value:
                continue
            ready = find(now.status.conditions, reasons.READY)
            if phase is PlanePhase.AWAKE and ready is not None and ready.reason == reasons.QUOTA_INSUFFICIENT:
                raise TenantryError(f"{told} cannot wake: {ready.message}")
            if phase is PlanePhase.ASLEEP and now.status.phase is PlanePhase.AWAKE:
                raise TenantryError(f"{told} is awake: a client has woken it")
            # Its share returns when the process has ended.
            if now.status.phase is phase and (phase is PlanePhase.AWAKE or not now.status.charged):
                return now
    raise NotFound(f"the watch of {told} ended")
