"""Which volumes are made and removed for claims, without a node."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec
import pytest

from tenantry.api.model import ObjectMeta
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import memberships, volumes
from tenantry.local.real.memberships import Membership
from tenantry.local.real.nodevolumes import NodeVolumes
from tenantry.local.real.provisioner import HostVolumes, PlaneVolumes
from tenantry.local.real.volumes import (
    SMALLEST_BYTES,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeStatus,
    VolumePlan,
    VolumeResources,
    is_sized,
    plan,
    size_of,
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
    (volume,) = plan([one], [], NODES, [], sized=True).make
    spec = msgspec.structs.replace(volume.spec, persistent_volume_reclaim_policy=policy)
    return msgspec.structs.replace(volume, spec=spec, status=PersistentVolumeStatus(phase=phase))


def test_a_claim_gets_a_file_system_of_the_node_that_its_pod_gets() -> None:
    """H06: no other claim may use the volume, and no other node; its path is there only while it is mounted."""
    (volume,) = plan([claim()], [], NODES, [], sized=True).make
    assert volume.spec.local == {"path": f"/var/lib/tenantry/volumes/pvc-{uid('data')}/data"}
    assert volume.spec.claim_ref["uid"] == uid("data")
    assert volume.spec.capacity == {"storage": "1Gi"}
    assert volume.spec.node_affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["real-1"]
    assert is_sized(volume)
    assert plan([claim()], [volume], NODES, [], sized=True) == VolumePlan()


def test_a_machine_without_loop_devices_gives_folders() -> None:
    """E20: a folder of an earlier release is the same, and stays the volume of its claim."""
    (volume,) = plan([claim()], [], NODES, [], sized=False).make
    assert volume.spec.local == {"path": f"/var/lib/tenantry/volumes/pvc-{uid('data')}"}
    assert not is_sized(volume)
    assert plan([claim()], [volume], NODES, [], sized=True) == VolumePlan()


@pytest.mark.parametrize(
    ("requested", "size", "capacity"),
    [
        ("1Mi", 2**20, "1Mi"),
        ("1048577", 2**20 + 4096, "1028Ki"),
        ("1.5Gi", 3 * 2**29, "1536Mi"),
        ("1G", 1_000_001_536, "976564Ki"),
        ("2e6", 2_002_944, "1956Ki"),
    ],
)
def test_the_capacity_is_what_is_enforced_and_no_less_than_what_was_asked(
    requested: str, size: int, capacity: str
) -> None:
    """E20: Kubernetes binds no volume that is smaller than its claim."""
    assert size_of(requested) == size
    wanted = claim(resources=VolumeResources(requests={"storage": requested}))
    (volume,) = plan([wanted], [], NODES, [], sized=True).make
    assert volume.capacity == capacity
    assert size_of(volume.capacity) == size


@pytest.mark.parametrize("requested", ["0", "-1Gi", "1", str(SMALLEST_BYTES - 1), "1e30", "garbage", "", "9" * 5000])
def test_a_size_that_no_volume_can_have_is_refused_with_what_to_do(requested: str) -> None:
    """E20: the API server of a tenant can be made to answer with any text."""
    found = plan([claim(resources=VolumeResources(requests={"storage": requested}))], [], NODES, [], sized=True)
    assert found.make == ()
    (refused,) = found.refuse
    assert refused.claim.uid == uid("data")
    assert refused.why.startswith("the claim gets no volume, because spec.resources.requests.storage ")
    assert refused.why.endswith(": create it again with 1Gi")
    assert len(refused.why) < 300
    none = plan([claim(resources=VolumeResources())], [], NODES, [], sized=True)
    assert [each.claim.uid for each in none.refuse] == [uid("data")]


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
    assert plan(others, [], NODES, [], sized=True) == VolumePlan()


def test_a_volume_goes_with_its_claim_unless_it_is_to_be_kept() -> None:
    """H06: only those that we made, once released; and folders that a crash has left."""
    gone, kept, bound = made(claim("a"), "Released"), made(claim("b"), "Released", "Retain"), made(claim("c"), "Bound")
    foreign = msgspec.structs.replace(gone, metadata=ObjectMeta(name="foreign"))
    folders = [("real-1", f"pvc-{uid(name)}") for name in "abcd"]
    found = plan([], [gone, kept, bound, foreign], NODES, folders, sized=True)
    assert found == VolumePlan(remove=(gone,), forget=(("real-1", f"pvc-{uid('d')}"),))


def test_a_volume_of_a_node_that_is_gone_goes_with_its_claim() -> None:
    """H04: the folder was wiped with the machine."""
    gone = made(claim("a"), "Released")
    assert plan([], [gone], frozenset(), [], sized=True) == VolumePlan(remove=(gone,))


def test_no_link_in_the_place_of_a_volume_is_followed(tmp_path: Path) -> None:
    """H04: an administrator of a tenant's cluster writes into the folders of its machines."""
    node = NodeVolumes(tmp_path / "real-1")
    place, images = tmp_path / "real-1" / "volumes", tmp_path / "real-1" / "disks"
    place.mkdir(parents=True)
    images.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "kept").touch()
    name = f"pvc-{uid('a')}"
    link, image = place / name, images / f"{name}.img"
    link.symlink_to(outside)
    image.symlink_to(outside / "kept")
    with pytest.raises(OSError, match=name):
        node.make_folder(name)
    assert outside.stat().st_mode & 0o777 == 0o700
    node.erase(name)
    assert not link.is_symlink()
    assert not image.is_symlink()
    assert (outside / "kept").exists()
    node.make_folder(name)
    node.make_folder(name)
    assert link.stat().st_mode & 0o777 == 0o777
    (link / "inside").symlink_to(outside)
    node.erase(name)
    node.erase(name)
    assert not link.exists()
    assert (outside / "kept").exists()


