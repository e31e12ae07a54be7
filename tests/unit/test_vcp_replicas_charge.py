"""Control planes of several processes: their share of the quota, their limits, and their files (H02)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneSpec, VirtualControlPlaneStatus
from tenantry.controllers.quota.objects import plane_charge
from tenantry.controllers.virtualcontrolplane import desired
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import HostedStore, StoreKind
from tenantry.local import hosted, hostedreplicas
from tenantry.local.components import ENDPOINT_PROXY
from tenantry.local.paths import ClusterPaths
from tenantry.world.shares.amounts import spelled

ONE = {"requests.cpu": "50m", "requests.memory": "96Mi", "limits.memory": "256Mi"}


def plane(replicas: int, charged: dict[str, str]) -> VirtualControlPlane:
    """Return a control plane that is charged something."""
    spec, status = VirtualControlPlaneSpec(replicas=replicas), VirtualControlPlaneStatus(charged=charged)
    return VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme"), spec=spec, status=status)


def test_each_process_is_charged() -> None:
    """VCP-38: no process is free."""
    assert spelled(plane_charge(VirtualControlPlaneSpec(replicas=1))) == ONE
    found = spelled(plane_charge(VirtualControlPlaneSpec(replicas=3)))
    assert found == {"requests.cpu": "150m", "requests.memory": "288Mi", "limits.memory": "768Mi"}


@pytest.mark.parametrize(
    ("wanted", "charged", "runs"), [(1, 1, 1), (3, 3, 3), (3, 1, 1), (3, 2, 2), (2, 3, 2), (3, 0, 3)]
)
def test_only_processes_that_are_charged_run(wanted: int, charged: int, runs: int) -> None:
    """VCP-38: while the quota covers fewer, each has its limits all the same."""
    covered = spelled(plane_charge(VirtualControlPlaneSpec(replicas=charged))) if charged else {}
    found = plane(wanted, covered)
    assert desired.replicas_of(found) == runs
    assert desired.plane_of(found, "10.0.0.1").replicas == runs
    if charged <= wanted:
        assert desired.limits_of(found).memory_bytes == 256 * 2**20
        assert desired.limits_of(found).cpu_millis == 50


def test_one_process_elects_no_leader_and_several_do() -> None:
    """H02: the first one alone keeps the endpoints of the Service `kubernetes`."""
    store = HostedStore(kind=StoreKind.SHARED_ETCD)

    def read(replicas: int, *, is_further: bool = False) -> tuple[list[str], list[str], object]:
        given = HostedPlane(uid="a-1", name="x", issuer="https://x", owner="o", store=store, replicas=replicas)
        found = json.loads(hosting.settings(given, 20001, "/openapi", is_further=is_further))
        return found["apiServer"], found["controllers"], found["datastore"].get("processes")

    server, controllers, processes = read(1)
    assert ("--leader-elect=false" in controllers, processes) == (True, None)
    server, controllers, processes = read(2)
    assert ("--leader-elect=true" in controllers, processes) == (True, 2)
    assert "--endpoint-reconciler-type=lease" in server
    server, *_ = read(2, is_further=True)
    # The last of equal flags counts.
    assert [each for each in server if "reconciler" in each][-1] == "--endpoint-reconciler-type=none"


def test_each_process_is_a_component_with_a_folder_of_its_own(tmp_path: Path) -> None:
    """H02: what they share are links; a stopped control plane has none of them."""
    first = tmp_path / "hosted" / "a"
    first.mkdir(parents=True)
    own = {"name": "acme.web", "program": "/bin/hosted", "port": 20001, "internal": 20002, "others": [20003, 20004]}
    (first / "process.json").write_text(json.dumps(own))
    (tmp_path / "hosted" / "endpoint-proxy.json").write_text('{"program": "/bin/endpoint-proxy"}')
    proxy, *found = hosted.processes(ClusterPaths(tmp_path))
    assert proxy.name == ENDPOINT_PROXY
    assert [(each.name, each.port) for each in found] == [
        ("hosted@acme.web", 20002),
        ("hosted@acme.web.2", 20003),
        ("hosted@acme.web.3", 20004),
    ]
    assert [Path(each.command[1]).parent for each in found] == [hostedreplicas.folder(first, n) for n in (1, 2, 3)]
    assert len({each.command[1] for each in found}) == 3
    (first / "process.json").rename(first / "stopped.json")
    assert [each.name for each in hosted.processes(ClusterPaths(tmp_path))] == [ENDPOINT_PROXY]
