"""The second and further processes of a hosted control plane on this machine: a folder each, within that of the first.

    hosted/UID/            pki/  gate.sock  admission.sock  etcd.sock, mysql.sock, …  settings.json  activity.sock
    hosted/UID/replicas/2/   ▲       ▲            ▲            ▲                      settings.json  activity.sock
                             └───────┴─ links ────┴────────────┘                      *.kubeconfig   egress.json

What the processes share are links; what each has for itself are files of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tenantry.hosting import guards, serveroptions, stores
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.local import kubeconfigs, ports
from tenantry.local.files import explain, make_private_folder, write_private
from tenantry.local.paths import ClusterPaths

_LINKS = (
    *("pki", hosting.GATE, hosting.ADMISSION, hosting.FORWARDED, stores.ETCD_SOCKET),
    *(*stores.SQL_SOCKETS.values(), stores.PASSWORD_FILE),
    *(serveroptions.AUTHENTICATION, serveroptions.AUDIT_POLICY, guards.CONFIGURATION),
)


def folder(first: Path, number: int) -> Path:
    """Return the folder of a process.

    Args:
        first: The folder of the control plane.
        number: Which process, from 1.
    """
    return first if number == 1 else first / "replicas" / str(number)


def name(plane: str, number: int) -> str:
    """Return the name of a process.

    Args:
        plane: The name of the control plane.
        number: Which process, from 1.
    """
    return plane if number == 1 else f"{plane}.{number}"


def ports_of(first: Path, before: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the internal ports of the further processes; those that there are stay.

    Args:
        first: The folder of the control plane, which the ports are reserved for.
        before: The ports so far.
        count: How many are needed.
    """
    missing = count - len(before)
    return (*before, *ports.reserve_further(first, missing)) if missing > 0 else before[:count]


def write(
    first: Path,
    plane: HostedPlane,
    internal: tuple[int, ...],
    openapi: str,
    former_keys: Sequence[str],
    *,
    folder_of_keys: str,
) -> None:
    """Write the folders of the further processes.

    Args:
        first: The folder of the control plane.
        plane: The control plane.
        internal: The ports of the further processes.
        openapi: See `hosting.plane.settings`.
        former_keys: See `hosting.plane.settings`.
        folder_of_keys: See `hosting.plane.settings`.

    Raises:
        LocalError: A folder cannot be written.
    """
    for number, port in enumerate(internal, start=2):
        own = folder(first, number)
        make_private_folder(own)
        for link in _LINKS:
            _link(own / link, f"../../{link}")
        for each in hosting.in_files(plane):
            kubeconfigs.write_named(ClusterPaths(own), plane.name, each, port, authority=hosting.TRUSTED)
        settings = hosting.settings(plane, port, openapi, former_keys, is_further=True, folder_of_keys=folder_of_keys)
        write_private(own / hosting.SETTINGS, settings)
        write_private(own / "egress.json", hosting.egress())


def _link(link: Path, target: str) -> None:
    if link.is_symlink():
        return
    try:
        link.symlink_to(target)
    except OSError as error:
        raise explain(error, link) from error
