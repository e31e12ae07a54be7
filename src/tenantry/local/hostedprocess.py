"""Which control planes may be processes of this machine."""

from __future__ import annotations

from tenantry.api.errors import InputError
from tenantry.hosting.plane import HostedPlane, PlaneHosting


def check_process(plane: HostedPlane) -> None:
    """Check that a control plane may be a process of this machine.

    Raises:
        InputError: It may not: the field, and what to do.
    """
    if plane.hosting is PlaneHosting.PODS:
        raise InputError(
            "spec.hosting is Pods, and this host runs control planes as processes: set it to Auto, or run the operator"
            " in a cluster with `tenantry install --virtual-control-planes`"
        )
    if plane.is_sandboxed:
        raise InputError(
            "spec.runtime is Sandboxed, and this host runs control planes as processes, which no sandbox holds: set it"
            " to Shared, or run the operator in a cluster with `tenantry install --virtual-control-planes`"
        )
