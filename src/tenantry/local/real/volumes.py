"""Volumes that are folders of a node: which ones to create and which to delete; pure.

A claim of the StorageClass waits for a pod; the scheduler then annotates the claim with the node that it has chosen.
The folder is created there, with a PersistentVolume that only this node can use. Both are deleted with the claim.

Source: Kubernetes, "Persistent Volumes" and "Storage Classes", local; the annotations are those that
sigs.k8s.io/sig-storage-lib-external-provisioner reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from tenantry.api.model import Json, KubernetesObject, Model, ObjectMeta, Resource

CLASS = "local"
"""The StorageClass."""
PROVISIONER = "local.tenantry.dev/folder"
PLACE = "/var/lib/tenantry/volumes"
"""The folder of volumes, as a node sees it."""
_UID = re.compile("[0-9a-f-]{36}")
_NAME = re.compile("pvc-[0-9a-f-]{36}")
_CHOSEN = "volume.kubernetes.io/selected-node"
_MADE_BY = "pv.kubernetes.io/provisioned-by"
_HOST = "kubernetes.io/hostname"


class VolumeResources(Model, frozen=True, kw_only=True):
    """The requested size."""

    requests: dict[str, str] = {}


class PersistentVolumeClaimSpec(Model, frozen=True, kw_only=True):
    """The part of a claim's spec that the provisioner reads."""

    storage_class_name: str = ""
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    access_modes: tuple[str, ...] = ()
    resources: VolumeResources = VolumeResources()


class PersistentVolumeClaim(KubernetesObject, frozen=True, kw_only=True):
    """A PersistentVolumeClaim."""

    resource: ClassVar[Resource] = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class PersistentVolumeStatus(Model, frozen=True, kw_only=True):
    """The phase of a volume."""

    phase: str = ""


class PersistentVolumeSpec(Model, frozen=True, kw_only=True):
    """The part of a volume's spec that the provisioner sets."""

    capacity: dict[str, str] = {}
    access_modes: tuple[str, ...] = ()
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    claim_ref: dict[str, str] = {}
    local: dict[str, str] = {}
    node_affinity: Json = {}


class PersistentVolume(KubernetesObject, frozen=True, kw_only=True):
    """A PersistentVolume."""

    resource: ClassVar[Resource] = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def node(self) -> str:
        """Return the node of its folder, "" if another provisioner made the volume."""
        ours = self.metadata.annotations.get(_MADE_BY) == PROVISIONER
        return self.metadata.annotations.get(_CHOSEN, "") if ours else ""


class VolumePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the provisioner has to do.

    Args:
        make: Volumes to create; the folder of each first.
        remove: Volumes to delete because their claims are gone; the folder of each first, if its node is there.
        forget: Folders to delete because no volume has them, as node and name.
    """

    make: tuple[PersistentVolume, ...] = ()
    remove: tuple[PersistentVolume, ...] = ()
    forget: tuple[tuple[str, str], ...] = ()


def is_name(name: str) -> bool:
    """Return whether a name is one of a volume that this module makes, and so one component of a path."""
    return _NAME.fullmatch(name) is not None


def plan(
    claims: Iterable[PersistentVolumeClaim],
    volumes: Iterable[PersistentVolume],
    nodes: frozenset[str],
    folders: Iterable[tuple[str, str]],
) -> VolumePlan:
    """Return what the provisioner has to do.

    Claims and volumes may be invented, with slashes in names and uids: those that cannot be ours are left out.

    Args:
        claims: All claims of the cluster.
        volumes: All volumes of the cluster.
        nodes: The real nodes. The owner of a claim can annotate it with any node, so other nodes are ignored.
        folders: Folders whose volumes would be among these volumes if they existed, as node and name.
    """
    known = {each.metadata.name: each for each in volumes if is_name(each.metadata.name)}
    wanted = {volume.metadata.name: volume for each in claims if (volume := _volume(each)).node in nodes}
    stray = (each for each in folders if is_name(each[1]) and each[1] not in known and each[1] not in wanted)
    # Also of a node that is gone, with the folder.
    gone = [
        each
        for each in known.values()
        if each.node and each.status.phase == "Released" and each.spec.persistent_volume_reclaim_policy == "Delete"
    ]
    return VolumePlan(
        make=tuple(volume for name, volume in sorted(wanted.items()) if name not in known),
        remove=tuple(sorted(gone, key=lambda each: each.key)),
        forget=tuple(sorted(stray)),
    )


def _volume(claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return the volume for a claim; one without a node if the claim needs none from us, or not yet."""
    meta, spec = claim.metadata, claim.spec
    waits = not spec.volume_name and not meta.deletion_timestamp
    is_ours = spec.storage_class_name == CLASS and spec.volume_mode == "Filesystem"
    if not is_ours or not waits or not _UID.fullmatch(meta.uid):
        return PersistentVolume(metadata=ObjectMeta())
    name = f"pvc-{meta.uid}"
    node = meta.annotations.get(_CHOSEN, "")
    here = {"matchExpressions": [{"key": _HOST, "operator": "In", "values": [node]}]}
    return PersistentVolume(
        metadata=ObjectMeta(name=name, annotations={_MADE_BY: PROVISIONER, _CHOSEN: node}),
        spec=PersistentVolumeSpec(
            capacity={"storage": spec.resources.requests.get("storage", "0")},
            access_modes=spec.access_modes,
            persistent_volume_reclaim_policy="Delete",
            storage_class_name=CLASS,
            claim_ref={
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
            local={"path": f"{PLACE}/{name}"},
            node_affinity={"required": {"nodeSelectorTerms": [here]}},
        ),
    )
