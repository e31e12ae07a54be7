"""Credentials of hosted control planes in Pods: issued in a folder of the operator, and divided among Secrets.

    Secret hosted-UID-keys ─► folder ─► issued, renewed, replaced (local/hostedpki.py) ─► Secret hosted-UID-keys
                              folder ─► the files that the process and the sidecar read

A process in a Pod reads no file anew: each change of its files replaces the Pod. So an authority is replaced, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from tenantry.api.planecredentials import RotationPhase
from tenantry.hostedpods import issuedkeys, objects
from tenantry.hostedpods.podsockets import PodSockets
from tenantry.hosting import certificates, encryption, guards, serveroptions, sidecar
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.local import components, hostedpki, kubeconfigs, pki
from tenantry.local.paths import ClusterPaths

_IN_POD = (
    *(hosting.TRUSTED, hosting.CLIENTS, hosting.FRONT_PROXY, "kubelet-ca.crt"),
    *("service-account.pub", "service-account.key"),
    # The authority of servers is not there: its key would make any server of this control plane.
    *(f"{name}.{kind}" for name in ("server", "kubelet-client", "front-proxy-client") for kind in ("crt", "key")),
    *(f"{hosting.USERS_CA}.{kind}" for kind in ("crt", "key")),
)
"""The files of the folder pki that the process reads, without former keys of tokens."""


def issue(plane: HostedPlane, folder: Path, known: Mapping[str, bytes], now: dt.datetime) -> dict[str, bytes]:
    """Bring all credentials to what they should be, and return the files of the folder.

    Args:
        plane: The control plane.
        folder: The folder; it has what another start has left, in vain perhaps.
        known: The files that hold.
        now: The time.
    """
    issuedkeys.lay(folder, known)
    hostedpki.issue(folder, plane, now)
    pki.ensure(folder, sidecar.leaves(), now, generations={sidecar.AUTHORITY: plane.credentials.authorities})
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def renewal(plane: HostedPlane, folder: Path) -> dt.datetime | None:
    """Return when `issue` has something to do again; arguments as for `issue`."""
    times = (
        hostedpki.next_change(folder, plane),
        certificates.next_renewal(pki.read_index(folder), sidecar.leaves()),
    )
    return min((each for each in times if each is not None), default=None)


def contents(plane: HostedPlane, paths: ClusterPaths) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the contents of the Secrets of the process and of the sidecar."""
    url = f"https://{components.LOOPBACK}:{sidecar.INTERNAL_PORT}"
    former = hostedpki.former_keys(paths.pki)
    sockets = PodSockets(plane.is_sandboxed).of_process
    ignored = hosting.leaves(plane)[hosting.OPERATOR].user
    files: dict[str, bytes] = {
        hosting.SETTINGS: hosting.settings(
            plane,
            sidecar.INTERNAL_PORT,
            objects.OPENAPI,
            former,
            sockets=sockets,
            prebuilt=objects.PREBUILT,
        ),
        "egress.json": hosting.egress(sockets),
        **{
            f"{each}.kubeconfig": kubeconfigs.text(paths, plane.name, each, url, authority=hosting.TRUSTED).encode()
            for each in hosting.in_files(plane)
        },
        serveroptions.AUTHENTICATION: serveroptions.authentication(plane.options),
        serveroptions.AUDIT_POLICY: serveroptions.audit_policy(plane.options, ignored),
        # Keys of a Secret have no slash.
        **{Path(name).name: content for name, content in guards.files(plane.guards, objects.HOME).items()},
    }
    if plane.encryption is not None:
        files[encryption.FILE] = encryption.configuration(plane.encryption)
    # Certificates of nodes are of the same authority as the server.
    nodes = (f"{hosting.NODES_CA}.crt", f"{hosting.NODES_CA}.key") if plane.has_nodes else ()
    reported = (hosting.FORMER_CLIENTS,) if plane.credentials.phase is RotationPhase.ISSUING else ()
    files |= {each: (paths.pki / each).read_bytes() for each in (*_IN_POD, *nodes, *former, *reported)}
    return files, {key: (paths.pki / name).read_bytes() for key, name in sidecar.FILES.items()}
