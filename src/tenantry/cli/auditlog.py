"""`tenantry vcp audit-log`: prints the audit log of a control plane, which the operator keeps on its machine."""

from __future__ import annotations

import click

from tenantry.api.errors import InputError
from tenantry.api.planeserver import AuditLevel
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import kinds, output, place, session
from tenantry.cli.delete import read_existing
from tenantry.cli.target import Target, takes_target
from tenantry.local.paths import ClusterPaths, cluster_folder, home


@click.command("audit-log")
@takes_target
@click.argument("called", metavar="NAME")
@place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
def audit_log(target: Target, *, called: str, namespace: str) -> None:
    r"""Print the audit log of a virtual control plane of a local cluster: an event of audit.k8s.io/v1 in each line.

    spec.audit.level turns the log on. It has 50 MB at most; the oldest events are printed first.

    \b
      tenantry vcp audit-log web -n acme | jq -r '[.user.username, .verb, .requestURI] | @tsv'
    """
    where = place.parent(target, namespace)
    if target.local_name is None:
        raise InputError("audit logs are read on a local cluster only: its operator keeps them on this machine")
    paths = ClusterPaths(cluster_folder(target.local_name, home()))
    found = session.run(target, lambda client: read_existing(client, VirtualControlPlane, called, where))
    from tenantry.local import hosted

    files = hosted.audit_files(paths, found.metadata.uid)
    if not files and found.spec.audit.level is AuditLevel.NONE:
        told = kinds.told(VirtualControlPlane, called, where)
        raise InputError(f"{told} has no audit log: set spec.audit.level, for example to Metadata")
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                output.write(line.rstrip("\n"))
