"""Which cluster the machine of a real node serves: the host, a hosted control plane, or none while it is wiped.

    CLUSTER/machines/NAME.json              absent for the host; the operator writes it, the supervisor reads it
    CLUSTER/nodes/NAME                      the files of the machine while it serves the host
    CLUSTER/hosted/UID/nodes/NAME           its files while it serves the control plane of this uid

Number and cgroup of the machine stay. Its files are of one membership only, and are deleted with it. The volumes of the
host stay in CLUSTER/nodes/NAME/volumes and CLUSTER/nodes/NAME/disks, which no other membership sees, as a disk that is
unplugged.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.local.files import explain, make_private_folder, write_private
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import disks, loops

_VOLUMES = frozenset({"volumes", disks.FOLDER})


class Membership(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The control plane that a machine serves, or is wiped for.

    Args:
        plane: The uid of the control plane.
        server: The URL of its endpoint for nodes; "" while the machine is wiped, and does not run.
        ca: The authorities of its API server, as PEM.
        token: The bootstrap token of the machine.
        version: The minor version that its kubelet is to have; "" for any.
    """

    plane: str
    server: str = ""
    ca: str = ""
    token: str = ""
    version: str = ""

    @property
    def runs(self) -> bool:
        """Return whether the machine runs in the control plane."""
        return bool(self.server)


def read(paths: ClusterPaths, name: str) -> Membership | None:
    """Return the membership of a machine; None if it serves the host.

    Raises:
        LocalError: It cannot be read.
    """
    file = _file(paths, name)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Membership)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(
            f'"{file}" cannot be read ({error}): `tenantry down --purge` drops this cluster and its data'
        ) from error


def away(paths: ClusterPaths) -> dict[str, bool]:
    """Return the names of the machines that do not serve the host, and whether each runs.

    Raises:
        LocalError: A membership cannot be read.
    """
    names = [file.stem for file in (paths.folder / "machines").glob("*.json")]
    return {name: found.runs for name in names if (found := read(paths, name)) is not None}


def write(paths: ClusterPaths, name: str, membership: Membership) -> None:
    """Record the control plane of a machine; the supervisor runs it so after its next reload."""
    file = _file(paths, name)
    make_private_folder(file.parent)
    write_private(file, msgspec.json.encode(membership))


def forget(paths: ClusterPaths, name: str) -> None:
    """Record that a machine serves the host."""
    _file(paths, name).unlink(missing_ok=True)


def host_folder(paths: ClusterPaths, name: str) -> Path:
    """Return the folder of a machine while it serves the host."""
    return paths.folder / "nodes" / name


def folder_of(paths: ClusterPaths, name: str) -> Path:
    """Return the folder of the present files of a machine."""
    found = read(paths, name)
    return host_folder(paths, name) if found is None else folder_in(paths, found.plane, name)


def folder_in(paths: ClusterPaths, plane: str, name: str) -> Path:
    """Return the folder of a machine while it serves the control plane of a uid."""
    return paths.folder / "hosted" / plane / "nodes" / name


def check_at_home(paths: ClusterPaths, name: str) -> None:
    """Check that a machine serves the host.

    Raises:
        InputError: It serves a control plane, whose pods would end.
    """
    if read(paths, name) is not None:
        raise InputError(
            f'the node "{name}" serves a cluster of a tenant: `kubectl get nodehandover {name}` names it; let it return'
            " first with `tenantry cluster scale` or `tenantry cluster delete`"
        )


def wipe(paths: ClusterPaths, name: str) -> None:
    """Delete all files of a machine that does not run, whichever cluster it has served, except volumes of the host.

    Raises:
        LocalError: Something is left.
    """
    own = host_folder(paths, name)
    hosted = tuple((paths.folder / "hosted").glob(f"*/nodes/{name}"))
    for folder in (*hosted, own):
        try:
            # First: while the kernel has a device of a deleted image, the data is still there.
            loops.detach(folder)
        except OSError as error:
            raise explain(error, folder) from error
    for folder in hosted:
        _remove(folder)
    if own.is_dir():
        for each in own.iterdir():
            if each.name not in _VOLUMES:
                _remove(each)


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            # It follows no link that a pod has left.
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, path) from error


def _file(paths: ClusterPaths, name: str) -> Path:
    return paths.folder / "machines" / f"{name}.json"
