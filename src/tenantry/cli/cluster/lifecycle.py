"""`tenantry cluster upgrade`, `rotate`, `backup` and `restore`: request them of the control plane of a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.cli import durations, flags, gitmanaged, planesnapshots, planeupgrade, rotation
from tenantry.cli.cluster.place import in_tenant
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target

_called = click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
_OUTCOME = "Deadline for the outcome, as in 30s or 5m."


@click.command()
@takes_target
@_called
@in_tenant
@planeupgrade.takes_options
@flags.yes_option
@durations.timeout_option("5m", _OUTCOME)
@gitmanaged.force_option
def upgrade(
    target: Target,
    *,
    called: str,
    namespace: str,
    given: planeupgrade.UpgradeOptions,
    yes: bool,
    timeout: int,
    forced: bool,
) -> None:
    r"""Upgrade the control plane of a cluster to another version of Kubernetes, after a snapshot of all objects inside.

    It waits while an obstacle stands in the way that --plan names. The new program behaves as the version before for
    `spec.upgrade.soakSeconds`, in which --abort starts the former one again with all objects. Exit code: 0 it has the
    version; 1 it does not get it, or not before the deadline, or --plan names an obstacle, or Git decides about the
    cluster, and the patch for Git is on stdout.

    \b
      tenantry cluster upgrade acme
      tenantry cluster upgrade acme --to 1.36 --plan
      tenantry cluster upgrade acme --abort
    """
    where = namespace or called
    planeupgrade.bring(target, called, where, given, yes=yes, seconds=timeout, kind=DedicatedCluster, forced=forced)


@click.command()
@takes_target
@_called
@in_tenant
@rotation.takes_options
@flags.yes_option
@durations.timeout_option("2m", _OUTCOME)
def rotate(
    target: Target, *, called: str, namespace: str, given: rotation.RotationOptions, yes: bool, timeout: int
) -> None:
    r"""Replace the credentials of a cluster; kubeconfigs handed out before are worth nothing afterwards.

    With --phase, they are replaced in phases: `prepare` trusts the next authorities, too; `issue` issues everything
    again by them; `complete` trusts only them, as soon as nothing uses the credentials of before. Exit code: 0 they are
    replaced, or the phase is in force; 1 they are not, or not before the deadline.

    \b
      tenantry cluster rotate acme
      tenantry cluster kubeconfig acme > acme.kubeconfig
      tenantry cluster rotate acme --phase complete
      tenantry cluster rotate acme --phase complete --force
    """
    where = namespace or called
    rotation.replace(target, called, where, given, yes=yes, seconds=timeout, kind=DedicatedCluster)


@click.command()
@takes_target
@_called
@in_tenant
@click.option("--to", "to", type=click.Path(path_type=Path, dir_okay=False), help="Copy the snapshot to a new file.")
@durations.timeout_option("15m", _OUTCOME)
def backup(target: Target, *, called: str, namespace: str, to: Path | None, timeout: int) -> None:
    r"""Take a snapshot of all objects of a cluster, also while they change, and print its name.

    Exit code: 0 it is taken; 1 it is not.

    \b
      tenantry cluster backup acme
      tenantry cluster backup acme --to acme.snapshot
    """
    planesnapshots.take(target, called, namespace or called, to, seconds=timeout, kind=DedicatedCluster)


@click.command()
@takes_target
@_called
@in_tenant
@click.option("--from", "source", required=True, metavar="SNAPSHOT|FILE", help="Name of a snapshot, or path of a file.")
@click.option(
    "--version",
    "version",
    default="",
    metavar="VERSION",
    help="Go back to this minor version of Kubernetes, which the snapshot must have (default: the version stays).",
)
@flags.yes_option
@durations.timeout_option("15m", "Deadline for the outcome, and then for its process, as in 30s or 5m.")
def restore(target: Target, *, called: str, namespace: str, source: str, version: str, yes: bool, timeout: int) -> None:
    r"""Replace all objects of a cluster by those of a snapshot; objects made since are lost. Its nodes stay.

    A snapshot in a file may be of another cluster. Its path has a "/". With --version, the cluster gets this
    `spec.version`; if the restore is refused, it keeps the one that it has. Exit code: 0 it is restored and usable; 1
    it is not.

    \b
      tenantry cluster restore acme --from 20261123T221500Z-1042.snapshot
      tenantry cluster restore acme --from ./acme.snapshot --yes
      tenantry cluster restore acme --from 20261123T221500Z-1042-before-1.36.3.snapshot --version 1.35
    """
    where = namespace or called
    planesnapshots.bring_back(target, called, where, source, version, yes=yes, seconds=timeout, kind=DedicatedCluster)
