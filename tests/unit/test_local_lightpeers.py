"""Light peers: their components in the supervisor of the home, and what each cluster shows of its state."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError
from tenantry.api.peercluster import is_name
from tenantry.local import lightpeers, peers
from tenantry.local.cluster import LocalCluster
from tenantry.local.components import Component
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import ClusterSpec, PeerForm, Ports, StartedPeer, read_spec, write_spec
from tenantry.local.state import ClusterState, ComponentState, Phase

PORTS = Ports(
    etcd=20000, etcd_peer=20001, apiserver=20002, controller_manager=20003, scheduler=20004, kwok=20005, operator=20006
)


def light(number: int, *, has_operator: bool = False) -> StartedPeer:
    return StartedPeer(name=f"a-peer-{number}", form=PeerForm.LIGHT, has_operator=has_operator)


WHOLE = StartedPeer(name="a-peer-9", form=PeerForm.WHOLE, has_operator=True)


def home(tmp_path: Path, *started: StartedPeer) -> tuple[ClusterSpec, ClusterPaths]:
    """Return a cluster on disk, with its light peers prepared."""
    cluster = LocalCluster("a", root=tmp_path)
    cluster.paths.folder.mkdir(parents=True)
    spec = ClusterSpec(name="a", ports=PORTS, binaries="/bin/x", throwaway=True, peers=started)
    write_spec(cluster.paths, spec)
    lightpeers.prepare_light(spec, cluster.paths)
    return spec, cluster.paths


def built(spec: ClusterSpec, paths: ClusterPaths) -> dict[str, Component]:
    return {each.name: each for each in lightpeers.components_of(spec, paths, "/usr/bin/python3")}


def test_a_cluster_without_light_peers_gets_no_etcd_for_them(tmp_path: Path) -> None:
    assert built(*home(tmp_path, WHOLE)) == {}


def test_light_peers_share_an_etcd_and_no_key_in_it(tmp_path: Path) -> None:
    spec, paths = home(tmp_path, light(1), WHOLE, light(2))
    found = built(spec, paths)
    assert list(found) == [
        "light@etcd",
        "light@a-peer-1.kube-apiserver",
        "light@a-peer-1.kube-controller-manager",
        "light@a-peer-2.kube-apiserver",
        "light@a-peer-2.kube-controller-manager",
    ]
    servers = [found[f"light@a-peer-{number}.kube-apiserver"].command for number in (1, 2)]
    store = f"--etcd-servers=https://127.0.0.1:{found['light@etcd'].port}"
    assert all(store in command for command in servers)
    assert "--etcd-prefix=/a-peer-1" in servers[0]
    assert "--etcd-prefix=/a-peer-2" in servers[1]
    assert all(f"--etcd-servers=https://127.0.0.1:{PORTS.etcd}" not in command for command in servers)


def test_an_operator_runs_only_where_it_is_asked_for(tmp_path: Path) -> None:
    found = built(*home(tmp_path, light(1, has_operator=True), light(2)))
    assert "light@a-peer-1.operator" in found
    assert "light@a-peer-2.operator" not in found
    # The operator of a light peer has no supervisor of its own that could run control planes.
    assert not any("--hosted-in" in each for each in found["light@a-peer-1.operator"].command)
    managers = [found[f"light@a-peer-{number}.kube-controller-manager"].command for number in (1, 2)]
    assert "clusterrole-aggregation-controller" in next(each for each in managers[0] if "--controllers" in each)
    assert "clusterrole-aggregation-controller" not in next(each for each in managers[1] if "--controllers" in each)


def test_two_light_peers_start_at_once_and_the_others_after_them(tmp_path: Path) -> None:
    found = built(*home(tmp_path, *(light(number) for number in (1, 2, 3))))
    assert found["light@a-peer-2.kube-apiserver"].after == ("light@etcd",)
    assert found["light@a-peer-3.kube-apiserver"].after == ("light@etcd", "light@a-peer-1.kube-apiserver")


def test_ports_and_keys_of_a_running_light_peer_stay(tmp_path: Path) -> None:
    spec, paths = home(tmp_path, light(1))
    before = built(spec, paths)
    more = replace(spec, peers=(light(1), light(2)))
    lightpeers.prepare_light(more, paths, {"a-peer-1"})
    after = built(more, paths)
    assert {name: after[name].command for name in before} == {name: each.command for name, each in before.items()}


def test_each_cluster_shows_its_own_components(tmp_path: Path) -> None:
    spec, _ = home(tmp_path, light(1), light(2))
    names = ("etcd", "light@etcd", "light@a-peer-1.kube-apiserver", "light@a-peer-2.kube-apiserver")
    phases = (Phase.READY, Phase.READY, Phase.READY, Phase.BACK_OFF)
    found = tuple(ComponentState(name=name, phase=phase) for name, phase in zip(names, phases, strict=True))
    state = ClusterState(
        name="a", boot_id="", supervisor_pid=1, supervisor_ticks=1, phase=Phase.READY, components=found
    )
    assert [each.name for each in lightpeers.seen(spec, state).components] == ["etcd", "light@etcd"]
    for name, phase in (("a-peer-1", Phase.READY), ("a-peer-2", Phase.STARTING)):
        peer = read_spec(LocalCluster(name, root=tmp_path).paths)
        assert peer is not None
        shown = lightpeers.seen(peer, state)
        assert (shown.name, shown.phase) == (name, phase)
        assert [each.name for each in shown.components] == ["kube-apiserver"]


def test_new_peers_are_counted_from_those_that_are_there(tmp_path: Path) -> None:
    home(tmp_path, light(1))
    found = peers.wanted(LocalCluster("a", root=tmp_path), 2, PeerForm.WHOLE, has_operator=True)
    assert [(each.name, each.form) for each in found] == [("a-peer-1", PeerForm.LIGHT), ("a-peer-2", PeerForm.WHOLE)]


def test_a_number_below_that_of_the_peers_is_refused(tmp_path: Path) -> None:
    home(tmp_path, light(1), light(2))
    with pytest.raises(InputError, match=r"--peers 1: .* has 2 peers already"):
        peers.wanted(LocalCluster("a", root=tmp_path), 1, PeerForm.LIGHT, has_operator=True)


def test_a_cluster_of_the_name_that_is_no_peer_is_left_alone(tmp_path: Path) -> None:
    home(tmp_path)
    other = LocalCluster("a-peer-1", root=tmp_path)
    other.paths.folder.mkdir(parents=True)
    write_spec(other.paths, ClusterSpec(name="a-peer-1", ports=PORTS, binaries="/bin/x"))
    with pytest.raises(InputError, match='there is a cluster "a-peer-1" already'):
        peers.wanted(LocalCluster("a", root=tmp_path), 1, PeerForm.WHOLE, has_operator=True)


def test_a_name_that_is_too_long_for_a_peer_is_refused(tmp_path: Path) -> None:
    """The Tenant and the Node of a peer have its name in theirs."""
    with pytest.raises(InputError, match="is too long for --peers"):
        peers.wanted(LocalCluster("a" * 34, root=tmp_path), 1, PeerForm.WHOLE, has_operator=True)


async def test_a_light_peer_does_not_stop_without_its_home(tmp_path: Path) -> None:
    home(tmp_path, light(1))
    with pytest.raises(InputError, match='is a light peer of "a"'):
        await peers.down(LocalCluster("a-peer-1", root=tmp_path), purge=True)


async def test_a_purge_takes_the_folders_of_light_peers_with_it(tmp_path: Path) -> None:
    home(tmp_path, light(1), light(2))
    await peers.down(LocalCluster("a", root=tmp_path), purge=True)
    assert list((tmp_path / "clusters").iterdir()) == []


@pytest.mark.parametrize("name", ["default", "spring-offer", "a-tunnel", "a-renew"])
def test_a_cluster_of_any_name_has_a_name_at_its_peers(name: str) -> None:
    assert not is_name(name)
    assert is_name(peers.guest_name(name))
    assert peers.guest_name("alpha") == "alpha"