def test_what_a_killed_provisioner_left_is_found_and_deleted(tmp_path: Path) -> None:
    """E20: an unfinished image is no volume; whole ones and folders are."""
    node = NodeVolumes(tmp_path)
    for folder in ("volumes", "disks", "disks/.tree-1"):
        (tmp_path / folder).mkdir()
    names = sorted(f"pvc-{uid(each)}" for each in "abc")
    (tmp_path / "volumes" / names[0]).mkdir()
    (tmp_path / "disks" / f"{names[1]}.img").touch()
    (tmp_path / "disks" / f"{names[2]}.new").touch()
    assert node.names() == names
    node.sweep()
    assert node.names() == names[:2]
    assert [*(tmp_path / "disks").iterdir()] == [tmp_path / "disks" / f"{names[1]}.img"]


def test_all_sizes_together_fit_on_the_disk(tmp_path: Path) -> None:
    """E20: a claim that is larger than the room that others leave gets no image, and nothing of it stays."""
    about = os.statvfs(tmp_path)
    room = about.f_bavail * about.f_frsize
    other = tmp_path / "hosted" / "a-1" / "nodes" / "real-2" / "disks"
    other.mkdir(parents=True)
    (other / f"pvc-{uid('b')}.img").touch()
    os.truncate(other / f"pvc-{uid('b')}.img", room // 4096 * 4096)
    node = NodeVolumes(tmp_path / "nodes" / "real-1")
    (tmp_path / "nodes" / "real-1").mkdir(parents=True)
    for size in (2**30, 2**62):
        with pytest.raises(OSError, match="No space left"):
            node.make_sized(f"pvc-{uid('a')}", size, tmp_path)
    assert node.names() == []


@pytest.mark.parametrize("bad", ["../../../../../pki", "pvc-../../..", "pvc-/" + "a" * 35, "", ".", "pvc-1/../../x"])
def test_no_name_or_uid_of_an_invented_answer_leads_out_of_the_folder(tmp_path: Path, bad: str) -> None:
    """H04: a tenant's API server can be made to answer with anything, also with slashes in names and uids."""
    one = claim("a")
    gone = made(one, "Released")
    renamed = msgspec.structs.replace(gone, metadata=msgspec.structs.replace(gone.metadata, name=bad))
    invented = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, uid=bad))
    assert plan([invented], [renamed], NODES, [("real-1", bad)], sized=True) == VolumePlan()
    own = tmp_path / "real-1"
    for place in (own / "volumes", own / "disks"):
        place.mkdir(parents=True, mode=0o700)
    (tmp_path / "pki").mkdir(mode=0o700)
    node = NodeVolumes(own)
    for deed in (node.make_folder, node.erase):
        with pytest.raises(OSError, match="must be pvc- and the uid"):
            deed(bad)
    with pytest.raises(OSError, match="must be pvc- and the uid"):
        node.make_sized(bad, 2**20, tmp_path)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "pki", own]
    assert sorted(own.rglob("*")) == [own / "disks", own / "volumes"]
    assert (own / "volumes").stat().st_mode & 0o777 == 0o700


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
