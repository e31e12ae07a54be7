"""Creates and removes the folder of a cluster, or the link to it made by `--data`."""

from __future__ import annotations

import shutil
from pathlib import Path

from tenantry.api.errors import InputError, LocalError
from tenantry.local import ports
from tenantry.local.files import explain, make_private_folder
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import read_spec


def prepare(paths: ClusterPaths, name: str, data: Path | None) -> None:
    """Create the folder of a cluster.

    Args:
        paths: Its usual place, found by the cluster's name.
        name: The cluster's name.
        data: Another place for it; a link from the usual place makes the name enough later.

    Raises:
        InputError: The cluster is elsewhere already, or `data` holds something else.
        LocalError: The folder cannot be made.
    """
    if data is None:
        if paths.folder.is_symlink() and not paths.folder.exists():
            raise LocalError(
                f'the data of the cluster "{name}" should be in "{paths.folder.readlink()}", and is not there: bring '
                f"it back, or forget the cluster with `tenantry down --cluster {name} --purge`"
            )
        _make(paths)
        return
    data = data.absolute()
    if paths.folder.exists() and paths.folder.resolve() == data.resolve():
        _make(paths)
        return
    if paths.folder.exists() or paths.folder.is_symlink():
        raise InputError(
            f'--data "{data}": the cluster "{name}" is in "{paths.folder.resolve()}" already; leave --data out, use '
            f"another --cluster, or drop it with `tenantry down --cluster {name} --purge`"
        )
    there = read_spec(ClusterPaths(data))
    if there and there.name != name:
        raise InputError(f'--data "{data}" holds the cluster "{there.name}", not "{name}"')
    if there is None and data.is_dir() and any(data.iterdir()):
        raise InputError(f'--data "{data}" must be an empty folder, or one that a local cluster was kept in')
    if data.exists() and not data.is_dir():
        raise InputError(f'--data "{data}" must be a folder')
    make_private_folder(data)
    try:
        paths.folder.parent.mkdir(parents=True, exist_ok=True)
        paths.folder.symlink_to(data)
    except OSError as error:
        raise explain(error, paths.folder) from error
    _make(paths)


def _make(paths: ClusterPaths) -> None:
    if paths.folder.exists() and not paths.folder.is_dir():
        raise LocalError(f'"{paths.folder}" must be a folder: remove it')
    if not paths.folder.is_symlink():
        make_private_folder(paths.folder)
    for folder in (paths.logs, paths.etcd):
        make_private_folder(folder)


def purge(paths: ClusterPaths) -> None:
    """Delete all files of a stopped cluster, and release its ports."""
    ports.release(paths.folder)
    real = paths.folder.resolve()
    try:
        shutil.rmtree(real)
        if paths.folder.is_symlink():
            paths.folder.unlink()
    except OSError as error:
        raise explain(error, real) from error
