"""Which volumes are made and removed for claims, without a node."""

from __future__ import annotations

import msgspec

from tenantry.api.model import ObjectMeta
from tenantry.local.real import volumes
from tenantry.local.real.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeStatus,
    VolumePlan,
    VolumeResources,
    plan,
)

NODES = frozenset({"real-1", "real-2"})
CHOSEN = {"volume.kubernetes.io/selected-node": "real-1"}


def claim(name: str = "data", annotations: dict[str, str] = CHOSEN, **spec: object) -> PersistentVolumeClaim:
    usual = PersistentVolumeClaimSpec(
        storage_class_name=volumes.CLASS, resources=VolumeResources(requests={"storage": "1Gi"})
    )
    meta = ObjectMeta(name=name, namespace="acme", uid=f"uid-{name}", annotations=annotations)
    return PersistentVolumeClaim(metadata=meta, spec=msgspec.structs.replace(usual, **spec))


def made(one: PersistentVolumeClaim, phase: str, policy: str = "Delete") -> PersistentVolume:
    (volume,) = plan([one], [], NODES, []).make
    spec = msgspec.structs.replace(volume.spec, persistent_volume_reclaim_policy=policy)
    return msgspec.structs.replace(volume, spec=spec, status=PersistentVolumeStatus(phase=phase))


def test_a_claim_gets_a_folder_of_the_node_that_its_pod_gets() -> None:
    """H06: no other claim may use the volume, and no other node."""
    (volume,) = plan([claim()], [], NODES, []).make
    assert volume.spec.local == {"path": "/var/lib/tenantry/volumes/pvc-uid-data"}
    assert volume.spec.claim_ref["uid"] == "uid-data"
    assert volume.spec.capacity == {"storage": "1Gi"}
    assert volume.spec.node_affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["real-1"]
    assert plan([claim()], [volume], NODES, []) == VolumePlan()


def test_nothing_is_made_for_what_is_not_ours_or_names_no_node_of_ours() -> None:
    """H06: the node's name comes from the claim's owner; one with a path in it is no node."""
    others = [
        claim(storage_class_name="fast"),
        claim(volume_name="pv-1"),
        claim(volume_mode="Block"),
        claim(annotations={}),
        claim(annotations={"volume.kubernetes.io/selected-node": "../../real-1"}),
        claim(annotations={"volume.kubernetes.io/selected-node": "node-1"}),
    ]
    assert plan(others, [], NODES, []) == VolumePlan()


def test_a_volume_goes_with_its_claim_unless_it_is_to_be_kept() -> None:
    """H06: only those that we made, once released; and folders that a crash has left."""
    gone, kept, bound = made(claim("a"), "Released"), made(claim("b"), "Released", "Retain"), made(claim("c"), "Bound")
    foreign = msgspec.structs.replace(gone, metadata=ObjectMeta(name="foreign"))
    folders = [("real-1", f"pvc-uid-{name}") for name in "abcd"]
    found = plan([], [gone, kept, bound, foreign], NODES, folders)
    assert found == VolumePlan(remove=(gone,), forget=(("real-1", "pvc-uid-d"),))
