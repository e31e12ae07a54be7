"""Machines of a local cluster without a machine: their files, components and rules."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError, LocalError
from tenantry.hosting.machines import MachineJoin
from tenantry.local import build, components, sources
from tenantry.local.build import Binaries, Product
from tenantry.local.machines import LocalMachines
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import fleet, kubelets, memberships, network, node, settings
from tenantry.local.real.memberships import Membership
from tenantry.local.real.network import NodeAddresses
from tenantry.local.real.settings import NodeSettings
from tenantry.local.spec import ClusterSpec, Ports, RealNode, RealNodes

UID = "0a1b2c3d-0000-4000-8000-000000000001"
REAL = RealNodes(
    block=112,
    binaries="/bin",
    memory_reserved_mib=0,
    nodes=(RealNode(name="real-1", number=1), RealNode(name="real-2", number=2)),
)
SPEC = ClusterSpec(
    name="c",
    ports=Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5, kwok=6, operator=7),
    binaries="/bin",
    real=REAL,
)
AWAY = Membership(plane=UID, server="https://10.113.128.1:6443", ca="PEM", token="abcdef.0123456789abcdef")


def _filled(folder: Path) -> None:
    for name in ("kubelet/pki", "containerd", "node", "volumes/pvc-1"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("secret")
    (folder / "node.json").write_text("{}")


def test_nothing_of_a_membership_is_left_but_volumes_of_the_host(tmp_path: Path) -> None:
    """Those of the host are data of its tenants; those of a tenant end with the membership."""
    paths = ClusterPaths(tmp_path)
    host, inside = memberships.host_folder(paths, "real-2"), memberships.folder_in(paths, UID, "real-2")
    other = memberships.folder_in(paths, UID, "real-3")
    for each in (host, inside, other):
        _filled(each)
    outside = tmp_path / "outside"
    outside.mkdir()
    (host / "kubelet" / "link").symlink_to(outside)
    (host / "link").symlink_to(outside)
    memberships.wipe(paths, "real-2")
    assert [each.name for each in host.iterdir()] == ["volumes"]
    assert (host / "volumes" / "pvc-1" / "file").exists()
    assert not inside.exists()
    assert (other / "containerd").exists()
    assert outside.exists()
    memberships.wipe(paths, "real-2")


def test_the_folder_of_a_machine_is_that_of_its_membership(tmp_path: Path) -> None:
    """A machine of a tenant does not even see the volumes of the host."""
    paths = ClusterPaths(tmp_path)
    assert memberships.folder_of(paths, "real-2") == tmp_path / "nodes" / "real-2"
    memberships.write(paths, "real-2", AWAY)
    assert memberships.folder_of(paths, "real-2") == tmp_path / "hosted" / UID / "nodes" / "real-2"
    assert memberships.read(paths, "real-2") == AWAY
    memberships.forget(paths, "real-2")
    memberships.forget(paths, "real-2")
    assert memberships.read(paths, "real-2") is None


@pytest.mark.parametrize(
    ("away", "names"),
    [
        ({}, ["real-1", "real-2"]),
        ({"real-2": False}, ["real-1"]),
        ({"real-2": True}, ["real-1", "machine@real-2"]),
    ],
)
def test_a_machine_is_one_component_at_most(away: dict[str, bool], names: list[str], tmp_path: Path) -> None:
    """None while it is wiped; that of a tenant has another name, and waits for no API server of the host."""
    found = components.real_nodes(SPEC, ClusterPaths(tmp_path), "python", away)
    assert [each.name for each in found] == [*names, components.STORAGE]
    ours = [each for each in found if each.name.startswith(components.MACHINE_PREFIX)]
    assert not [each for each in ours if each.after]


def test_machines_that_are_away_are_not_waited_for_and_not_removed(tmp_path: Path) -> None:
    """`up` does not record their ranges on the host, and `tenantry node delete` refuses them."""
    paths = ClusterPaths(tmp_path)
    memberships.write(paths, "real-2", AWAY)
    memberships.write(paths, "real-1", Membership(plane=UID))
    assert memberships.away(paths) == {"real-1": False, "real-2": True}
    home = fleet.at_home(paths, REAL)
    assert home is not None
    assert home.nodes == ()
    with pytest.raises(InputError, match='"real-2" serves a cluster of a tenant'):
        fleet.write(paths, SPEC, fleet.without(REAL, "real-2"))


def test_files_of_machines_are_read_in_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk must not stop all reconciles; a contributed machine is not the operator's."""
    threads: list[threading.Thread] = []

    def read(_: ClusterPaths) -> ClusterSpec:
        threads.append(threading.current_thread())
        contributed = RealNode(name="real-3", number=3, token="abcdef.0123456789abcdef")
        return replace(SPEC, real=replace(REAL, nodes=(*REAL.nodes, contributed)))

    monkeypatch.setattr("tenantry.local.machines.read_spec", read)
    there = LocalMachines(ClusterPaths(tmp_path))
    assert [asyncio.run(there.has(name)) for name in ("real-1", "real-3", "real-4")] == [True, False, False]
    assert len(threads) == 3
    assert threading.main_thread() not in threads


