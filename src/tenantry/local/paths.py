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
            f'--name "{name}" must be a DNS label: at most 63 characters, a-z, 0-9 and "-", first and last a letter '
            "or digit"
        )
    return name


@dataclass(frozen=True)
class ClusterPaths:
    """The files of one cluster.

    Args:
        folder: Where they are: `<home>/clusters/<name>`, which is a symbolic link for a cluster with `--data`.
    """

    folder: Path

    @property
    def spec(self) -> Path:
        """The cluster's spec."""
        return self.folder / "cluster.json"

    @property
    def state(self) -> Path:
        """The state that the supervisor last reported."""
        return self.folder / "state.json"

    @property
    def up_lock(self) -> Path:
        """Held by the `up` or `down` that changes the cluster as a whole."""
        return self.folder / "up.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor for as long as it lives."""
        return self.folder / "supervisor.lock"

    @property
    def socket(self) -> Path:
        """The socket of the supervisor."""
        return self.folder / "control.sock"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.folder / "pki"

    @property
    def authentication(self) -> Path:
        """The API server's AuthenticationConfiguration."""
        return self.folder / "authentication.yaml"

    @property
    def etcd(self) -> Path:
        """The data."""
        return self.folder / "etcd"

    @property
    def logs(self) -> Path:
        """A file for each component, and the one of the run before."""
        return self.folder / "logs"

    def log(self, component: str) -> Path:
        """Return the log of a component."""
        return self.logs / f"{component}.log"

    def kubeconfig(self, identity: str) -> Path:
        """Return the kubeconfig of an identity, such as "admin"."""
        return self.folder / f"{identity}.kubeconfig"


def cluster_folder(name: str, root: Path) -> Path:
    """Return the folder of the cluster of this name below a home."""
    return root / "clusters" / name
