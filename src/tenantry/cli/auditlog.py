"""`tenantry vcp audit-log`: prints the audit log of a control plane.

files of the operator on this machine ─┐
containers that print it, in Pods     ─┴─► lines
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import click

from tenantry.api.errors import Forbidden, InputError
from tenantry.api.planeserver import AuditLevel
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import kinds, output, place, session
from tenantry.cli.delete import read_existing
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, read_environment, takes_target
from tenantry.local.paths import ClusterPaths, cluster_folder, home

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@click.command("audit-log")
@takes_target
@click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
@place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
def audit_log(target: Target, *, called: str, namespace: str) -> None:
    r"""Print the audit log of a virtual control plane: an event of audit.k8s.io/v1 in each line.

    spec.audit.level turns the log on. On a local cluster, it has 50 MB at most. The oldest events are printed first.
    Where control planes run in Pods, each Pod has a log of its own, of which kubelet keeps the newest part until the
    Pod ends.

    \b
      tenantry vcp audit-log web -n acme | jq -r '[.user.username, .verb, .requestURI] | @tsv'
    """
    where = place.parent(target, namespace)
    found = session.run(target, lambda client: read_existing(client, VirtualControlPlane, called, where))
    told = kinds.told(VirtualControlPlane, called, where)
    files = files_of(target, found.metadata.uid)
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            _print(lines)
    if files:
        return
    if found.spec.audit.level is AuditLevel.NONE:
        raise InputError(f"{told} has no audit log: set spec.audit.level, for example to Metadata")
    from tenantry.hostedpods import auditlogs

    try:
        logs = session.run(target, lambda client: auditlogs.read(client, found.metadata.uid))
    except Forbidden as error:
        raise Forbidden(
            f"you may not read the audit log of {told}: ask an administrator of the cluster, who runs"
            f" `tenantry vcp audit-log {called} -n {where}`; the log of a control plane on a local cluster is read on"
            " the machine that runs it, by the user who started the cluster"
        ) from error
    for log in logs:
        _print(events(log))
    if not logs and target.local_name is None:
        raise InputError(f"{told} has no audit log now: no Pod of it runs, for example because it sleeps")


def files_of(target: Target, uid: str) -> tuple[Path, ...]:
    """Return the files of an audit log on this machine, the oldest first; () if it has none.

    Args:
        target: The cluster.
        uid: The uid of the control plane.
    """
    from tenantry.local import hostedfolders

    # Owners name their own kubeconfig, also on the machine that runs the cluster: the uid tells which one it is.
    names = read_environment().names() if target.local_name is None else (target.local_name,)
    found = (hostedfolders.audit_files(ClusterPaths(cluster_folder(name, home())), uid) for name in names)
    return next((each for each in found if each), ())


def events(log: str) -> list[str]:
    """Return the lines of an audit log.

    Clients choose the text of requests: other line ends in it, such as U+0085, end no event.

    Args:
        log: The log.
    """
    return [each for each in log.split("\n") if each]


def shown(event: str) -> str:
    """Return an event without control characters, which terminals act on; JSON has another form of each.

    Args:
        event: A line of an audit log.
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", event)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        output.write(shown(line.rstrip("\n")))
