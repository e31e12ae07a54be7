"""Which control planes can run in Pods: pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.errors import InputError
from tenantry.api.planehosting import PlaneHosting
from tenantry.hostedpods import versionimages
from tenantry.hosting import sidecar, versions
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import StoreKind
from tenantry.hosting.versions import HostedVersion


def check_first(plane: HostedPlane) -> None:
    """Check that a control plane can start for the first time; one of an earlier version runs on.

    Raises:
        InputError: A field that never changes is not carried out in Pods.
    """
    if plane.pod_range:
        raise InputError(
            "spec.network.podRange is set, which control planes in Pods do not carry out: the nodes of such a one bring"
            " the ranges of their pods; create another object without the field"
        )


def check(plane: HostedPlane, known: Sequence[HostedVersion] = (versionimages.DEFAULT,)) -> None:
    """Check that a control plane can run in a Pod.

    Args:
        plane: The control plane.
        known: The versions that have an image.

    Raises:
        InputError: It cannot: the field, and what it must be.
    """
    if plane.replicas > 1 and plane.store.kind in (StoreKind.SQLITE, StoreKind.OWN_ETCD):
        # SQLite: only one process opens the file. An etcd of its own is in the same Pod.
        raise InputError(
            "spec.replicas must be 1 unless the datastore is SharedEtcd or External, where control planes run in Pods"
        )
    if plane.hosting is PlaneHosting.MACHINE:
        raise InputError(
            "spec.hosting is Machine, and this host runs control planes in Pods: set it to Auto, or use a local cluster"
        )
    if plane.has_nodes and plane.port == sidecar.INTERNAL_PORT:
        raise InputError(
            f"spec.endpoint.port must not be {sidecar.INTERNAL_PORT}, at which machines reach control planes in Pods:"
            " choose another one"
        )
    if plane.is_sandboxed:
        _check_sandbox(plane)
    versions.find(known, plane.version)


def _check_sandbox(plane: HostedPlane) -> None:
    if plane.store.kind is StoreKind.SQLITE:
        # The sidecar opens the database for snapshots. In gVisor, a lock of a file holds within one container: the last
        # one that closes the database would remove the log of a writer. See docs/decisions/0092.
        raise InputError(
            "spec.runtime is Sandboxed, and spec.datastore.kind is SQLite, whose locks do not hold between containers"
            " of a sandbox: create another control plane with the datastore OwnEtcd, SharedEtcd or External"
        )
    if not plane.runtime_class:
        raise InputError(
            "spec.runtime is Sandboxed, and this host has no RuntimeClass of a sandbox: install gVisor or Kata"
            " Containers with one, and correct spec.sandbox.runtimeClassName of TenancyDefaults 'default' if it names"
            " another; or set spec.runtime to Shared, also in the ClusterTemplate"
        )
