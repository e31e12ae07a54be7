"""Which volumes are made and removed for claims, without a node."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
import pytest

from tenantry.api.model import ObjectMeta
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import memberships, volumes
from tenantry.local.real.memberships import Membership
from tenantry.local.real.provisioner import HostVolumes, PlaneVolumes, erase, open_to_all
from tenantry.local.real.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeStatus,
    VolumePlan,
    VolumeResources,
    plan,
)
from tenantry.local.spec import ClusterSpec, Ports, RealNode, RealNodes, write_spec

PORTS = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5, kwok=6, operator=7)
NODES = frozenset({"real-1", "real-2"})
CHOSEN = {"volume.kubernetes.io/selected-node": "real-1"}


def uid(name: str) -> str:
    """Return the uid of a claim of this name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def claim(name: str = "data", annotations: dict[str, str] = CHOSEN, **spec: object) -> PersistentVolumeClaim:
    usual = PersistentVolumeClaimSpec(
        storage_class_name=volumes.CLASS, resources=VolumeResources(requests={"storage": "1Gi"})
    )
    meta = ObjectMeta(name=name, namespace="acme", uid=uid(name), annotations=annotations)
    return PersistentVolumeClaim(metadata=meta, spec=msgspec.structs.replace(usual, **spec))


def made(one: PersistentVolumeClaim, phase: str, policy: str = "Delete") -> PersistentVolume:
    (volume,) = plan([one], [], NODES, []).make
    spec = msgspec.structs.replace(volume.spec, persistent_volume_reclaim_policy=policy)
    return msgspec.structs.replace(volume, spec=spec, status=PersistentVolumeStatus(phase=phase))


def test_a_claim_gets_a_folder_of_the_node_that_its_pod_gets() -> None:
    """H06: no other claim may use the volume, and no other node."""
    (volume,) = plan([claim()], [], NODES, []).make
    assert volume.spec.local == {"path": f"/var/lib/tenantry/volumes/pvc-{uid('data')}"}
    assert volume.spec.claim_ref["uid"] == uid("data")
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
    folders = [("real-1", f"pvc-{uid(name)}") for name in "abcd"]
    found = plan([], [gone, kept, bound, foreign], NODES, folders)
    assert found == VolumePlan(remove=(gone,), forget=(("real-1", f"pvc-{uid('d')}"),))


def test_a_volume_of_a_node_that_is_gone_goes_with_its_claim() -> None:
    """H04: the folder was wiped with the machine."""
    gone = made(claim("a"), "Released")
    assert plan([], [gone], frozenset(), []) == VolumePlan(remove=(gone,))


def test_no_link_in_the_place_of_a_volume_is_followed(tmp_path: Path) -> None:
    """H04: an administrator of a tenant's cluster writes into the folders of its machines."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "kept").touch()
    name = f"pvc-{uid('a')}"
    link = tmp_path / name
    link.symlink_to(outside)
    with pytest.raises(OSError, match=name):
        open_to_all(tmp_path, name)
    assert outside.stat().st_mode & 0o777 == 0o700
    erase(tmp_path, name)
    assert not link.is_symlink()
    assert (outside / "kept").exists()
    open_to_all(tmp_path, name)
    open_to_all(tmp_path, name)
    assert link.stat().st_mode & 0o777 == 0o777
    (link / "inside").symlink_to(outside)
    erase(tmp_path, name)
    erase(tmp_path, name)
    assert not link.exists()
    assert (outside / "kept").exists()


@pytest.mark.parametrize("bad", ["../../../../../pki", "pvc-../../..", "pvc-/" + "a" * 35, "", ".", "pvc-1/../../x"])
def test_no_name_or_uid_of_an_invented_answer_leads_out_of_the_folder(tmp_path: Path, bad: str) -> None:
    """H04: a tenant's API server can be made to answer with anything, also with slashes in names and uids."""
    one = claim("a")
    gone = made(one, "Released")
    renamed = msgspec.structs.replace(gone, metadata=msgspec.structs.replace(gone.metadata, name=bad))
    invented = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, uid=bad))
    assert plan([invented], [renamed], NODES, [("real-1", bad)]) == VolumePlan()
    place = tmp_path / "real-1" / "volumes"
    place.mkdir(parents=True, mode=0o700)
    (tmp_path / "pki").mkdir(mode=0o700)
    for deed in (open_to_all, erase):
        with pytest.raises(OSError, match="must be pvc- and the uid"):
            deed(place, bad)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "pki", tmp_path / "real-1"]
    assert place.stat().st_mode & 0o777 == 0o700


def test_volumes_of_a_control_plane_are_on_the_machines_that_serve_it(tmp_path: Path) -> None:
    """H04: not on those that are wiped, that serve another one, or the host."""
    paths = ClusterPaths(tmp_path)
    nodes = tuple(RealNode(name=f"real-{number}", number=number) for number in range(1, 5))
    real = RealNodes(block=112, binaries="", memory_reserved_mib=0, nodes=nodes)
    write_spec(paths, ClusterSpec(name="test", ports=PORTS, binaries="", real=real))
    for name, plane, server in (("real-1", "a-1", "https://x"), ("real-2", "a-1", ""), ("real-3", "b-1", "https://x")):
        memberships.write(paths, name, Membership(plane=plane, server=server))
        (memberships.folder_in(paths, plane, name) / "volumes").mkdir(parents=True)
    (memberships.host_folder(paths, "real-4") / "volumes").mkdir(parents=True)
    assert [*PlaneVolumes(paths, "a-1").nodes()] == ["real-1"]
    assert [*HostVolumes(paths).nodes()] == [each.name for each in nodes], "they stay while a machine is away"
