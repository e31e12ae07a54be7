"""`tenantry vcp snapshot` and `restore`: request one by a field, and wait until its outcome is known.

A file of the caller's is reached on a local cluster only, where the operator and the caller are one user: the operator
reads and writes no path that a request names.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import Conflict, InputError, LocalError, TenantryError
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.planesnapshots import PlaneOutcome
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import durations, flags, kinds, output, place, session
from tenantry.cli.controlplane import RequestHandled, group_of, read_asked, read_started, wait_for_outcome
from tenantry.cli.delete import confirm
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import READY, wait_for_all
from tenantry.hosting import encryption, snapshots, versions
from tenantry.local.files import explain, make_private_folder, private_file
from tenantry.local.paths import ClusterPaths, cluster_folder, home

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_REQUEST = "request"
_RESTORE = "restore"
_called = click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
_in_tenant = place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
_DEADLINE = "15m"
_WRITES = 10
"""How often a field is written while the operator writes the status at the same time."""


class _Answered(RequestHandled):
    """The status has the outcome of a request."""

    def __init__(self, field: str, value: str) -> None:
        super().__init__()
        self._field = field
        self._value = value
        self.outcome = PlaneOutcome()

    def is_handled(self, value: VirtualControlPlane) -> bool:
        """Return whether it has."""
        status = value.status
        self.outcome = status.last_snapshot if self._field == _REQUEST else status.last_restore
        return self.outcome.requested == self._value


def _folder(local: ClusterPaths, uid: str) -> Path:
    """Return the folder of the snapshots of a control plane."""
    from tenantry.local import hostedsnapshots

    return hostedsnapshots.folder(local, uid)


def _keys(local: ClusterPaths, uid: str) -> Path:
    """Return the file with the keys of a control plane, which is there if it has any."""
    from tenantry.local import hostedkeys

    return hostedkeys.folder(local, uid) / encryption.FILE


@click.command()
@takes_target
@_called
@_in_tenant
@click.option("--to", "to", type=click.Path(path_type=Path, dir_okay=False), help="Copy the snapshot to a new file.")
@durations.timeout_option(_DEADLINE, "Deadline for the outcome, as in 30s or 5m.")
def snapshot(target: Target, *, called: str, namespace: str, to: Path | None, timeout: int) -> None:
    r"""Take a snapshot of all objects inside, also while they change, and print its name.

    \b
      tenantry vcp snapshot web -n acme
      tenantry vcp snapshot web -n acme --to web.snapshot
    """
    take(target, called, place.parent(target, namespace), to, seconds=timeout)


def take(
    target: Target,
    called: str,
    where: str,
    to: Path | None,
    *,
    seconds: int,
    kind: type[KubernetesObject] = VirtualControlPlane,
) -> None:
    """Take a snapshot of a control plane, and print its name.

    Args:
        target: The cluster.
        called: The name of the control plane.
        where: Its namespace.
        to: A new file for a copy of the snapshot; None for none.
        seconds: The deadline.
        kind: As for `bring_back`.

    Raises:
        TenantryError: It is not taken, or not copied: why.
    """
    if to is not None and to.exists():
        raise InputError(f'"{to}" exists already: choose another file for --to')
    if to is not None and not os.access(to.parent, os.W_OK | os.X_OK):
        # Before the snapshot is taken.
        raise InputError(f'--to: no file can be created in "{to.parent}": choose a folder that exists and is writable')
    local = _local(target, "--to") if to is not None else None

    async def work(client: Client) -> str:
        found = await read_started(client, called, where, kind)
        if to is not None and (kept := found.spec.snapshots.destination):
            raise InputError(f"--to copies from the operator's folder, but the snapshots are kept at {kept!r}: omit it")
        outcome = await _ask(client, found, _REQUEST, secrets.token_hex(8), seconds=seconds, kind=kind)
        if local is not None and to is not None:
            try:
                _copy(_folder(local, found.metadata.uid) / outcome.snapshot, to)
                _copy_keys(_keys(local, found.metadata.uid), to)
            except LocalError as error:
                raise LocalError(f"the snapshot {outcome.snapshot} is taken, but not copied: {error}") from error
        return outcome.snapshot

    output.write(session.run(target, work))


@click.command()
@takes_target
@_called
@_in_tenant
@click.option(
    "--from", "source", required=True, metavar="SNAPSHOT|FILE", help="Name in status.snapshots, or path of a file."
)
@click.option(
    "--version",
    "version",
    default="",
    metavar="VERSION",
    help="Go back to this minor version of Kubernetes, which the snapshot must have (default: the version stays).",
)
@flags.yes_option
@durations.timeout_option(_DEADLINE, "Deadline for the outcome, and then for its process, as in 30s or 5m.")
def restore(target: Target, *, called: str, namespace: str, source: str, version: str, yes: bool, timeout: int) -> None:
    r"""Replace all objects inside by those of a snapshot; objects made since are lost.

    A snapshot in a file may be of another control plane. Its path has a "/".

    \b
      tenantry vcp restore web -n acme --from 20261123T221500Z-1042.snapshot
      tenantry vcp restore web -n acme --from ./web.snapshot --yes
      tenantry vcp restore web -n acme --from 20261123T221500Z-1042-before-1.36.3.snapshot --version 1.35
    """
    bring_back(target, called, place.parent(target, namespace), source, version, yes=yes, seconds=timeout)


def bring_back(
    target: Target,
    called: str,
    where: str,
    source: str,
    version: str,
    *,
    yes: bool,
    seconds: int,
    kind: type[KubernetesObject] = VirtualControlPlane,
) -> None:
    """Restore a control plane, and wait until it is usable.

    Args:
        target: The cluster.
        called: The name of the control plane.
        where: Its namespace.
        source: The name of a snapshot, or the path of a file, which has a "/".
        version: The minor version to go back to; "" to keep the version.
        yes: Do not ask.
        seconds: The deadline for the outcome, and then for its process.
        kind: What the request is written into, and messages name: the control plane, or the cluster of its name.

    Raises:
        TenantryError: It is not restored: why.
    """
    file = Path(source) if "/" in source else None
    local = _local(target, "--from with a file") if file is not None else None
    if file is not None and not file.is_file():
        raise InputError(f'"{file}" is not a file')
    if file is None and Path(source).is_file() and not snapshots.is_name(source):
        raise InputError(f'--from: "{source}" is a file: write "./{source}" to restore it')
    found = session.run(target, lambda client: read_started(client, called, where, kind))
    told = kinds.told(kind, called, where)
    back = _earlier(found, version, kind) if version else ""
    if back and target.local_name is not None:
        from tenantry.cli.vcp import build_program

        build_program(back)

    async def work(client: Client) -> None:
        output.talk(f"{told}: all objects inside, which those of the snapshot replace")
        if not yes:
            confirm("Restore the snapshot? This cannot be undone.", refused="nothing was restored")
        name, given = source, None
        if file is not None and local is not None:
            name = f"given-{secrets.token_hex(8)}.snapshot"
            given = _folder(local, found.metadata.uid) / name
            make_private_folder(given.parent)
            _copy(file, given)
            _copy_keys(snapshots.keys_of(file), given)
        try:
            value = f"{name}@{secrets.token_hex(8)}"
            await _ask(client, found, _RESTORE, value, version=back, seconds=seconds, kind=kind)
        finally:
            if given is not None:
                given.unlink(missing_ok=True)
                snapshots.keys_of(given).unlink(missing_ok=True)
        asked = [ObjectSelection(VirtualControlPlane, (called,), where)]
        is_part = kind is not VirtualControlPlane
        await wait_for_all(client, asked, READY, seconds=seconds, stalls=True, quiet=is_part)
        if is_part:
            output.talk(f"{told} is restored, and serves its clients")

    session.run(target, work)


def _earlier(found: VirtualControlPlane, version: str, kind: type[KubernetesObject]) -> str:
    """Return the minor version that a restore goes back to.

    Raises:
        InputError: There is no such version, or it is after the one that the control plane has.
    """
    from tenantry.local import hostedversions

    wanted = versions.find(hostedversions.known(), versions.minor(version))
    running, meta = found.status.version, found.metadata
    if running and versions.is_before(running, wanted.kubernetes):
        raise InputError(
            f"--version {version}: {kinds.told(kind, meta.name, meta.namespace)} has Kubernetes"
            f" {running}, and a restore only goes back: restore without --version, then run"
            f" `{group_of(kind)} upgrade {meta.name} -n {meta.namespace}`"
        )
    return wanted.name


def _staying(wanted: str, running: str) -> str:
    """Return `spec.version` of what keeps the version of its objects.

    A restore that was given up may have left an earlier one, which the operator would take for part of the next.

    Args:
        wanted: Its `spec.version`.
        running: Its `status.version`.
    """
    return versions.minor(running) if running and wanted and versions.is_before(wanted, running) else wanted


async def _ask(
    client: Client,
    found: VirtualControlPlane,
    field: str,
    value: str,
    *,
    version: str = "",
    seconds: int,
    kind: type[KubernetesObject] = VirtualControlPlane,
) -> PlaneOutcome:
    """Request a snapshot or a restore, and return its outcome.

    Args:
        client: The client of the cluster.
        found: The control plane.
        field: Of `spec.snapshots`.
        value: Its new value.
        version: `spec.version` of a restore; "" to leave it. If the restore is refused, the version is as before.
        seconds: The deadline.
        kind: As for `bring_back`.

    Raises:
        TenantryError: It failed, or is not done in time.
    """
    meta = found.metadata
    asked = await read_asked(client, found, kind)
    before = _staying(asked.spec.version, found.status.version)
    written = version or (before if field == _RESTORE else "")
    spec: Json = {"snapshots": {field: value}, **({"version": written} if written else {})}
    patch: Json = {"metadata": {"uid": asked.metadata.uid}, "spec": spec}
    await client.merge_patch(kind.resource, meta.namespace, meta.name, patch)
    answered = _Answered(field, value)
    await wait_for_outcome(client, found, answered, seconds=seconds)
    if answered.outcome.message:
        if written not in ("", before):
            await _take_back(client, found, kind, value, version=written, before=before)
        raise TenantryError(f"{kinds.told(kind, meta.name, meta.namespace)}: {answered.outcome.message}")
    return answered.outcome


async def _take_back(
    client: Client, found: VirtualControlPlane, kind: type[KubernetesObject], value: str, *, version: str, before: str
) -> None:
    """Write `spec.version` as it was before a restore that is refused: later ones would go back to that version, too.

    Raises:
        Conflict: Other clients write the object all the time.
    """
    name, namespace = found.metadata.name, found.metadata.namespace
    for _ in range(_WRITES):
        now = await read_asked(client, found, kind)
        if (now.spec.snapshots.restore, now.spec.version) != (value, version):
            return  # another client has decided since
        meta = {"uid": now.metadata.uid, "resourceVersion": now.metadata.resource_version}
        try:
            patch: Json = {"metadata": meta, "spec": {"version": before or None}}
            await client.merge_patch(kind.resource, namespace, name, patch)
        except Conflict:
            continue
        return
    raise Conflict(
        f"{kinds.told(kind, name, namespace)}: the restore is refused, and spec.version is {version!r}"
        f" still, because others write the object all the time: set it to {before!r}",
        status=409,
    )


def _local(target: Target, flag: str) -> ClusterPaths:
    """Return the files of the local cluster.

    Raises:
        InputError: The command is about another cluster.
    """
    if target.local_name is None:
        raise InputError(f"{flag} works on a local cluster only: its operator keeps the snapshots on this machine")
    return ClusterPaths(cluster_folder(target.local_name, home()))


def _copy(source: Path, to: Path) -> None:
    """Copy a file to a new one with mode 0600: a snapshot has all Secrets."""
    try:
        with private_file(to) as made, source.open("rb") as found:
            shutil.copyfileobj(found, made)
    except OSError as error:
        raise explain(error, to) from error


def _copy_keys(source: Path, of: Path) -> None:
    """Copy the keys of a snapshot beside a copy of it; one that is not encrypted has none."""
    if source.exists():
        _copy(source, snapshots.keys_of(of))
