"""`tenantry vcp upgrade`: requests another version of Kubernetes by a field, and waits until its outcome is known.

--plan   prints what stands in the way, the steps, and the ways back
--abort  goes back to the version of before while the next one soaks
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError, TenantryError
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.cli import durations, flags, gitmanaged, kinds, output, place, session
from tenantry.cli.controlplane import (
    RequestHandled,
    group_of,
    read_asked,
    read_started,
    wait_for_outcome,
    write_request,
)
from tenantry.cli.delete import confirm, read_existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import WaitCondition, wait_for_all
from tenantry.engine.conditions import find
from tenantry.hosting import obstacles, versions
from tenantry.hosting.obstacles import ObstacleName, UpgradeObstacle

if TYPE_CHECKING:
    from tenantry.hosting.obstacles import UpgradeFacts
    from tenantry.hosting.versions import HostedVersion
    from tenantry.kube.client import Client

OBSTACLES = 1
"""The exit code of --plan if something stands in the way."""


class UpgradeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `upgrade`.

    Args:
        version: The minor version; "" for the one after the version that it has.
        plan: Only print what would happen.
        abort: Go back to the version of before.
        ignored: Names of obstacles that do not hold it back.
        form: The format of the plan; None for text.
    """

    version: str = ""
    plan: bool = False
    abort: bool = False
    ignored: tuple[str, ...] = ()
    form: str | None = None

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            InputError: They do not.
        """
        if self.abort and (self.plan or self.version or self.ignored):
            raise InputError("--abort goes back to the version of before: omit the other options")
        if self.form and not self.plan:
            raise InputError("-o needs --plan")


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `upgrade` to a command, which gets them as `given`."""

    @functools.wraps(command)
    def call(
        *args: object,
        version: str,
        plan: bool,
        abort: bool,
        ignored: tuple[str, ...],
        form: str | None,
        **others: object,
    ) -> None:
        given = UpgradeOptions(version=version, plan=plan, abort=abort, ignored=ignored, form=form)
        given.check()
        command(*args, given=given, **others)

    options = (
        click.option(
            "--version",
            "--to",
            "version",
            default="",
            metavar="VERSION",
            help="Minor version of Kubernetes, as in 1.36 (default: the one after the version that it has).",
        ),
        click.option("--plan", "--dry-run", "plan", is_flag=True, help="Only print obstacles, steps and ways back."),
        click.option(
            "--ignore",
            "ignored",
            multiple=True,
            type=click.Choice([each.value for each in obstacles.IGNORABLE]),
            help="Obstacle that does not hold the upgrade back. May be repeated.",
        ),
        click.option("--abort", is_flag=True, help="Go back to the version of before, as long as the next one soaks."),
        output.output_option("json", "yaml"),
    )
    for option in reversed(options):
        call = option(call)
    return call


_called = click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
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
        if value.spec.version != self._version.name:
            # It had the version, or this command would still wait for the generation.
            self.problem = (
                f"spec.version is {value.spec.version or 'empty'} again: another client has aborted the upgrade"
            )
        self.is_asleep = status.phase is PlanePhase.ASLEEP and bool(self.snapshot)
        is_new = status.version == self._version.kubernetes and ready.status == "True"
        return bool(self.problem) or self.is_asleep or is_new

    def __str__(self) -> str:
        """Return it in words."""
        return f"upgraded to Kubernetes {self._version.kubernetes}"


class _Aborted(RequestHandled):
    """The version of before serves clients again."""

    def __init__(self) -> None:
        super().__init__("aborted")

    def is_handled(self, value: VirtualControlPlane) -> bool:
        """Return whether it does."""
        last, ready = value.status.last_upgrade, find(value.status.conditions, reasons.READY)
        is_back = not last.soaks and versions.minor(last.before) == value.spec.version
        is_seen = ready is not None and ready.observed_generation >= value.metadata.generation
        return is_back and is_seen and ready is not None and ready.status == "True" and value.status.phase in _SERVING


_SERVING = (PlanePhase.AWAKE, PlanePhase.ASLEEP)


