"""Kubelet and kube-proxy of the version of a control plane, beside those of all nodes.

    go/node-kube/go.mod        the version of all nodes
    go/node-kube/go-1.35.mod   another one: the same sources, with other versions of the modules

They are built with the program of hosted control planes of that version (`tenantry local build --with-nodes
--hosted-version 1.35`).
"""

from __future__ import annotations

from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.hosting import versions
from tenantry.local import build, sources
from tenantry.local.build import Product


def product(version: str) -> Product | None:
    """Return the programs of a minor version; None if nodes have no others for it.

    Args:
        version: As in "1.35".
    """
    return build.kubelets(version) if version in _others() else None


def products() -> tuple[Product, ...]:
    """Return the programs of all other versions, the oldest first."""
    return tuple(build.kubelets(each) for each in sorted(_others(), key=lambda each: int(each.partition(".")[2])))


def folder(version: str) -> str:
    """Return the folder of the programs of a minor version; "" for those of all nodes.

    Nodes have these also for a version that there is no program of, or that is not built (see `check`).
    """
    wanted = product(version)
    found = build.built(wanted) if wanted is not None else None
    return str(found.folder) if found is not None else ""


def check(version: str) -> None:
    """Check that a machine of a minor version gets no kubelet that is newer, which Kubernetes does not support.

    Args:
        version: As in "1.35"; "" for any.

    Raises:
        InputError: It is no version.
        LocalError: Only a newer kubelet is built.
    """
    if not version or folder(version):
        return
    own = versions.minor(build.module_version((_modules() / "go.mod").read_text(), "k8s.io/kubernetes"))
    if versions.is_before(version, own):
        raise LocalError(
            f"there is no kubelet of Kubernetes {version} on this machine, and one of {own} must not join a cluster of"
            f" an earlier version: run `tenantry local build --with-nodes --hosted-version {version}`"
        )


def _modules() -> Path:
    return sources.root() / "go" / "node-kube"


def _others() -> set[str]:
    known = _modules().glob("go-*.mod")
    texts = (each.read_text() for each in known)
    return {versions.minor(build.module_version(each, "k8s.io/kubernetes")) for each in texts}
