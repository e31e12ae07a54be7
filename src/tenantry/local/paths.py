"""Where local clusters keep their files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tenantry.api.errors import InputError

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def home() -> Path:
    """Return the folder of all local clusters of this user: $TENANTRY_HOME, else $XDG_DATA_HOME/tenantry."""
    given = os.environ.get("TENANTRY_HOME")
    if given:
        return Path(given).absolute()
    return _xdg("XDG_DATA_HOME", ".local/share") / "tenantry"


def cache() -> Path:
    """Return the folder of what can be built again: $XDG_CACHE_HOME/tenantry."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "tenantry"


def _xdg(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    # The XDG base directory specification: a relative path must be ignored.
    return Path(given) if given.startswith("/") else Path.home() / default


def check_name(name: str) -> str:
    """Return the name if it is valid for a cluster.

    Raises:
        InputError: It is not a DNS label (RFC 1123).
    """
    if not _LABEL.fullmatch(name):
        raise InputError(
            f'--cluster "{name}" must be a DNS label: at most 63 characters, a-z, 0-9 and "-", first and last a letter '
            "or digit"
        )
    return name


class _Inside:
    """A path in the folder of a cluster."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: ClusterPaths, owner: type[ClusterPaths]) -> Path:
        return paths.folder / self._name


@dataclass(frozen=True)
class ClusterPaths:
    """The files of one cluster.

    Args:
        folder: Where they are: `<home>/clusters/<name>`, which is a symbolic link for a cluster with `--data`.
    """

    folder: Path

    spec = _Inside("cluster.json")
    """The cluster's spec."""
    state = _Inside("state.json")
    """The state that the supervisor last reported."""
    up_lock = _Inside("up.lock")
    """Held by the `up` or `down` that changes the cluster as a whole."""
    supervisor_lock = _Inside("supervisor.lock")
    """Held by the supervisor for as long as it lives."""
    socket = _Inside("control.sock")
    """The socket of the supervisor."""
    pki = _Inside("pki")
    """Certificates and keys."""
    authentication = _Inside("authentication.yaml")
    """The API server's AuthenticationConfiguration."""
    etcd = _Inside("etcd")
    """The data."""
    logs = _Inside("logs")
    """A file for each component, and the one of the run before."""

    def log(self, component: str) -> Path:
        """Return the log of a component."""
        return self.logs / f"{component}.log"

    def kubeconfig(self, identity: str) -> Path:
        """Return the kubeconfig of an identity, such as "admin"."""
        return self.folder / f"{identity}.kubeconfig"


def cluster_folder(name: str, root: Path) -> Path:
    """Return the folder of the cluster of this name below a home."""
    return root / "clusters" / name