@click.command()
@takes_target
@_called
@_in_tenant
@takes_options
@flags.yes_option
@durations.timeout_option("5m", "Deadline for the outcome, as in 30s or 5m.")
@gitmanaged.force_option
def upgrade(
    target: Target, *, called: str, namespace: str, given: UpgradeOptions, yes: bool, timeout: int, forced: bool
) -> None:
    r"""Upgrade a virtual control plane to another version of Kubernetes, after a snapshot of all objects inside.

    Its process ends, which ends requests and watches that are open, and that of the new version starts on the same
    objects. Its pods run on. With `spec.upgrade.soakSeconds`, the new program behaves as the version before for this
    time, in which --abort starts the former one again. On a local cluster, the first one of a version builds the
    program, which takes several minutes. Exit code of --plan: 1 if something stands in the way.

    \b
      tenantry vcp upgrade web -n acme
      tenantry vcp upgrade web -n acme --version 1.36 --plan
    """
    bring(target, called, place.parent(target, namespace), given, yes=yes, seconds=timeout, forced=forced)


def bring(
    target: Target,
    called: str,
    where: str,
    given: UpgradeOptions,
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
        given: The options.
        yes: Do not ask.
        seconds: The deadline.
        kind: What has the field `spec.version`: the control plane, or the cluster of its name that it belongs to.
        forced: Write it even if a GitOps tool manages this object.

    Raises:
        TenantryError: It does not get the version, or not in time: why.
    """
    from tenantry.cli.vcp import build_program

    found = session.run(target, lambda client: read_started(client, called, where, kind))
    if given.plan:
        _print_plan(target, found, given, kind)
        return
    if given.abort:
        session.run(target, lambda client: _abort(client, found, seconds, kind, forced=forced))
        return
    wanted = _wanted(found, given.version, kind)
    if wanted is None:
        output.talk(f"{kinds.told(kind, called, where)} has Kubernetes {found.status.version} already")
        return
    change = session.run(target, lambda client: _change(client, found, wanted, given.ignored, kind))
    session.run(target, lambda client: gitmanaged.check(client, kind, called, where, change, forced=forced))
    if not yes:
        told = kinds.told(kind, called, where)
        output.talk(f"{told}: from Kubernetes {found.status.version} to {wanted.kubernetes}; open requests end")
        confirm("Upgrade it?", refused="nothing was upgraded")
    if target.local_name is not None:
        build_program(wanted.name)
    session.run(target, lambda client: _bring(client, found, wanted, change, seconds=seconds, kind=kind))


def _print_plan(
    target: Target, found: VirtualControlPlane, given: UpgradeOptions, kind: type[KubernetesObject]
) -> None:
    """Print what stands in the way of an upgrade, its steps, and the ways back; exit with `OBSTACLES` if there is any.

    Raises:
        TenantryError: The control plane does not answer.
    """
    running, told = found.status.version, kinds.told(kind, found.metadata.name, found.metadata.namespace)
    after, known = "", ()
    try:
        wanted = _wanted(found, given.version, kind)
    except InputError as error:
        known = (UpgradeObstacle(name=ObstacleName.VERSION, message=str(error)),)
    else:
        if wanted is None:
            output.talk(f"{told} has Kubernetes {running} already")
            if given.form:
                _write_plan(given.form, running, running, ())
            return
        after = wanted.kubernetes
        known = session.run(target, lambda client: _obstacles(client, found, wanted, given.ignored, kind))
    if given.form:
        _write_plan(given.form, running, after, known)
    else:
        output.write("\n".join(_lines(found, told, after, known, kind)))
    if known:
        sys.exit(OBSTACLES)


def _write_plan(form: str, running: str, after: str, known: Sequence[UpgradeObstacle]) -> None:
    """Print a plan as data; without an upgrade, both versions are the same."""
    plan = {"from": running, "to": after, "obstacles": [msgspec.to_builtins(each) for each in known]}
    text = output.to_json(plan) if form == "json" else output.to_yaml([plan])
    output.write(text.rstrip("\n"))


async def _obstacles(
    client: Client,
    found: VirtualControlPlane,
    wanted: HostedVersion,
    ignored: tuple[str, ...],
    kind: type[KubernetesObject],
) -> tuple[UpgradeObstacle, ...]:
    """Return what holds an upgrade back, as the operator decides it.

    Raises:
        TenantryError: The control plane does not answer.
    """
    from tenantry.cli.cluster import offered
    from tenantry.controllers.virtualcontrolplane import desired

    meta, known = found.metadata, tuple[UpgradeObstacle, ...]()
    if kind is DedicatedCluster:
        try:
            await offered.check(client, meta.name, meta.namespace, wanted.name)
        except InputError as error:
            known = (UpgradeObstacle(name=ObstacleName.VERSION, message=str(error)),)
    if not desired.has_own_nodes(found):
        # Nothing else holds back one without nodes: its pods run on the host.
        return known
    asked = await read_asked(client, found, kind)
    return known + obstacles.find(
        await _facts(client, found), wanted.kubernetes, (*asked.spec.upgrade.ignore, *ignored)
    )


def _lines(
    found: VirtualControlPlane, told: str, after: str, known: Sequence[UpgradeObstacle], kind: type[KubernetesObject]
) -> list[str]:
    """Return a plan as text."""
    running, soak, meta = found.status.version, found.spec.upgrade.soak_seconds, found.metadata
    command = f"{group_of(kind)} upgrade {meta.name} -n {meta.namespace}"
    lines = [f"{told}: from Kubernetes {running} to {after or 'another version'}"]
    lines += [f"obstacle {each.name}: {each.message}" for each in known]
    if not after:
        return lines
    lines.append("1. a snapshot of all objects; requests that are open end, and clients are held until the next step")
    if soak:
        lines.append(f"2. Kubernetes {after} behaves as {versions.minor(running)} for {durations.text(soak)}")
        lines.append(f"   way back: `{command} --abort`, with all objects")
    lines.append(f"{3 if soak else 2}. Kubernetes {after}")
    lines.append("   way back: a restore of the snapshot, without what was written since")
    if kind is DedicatedCluster and versions.minor(after) != versions.minor(running):
        lines.append(
            f"{4 if soak else 3}. its nodes are rebuilt, as many of each pool at a time as maxUnavailable says; volumes"
            " on them are wiped"
        )
    return lines


async def _facts(client: Client, found: VirtualControlPlane) -> UpgradeFacts:
    """Return what a control plane reports.

    Raises:
        TenantryError: It does not answer.
    """
    from tenantry.cli.vcp import read_kubeconfig
    from tenantry.hosting import upgradefacts
    from tenantry.kube import kubeconfig

    meta = found.metadata
    text = await read_kubeconfig(client, meta.name, meta.namespace)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(text)
        return await upgradefacts.read(kubeconfig.load([file]).detached())


async def _abort(
    client: Client, found: VirtualControlPlane, seconds: int, kind: type[KubernetesObject], *, forced: bool
) -> None:
    """Go back to the version of before, and wait until it is there.

    Raises:
        InputError: No version soaks.
        TenantryError: It is not there in time, or Git decides about the object.
    """
    meta, last = found.metadata, found.status.last_upgrade
    told = kinds.told(kind, meta.name, meta.namespace)
    if not last.soaks:
        way = f"; snapshot {last.snapshot} has its objects from before the last upgrade" if last.snapshot else ""
        raise InputError(f"{told} has no version that soaks: there is nothing to abort{way}")
    spec: Json = {"version": versions.minor(last.before)}
    await gitmanaged.check(client, kind, meta.name, meta.namespace, {"spec": spec}, forced=forced)
    await write_request(client, kind, found, spec)
    await wait_for_outcome(client, found, _Aborted(), seconds=seconds)
    output.talk(f"{told} has Kubernetes {last.before} again, with all objects")


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


async def _change(
    client: Client,
    found: VirtualControlPlane,
    wanted: HostedVersion,
    ignored: tuple[str, ...],
    kind: type[KubernetesObject],
) -> Json:
    """Return the merge patch of an upgrade, for the API server and for Git: what is ignored already stays ignored."""
    spec: Json = {"version": wanted.name}
    if ignored:
        before = (await read_asked(client, found, kind)).spec.upgrade.ignore
        spec["upgrade"] = {"ignore": list(dict.fromkeys((*before, *ignored)))}
    return {"spec": spec}


async def _bring(
    client: Client,
    found: VirtualControlPlane,
    wanted: HostedVersion,
    change: Json,
    *,
    seconds: int,
    kind: type[KubernetesObject],
) -> None:
    """Request a version, and print the outcome.

    Raises:
        TenantryError: The control plane does not get it, or not in time: why.
    """
    meta = found.metadata
    await write_request(client, kind, found, change["spec"])
    asked = await read_asked(client, found, kind)
    now = await read_existing(client, VirtualControlPlane, meta.name, meta.namespace)
    # The operator writes the version of a cluster into its control plane.
    is_behind = (now.spec.version, now.spec.upgrade.ignore) != (wanted.name, asked.spec.upgrade.ignore)
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
    if kind is DedicatedCluster and versions.minor(wanted.kubernetes) != versions.minor(found.status.version):
        waits = f"`tenantry cluster wait {meta.name} -n {meta.namespace}`"
        output.talk(f"{told}: its nodes are rebuilt to have it, too: {waits} waits for them")
