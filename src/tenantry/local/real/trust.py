"""The authorities that a machine trusts while it serves a hosted control plane; they are replaced while it runs.

    CLUSTER/hosted/UID/pki/             CLUSTER/hosted/UID/nodes/NAME/node/
        node-clients.crt            ─►      ca.crt           clients of the kubelet, which reads it anew by itself
        trusted.crt                 ─►      servers-ca.crt   the API server; kubelet and kube-proxy start anew (init.py)

The operator brings them before the API server starts with what they name. Users inside can be root on the machine, and
change both files and what is at their paths: nothing reads them outside of the machine.
"""

from __future__ import annotations

from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.hosting import plane as hosting
from tenantry.local import hostedpki
from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import memberships, settings
from tenantry.local.real.memberships import Membership


def authorities(paths: ClusterPaths, membership: Membership) -> dict[str, bytes]:
    """Return the files of authorities of a machine, by their names in its folder `node`.

    Args:
        paths: The cluster's.
        membership: The control plane that it serves. Its `ca` is of when its token was made, and serves only if the
            control plane has no files, as one of an earlier version until it starts.
    """
    folder = ClusterPaths(paths.folder / "hosted" / membership.plane).pki
    joined = membership.ca.encode()
    sources = {settings.AUTHORITY: hostedpki.NODE_CLIENTS, settings.SERVERS_AUTHORITY: hosting.TRUSTED}
    return {name: _content(folder / source) or joined for name, source in sources.items()}


def write(paths: ClusterPaths, membership: Membership, configuration: Path) -> None:
    """Write the files of a machine that starts.

    Args:
        paths: The cluster's.
        membership: The control plane that it serves.
        configuration: Its folder `node`.

    Raises:
        LocalError: They cannot be written.
    """
    written: dict[str, bytes] = {}
    # `bring` may run meanwhile in the operator, with later ones.
    while (wanted := authorities(paths, membership)) != written:
        for name, data in wanted.items():
            write_private(configuration / name, data)
        written = wanted


def bring(paths: ClusterPaths, plane: str) -> None:
    """Bring the authorities of a control plane to all machines that serve it.

    Args:
        paths: The cluster's.
        plane: The uid of the control plane, whose own files are written.

    Raises:
        LocalError: A machine does not have them, and its kubelet would refuse the API server.
    """
    for name, runs in memberships.away(paths).items():
        membership = memberships.read(paths, name)
        if not runs or membership is None or membership.plane != plane:
            continue
        configuration = memberships.folder_in(paths, plane, name) / "node"
        for file, data in authorities(paths, membership).items():
            try:
                write_private(configuration / file, data)
            except LocalError as error:
                # One that has not started yet reads them itself; one that leaves needs none.
                if configuration.is_dir():
                    raise LocalError(f'the machine "{name}" does not get new authorities: {error}') from error


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
