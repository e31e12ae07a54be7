"""`tenantry vcp upgrade`: requests another version of Kubernetes by a field, and waits until its outcome is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.api import reasons
from tenantry.api.errors import InputError, TenantryError
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.cli import durations, flags, gitmanaged, kinds, output, place, session
from tenantry.cli.controlplane import group_of, read_started
from tenantry.cli.delete import confirm, read_existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import WaitCondition, wait_for_all
from tenantry.engine.conditions import find
from tenantry.hosting import versions

if TYPE_CHECKING:
    from tenantry.hosting.versions import HostedVersion
    from tenantry.kube.client import Client

_called = click.argument("called", metavar="NAME")
_in_tenant = place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")


class _Upgraded(WaitCondition):
    """The control plane has a version, or gets it when it wakes; or it cannot have it."""

    def __init__(self, version: HostedVersion, generation: int) -> None:
        super().__init__("")
        self._version = version
        self._generation = generation
        self.problem = ""
        self.is_asleep = False
        self.snapshot = ""

    def is_met(self, value: KubernetesObject | None) -> bool:
        """Return whether that is so."""
        if not isinstance(value, VirtualControlPlane):
            return False
        status, last = value.status, value.status.last_upgrade
        ready = find(status.conditions, reasons.READY)
        if ready is None or ready.observed_generation < self._generation:
            return False
        self.snapshot = last.snapshot if last.after == self._version.kubernetes else ""
        stalled = find(status.conditions, reasons.STALLED)
        if stalled is not None and stalled.observed_generation >= self._generation:
            self.problem = stalled.message
        self.is_asleep = status.phase is PlanePhase.ASLEEP and bool(self.snapshot)
        is_new = status.version == self._version.kubernetes and ready.status == "True"
        return bool(self.problem) or self.is_asleep or is_new

    def __str__(self) -> str:
        """Return it in words."""
        return f"upgraded to Kubernetes {self._version.kubernetes}"


@click.command()
@takes_target
@_called
@_in_tenant
@click.option(
    "--version",
    "version",
    default="",
    metavar="VERSION",
    help="Minor version of Kubernetes, as in 1.36 (default: the one after the version that it has).",
)
@flags.yes_option
@durations.timeout_option("5m", "Deadline for the outcome, as in 30s or 5m.")
@gitmanaged.force_option
def upgrade(
    target: Target, *, called: str, namespace: str, version: str, yes: bool, timeout: int, forced: bool
) -> None:
    r"""Upgrade a virtual control plane to another version of Kubernetes, after a snapshot of all objects inside.

    Its process ends, which ends requests and watches that are open, and that of the new version starts on the same
    objects. Its pods run on. On a local cluster, the
    first one of a version builds the program, which takes several minutes.

    \b
      tenantry vcp upgrade web -n acme
      tenantry vcp upgrade web -n acme --version 1.36
    """
    bring(target, called, place.parent(target, namespace), version, yes=yes, seconds=timeout, forced=forced)


def bring(
    target: Target,
    called: str,
    where: str,
    version: str,
    *,
    yes: bool,
    seconds: int,
    kind: type[KubernetesObject] = VirtualControlPlane,
    forced: bool = False,
) -> None:
    """Upgrade a control plane, and wait for the outcome.

    Args:
        target: The cluster.
        called: The name of the control plane.
        where: Its namespace.
        version: The minor version; "" for the one after the version that it has.
        yes: Do not ask.
        seconds: The deadline.
        kind: What has the field `spec.version`: the control plane, or the cluster of its name that it belongs to.
        forced: Write it even if a GitOps tool manages this object.

    Raises:
        TenantryError: It does not get the version, or not in time: why.
    """
    from tenantry.cli.vcp import build_program

    found = session.run(target, lambda client: read_started(client, called, where))
    wanted = _wanted(found, version, kind)
    if wanted is None:
        output.talk(f"{kinds.told(kind, called, where)} has Kubernetes {found.status.version} already")
        return
    change: Json = {"spec": {"version": wanted.name}}
    session.run(target, lambda client: gitmanaged.check(client, kind, called, where, change, forced=forced))
    if not yes:
        told = kinds.told(kind, called, where)
        output.talk(f"{told}: from Kubernetes {found.status.version} to {wanted.kubernetes}; open requests end")
        confirm("Upgrade it?", refused="nothing was upgraded")
    if target.local_name is not None:
        build_program(wanted.name)
    session.run(target, lambda client: _bring(client, found, wanted, seconds, kind))


def _wanted(found: VirtualControlPlane, version: str, kind: type[KubernetesObject]) -> HostedVersion | None:
    """Return the version to go to; None if the control plane has it.

    Raises:
        InputError: There is no such version, or no way to it: why.
    """
    from tenantry.local import hostedversions

    known = hostedversions.known()
    told = kinds.told(kind, found.metadata.name, found.metadata.namespace)
    running = found.status.version
    if not running:
        raise InputError(f"{told} has not started yet: `{group_of(kind)} wait {found.metadata.name}` waits for it")
    name = versions.minor(version) if version else ""
    if not name:
        following = versions.following(known, running)
        if following is None:
            return None
        name = following.name
    wanted = versions.find(known, name)
    try:
        versions.check_way(running, wanted.kubernetes)
    except InputError as error:
        raise InputError(f"{told}: {error}") from error
    if wanted.kubernetes == running and found.spec.version in ("", wanted.name):
        return None
    return wanted


async def _bring(
    client: Client,
    found: VirtualControlPlane,
    wanted: HostedVersion,
    seconds: int,
    kind: type[KubernetesObject],
) -> None:
    """Request a version, and print the outcome.

    Raises:
        TenantryError: The control plane does not get it, or not in time: why.
    """
    meta = found.metadata
    asked = await read_existing(client, kind, meta.name, meta.namespace)
    patch = {"metadata": {"uid": asked.metadata.uid}, "spec": {"version": wanted.name}}
    await client.merge_patch(kind.resource, meta.namespace, meta.name, patch)
    now = await read_existing(client, VirtualControlPlane, meta.name, meta.namespace)
    # The operator writes the version of a cluster into its control plane.
    is_behind = now.spec.version != wanted.name
    upgraded = _Upgraded(wanted, now.metadata.generation + is_behind)
    planes = [ObjectSelection(VirtualControlPlane, (meta.name,), meta.namespace)]
    await wait_for_all(client, planes, upgraded, seconds=seconds, quiet=True)
    told = kinds.told(kind, meta.name, meta.namespace)
    if upgraded.problem:
        raise TenantryError(f"{told}: {upgraded.problem}")
    kept = f"; snapshot {upgraded.snapshot} has its objects from before" if upgraded.snapshot else ""
    state = "sleeps, and has" if upgraded.is_asleep else "has"
    when = " when it wakes" if upgraded.is_asleep else ""
    output.talk(f"{told} {state} Kubernetes {wanted.kubernetes}{when}{kept}")