def test_a_machine_has_the_kubelet_of_its_control_plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H04: never one that is newer than its API server, if the one of its version is built."""
    (other, *_), default = kubelets.products(), build.module_version(_node_kube(), "k8s.io/kubernetes")
    version = other.title.rpartition(" ")[2]

    def built(product: Product) -> Binaries | None:
        return Binaries(tmp_path) if product.title == other.title else None

    monkeypatch.setattr(build, "built", built)
    assert kubelets.folder(version) == str(tmp_path)
    assert kubelets.folder(".".join(default.removeprefix("v").split(".")[:2])) == ""
    assert kubelets.folder("") == ""
    kubelets.check(version)


def test_a_machine_gets_no_kubelet_that_is_newer_than_its_control_plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H04: Kubernetes supports none; the operator reports MachineFailed with what to do, and starts nothing."""
    (other, *_), default = kubelets.products(), build.module_version(_node_kube(), "k8s.io/kubernetes")
    version = other.title.rpartition(" ")[2]

    def built(product: Product) -> Binaries | None:
        assert product.title == other.title
        return None

    monkeypatch.setattr(build, "built", built)

    def read(_: ClusterPaths) -> ClusterSpec:
        return SPEC

    monkeypatch.setattr("tenantry.local.machines.read_spec", read)
    kubelets.check("")
    kubelets.check(".".join(default.removeprefix("v").split(".")[:2]))
    paths = ClusterPaths(tmp_path)
    wiped = Membership(plane=UID)
    memberships.write(paths, "real-2", wiped)
    join = MachineJoin(server="https://a", ca="CA", token="abcdef.0123456789abcdef", version=version)
    with pytest.raises(LocalError, match=f"--with-nodes --hosted-version {version}"):
        asyncio.run(LocalMachines(paths).join("real-2", UID, join))
    assert memberships.read(paths, "real-2") == wiped


def _node_kube() -> str:
    return (sources.root() / "go" / "node-kube" / "go.mod").read_text()


def test_a_machine_that_is_wiped_has_no_settings(tmp_path: Path) -> None:
    """A supervisor that is late must not start it for the host."""
    paths = ClusterPaths(tmp_path)
    with pytest.raises(LocalError, match="is wiped, and waits"):
        node.settings_of(paths, REAL, "real-2", Membership(plane=UID))
    found = node.settings_of(paths, REAL, "real-2", None)
    assert found is not None
    assert (found.block, found.plane, found.token) == (112, "", "")


def test_a_machine_of_a_tenant_uses_its_own_identity() -> None:
    """It has no view of its own, as the machines of contributors have, and asks the DNS of its cluster."""
    inside = NodeSettings(
        name="real-2", number=2, block=113, cluster="tnt1", token="a.b", plane=UID, bridge="tnt2", dns="10.97.0.10"
    )
    texts = settings.texts(inside)
    assert "services.kubeconfig" not in texts
    assert json.loads(texts["kube-proxy.json"])["clientConnection"]["kubeconfig"] == settings.JOINED
    kubelet = json.loads(texts["kubelet.json"])
    assert kubelet["clusterDNS"] == ["10.97.0.10"]
    assert kubelet["serverTLSBootstrap"] is True
    contributed = settings.texts(NodeSettings(name="c", number=2, block=113, cluster="tnt1", token="a.b"))
    assert "services.kubeconfig" in contributed


def test_only_the_port_of_its_api_server_is_open_from_a_bridge() -> None:
    """None before it is known; packets to other ports of this machine, and to other networks, are dropped."""
    closed = network.rules("tnt2", NodeAddresses(113), 0)
    assert "elements" not in closed
    text = network.rules("tnt2", NodeAddresses(113), 6443)
    assert text.count("elements = { 6443 }") == 1
    assert 'iifname "tnt2" oifname != "tnt2" drop' in text
    assert text.count("accept") - text.count("policy accept") == 4
