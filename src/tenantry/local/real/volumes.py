"""Volumes of a node: which ones to create, to refuse and to delete; pure.

A claim of the StorageClass waits for a pod; the scheduler then annotates the claim with the node that it has chosen.
The volume is created there, with a PersistentVolume that only this node can use. Both are deleted with the claim.

    sized     a file system of the size of the claim; the pod gets its folder `data`, which is there while it is mounted
    a folder  of the disk, if the machine cannot mount sized volumes, and of earlier releases; its size is not enforced

Source: Kubernetes, "Persistent Volumes" and "Storage Classes", local; the annotations are those that
sigs.k8s.io/sig-storage-lib-external-provisioner reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import ClassVar

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import Json, KubernetesObject, Model, ObjectMeta, Resource
from tenantry.world import quantity

CLASS = "local"
"""The StorageClass."""
PROVISIONER = "local.tenantry.dev/folder"
PLACE = "/var/lib/tenantry/volumes"
"""The folder of volumes, as a node sees it."""
INSIDE = "data"
"""The folder of the pod in the file system of a sized volume."""
SMALLEST_BYTES = 2**20
"""The smallest sized volume: ext4 would have no room for files in much less."""
_BLOCK_BYTES = 4096
_STORAGE = "storage"
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

    @property
    def claim(self) -> ObjectMeta:
        """Return namespace, name and uid of the claim that it is made for."""
        known = self.spec.claim_ref
        return ObjectMeta(namespace=known.get("namespace", ""), name=known.get("name", ""), uid=known.get("uid", ""))

    @property
    def capacity(self) -> str:
        """Return its size, as a quantity."""
        return self.spec.capacity.get(_STORAGE, "0")


class RefusedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that gets no volume.

    Args:
        claim: Its metadata.
        why: One sentence: what is wrong, and what to do.
    """

    claim: ObjectMeta
    why: str


class VolumePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the provisioner has to do.

    Args:
        make: Volumes to create; the files of each first.
        refuse: Claims that get none.
        remove: Volumes to delete because their claims are gone; the files of each first, if its node is there.
        forget: Files to delete because no volume has them, as node and name of the volume.
    """

    make: tuple[PersistentVolume, ...] = ()
    refuse: tuple[RefusedClaim, ...] = ()
    remove: tuple[PersistentVolume, ...] = ()
    forget: tuple[tuple[str, str], ...] = ()


def is_name(name: str) -> bool:
    """Return whether a name is one of a volume that this module makes, and so one component of a path."""
    return _NAME.fullmatch(name) is not None


def size_of(requested: str) -> int:
    """Return the size of the volume for a requested size, in bytes: the next multiple of the size of a page.

    Raises:
        InputError: It is not a quantity, or too small.
    """
    value = quantity.parse(requested)
    if value < SMALLEST_BYTES:
        raise InputError(f"{requested[:64]!r} is less than {_written(SMALLEST_BYTES)}, the smallest volume")
    return -(-value // _BLOCK_BYTES) * _BLOCK_BYTES


def plan(
    claims: Iterable[PersistentVolumeClaim],
    volumes: Iterable[PersistentVolume],
    nodes: frozenset[str],
    folders: Iterable[tuple[str, str]],
    *,
    sized: bool,
) -> VolumePlan:
    """Return what the provisioner has to do.

    Claims and volumes may be invented, with slashes in names and uids: those that cannot be ours are left out.

    Args:
        claims: All claims of the cluster.
        volumes: All volumes of the cluster.
        nodes: The real nodes. The owner of a claim can annotate it with any node, so other nodes are ignored.
        folders: Files whose volumes would be among these volumes if they existed, as node and name of the volume.
        sized: Whether this machine can enforce sizes.
    """
    known = {each.metadata.name: each for each in volumes if is_name(each.metadata.name)}
    wanted: dict[str, PersistentVolume] = {}
    refused: list[RefusedClaim] = []
    for each in claims:
        node = _waits_for(each)
        if node not in nodes:
            continue
        made = _volume(each, node, sized=sized)
        if isinstance(made, RefusedClaim):
            refused.append(made)
        else:
            wanted[made.metadata.name] = made
    stray = (each for each in folders if is_name(each[1]) and each[1] not in known and each[1] not in wanted)
    # Also of a node that is gone, with the folder.
    gone = [
        each
        for each in known.values()
        if each.node and each.status.phase == "Released" and each.spec.persistent_volume_reclaim_policy == "Delete"
    ]
    return VolumePlan(
        make=tuple(volume for name, volume in sorted(wanted.items()) if name not in known),
        refuse=tuple(sorted(refused, key=lambda each: each.claim.uid)),
        remove=tuple(sorted(gone, key=lambda each: each.key)),
        forget=tuple(sorted(stray)),
    )


def is_sized(volume: PersistentVolume) -> bool:
    """Return whether the size of a volume is enforced."""
    return volume.spec.local.get("path", "") == f"{PLACE}/{volume.metadata.name}/{INSIDE}"


def _waits_for(claim: PersistentVolumeClaim) -> str:
    """Return the node on which a claim needs a volume from us; "" if it needs none, or not yet."""
    meta, spec = claim.metadata, claim.spec
    waits = not spec.volume_name and not meta.deletion_timestamp
    is_ours = spec.storage_class_name == CLASS and spec.volume_mode == "Filesystem"
    return meta.annotations.get(_CHOSEN, "") if is_ours and waits and _UID.fullmatch(meta.uid) else ""


def _volume(claim: PersistentVolumeClaim, node: str, *, sized: bool) -> PersistentVolume | RefusedClaim:
    meta, spec = claim.metadata, claim.spec
    capacity = spec.resources.requests.get(_STORAGE, "0")
    if sized:
        try:
            capacity = _written(size_of(capacity))
        except InputError as error:
            why = f"the claim gets no volume, because spec.resources.requests.storage {error}: create it again with 1Gi"
            return RefusedClaim(claim=meta, why=why)
    name = f"pvc-{meta.uid}"
    here = {"matchExpressions": [{"key": _HOST, "operator": "In", "values": [node]}]}
    return PersistentVolume(
        metadata=ObjectMeta(name=name, annotations={_MADE_BY: PROVISIONER, _CHOSEN: node}),
        spec=PersistentVolumeSpec(
            capacity={_STORAGE: capacity},
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
            local={"path": f"{PLACE}/{name}/{INSIDE}" if sized else f"{PLACE}/{name}"},
            node_affinity={"required": {"nodeSelectorTerms": [here]}},
        ),
    )


def _written(size: int) -> str:
    return quantity.write(Fraction(size), binary=True)
