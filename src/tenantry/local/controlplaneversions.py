"""The versions of Kubernetes that local clusters can have: `tenantry up --kubernetes-version`."""

from __future__ import annotations

from tenantry.api.errors import InputError
from tenantry.hosting import versions
from tenantry.local import build
from tenantry.local.moduleversions import ModuleVersions

VERSIONS = ModuleVersions("controlplane", build.CONTROL_PLANE, build.controlplane)


def chosen(wanted: str, before: str | None, name: str) -> str:
    """Return the version that a cluster starts with, as in "1.36".

    Args:
        wanted: By the user; "" for no wish.
        before: What it had at its last start, as it is recorded: "" for the default; None for a new cluster.
        name: Of the cluster, for messages.

    Raises:
        InputError: There is no such version, or the cluster may not go to it from the one that it has.
    """
    found = VERSIONS.find(wanted or before or "")
    if before is not None:
        try:
            versions.check_way(VERSIONS.find(before).kubernetes, found.kubernetes)
        except InputError as error:
            raise InputError(
                f'cluster "{name}" has Kubernetes {VERSIONS.find(before).name} and may not get {found.name}: Kubernetes'
                " goes to the next minor version only, and never back; choose another name with --cluster, or delete"
                f" the cluster with `tenantry down --cluster {name} --purge`"
            ) from error
    return found.name
