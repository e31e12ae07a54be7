"""Hosted control planes of a local cluster as components of its supervisor: with and without the endpoint proxy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tenantry.hosting.plane import HostedPlane
from tenantry.local import build, hosted, ports
from tenantry.local.components import ENDPOINT_PROXY
from tenantry.local.paths import ClusterPaths

OWN = {"name": "acme.web", "program": "/bin/hosted", "port": 20001, "internal": 20002}
EARLIER = {"name": "acme.old", "program": "/bin/hosted", "port": 20003}


def make(folder: Path, **processes: Mapping[str, object]) -> ClusterPaths:
    """Write the files of control planes by uid, and those of the endpoint proxy."""
    for uid, content in processes.items():
        (folder / "hosted" / uid).mkdir(parents=True)
        (folder / "hosted" / uid / "process.json").write_bytes(msgspec.json.encode(content))
    (folder / "hosted").mkdir(parents=True, exist_ok=True)
    (folder / "hosted" / "endpoint-proxy.json").write_text('{"program": "/bin/endpoint-proxy"}')
    return ClusterPaths(folder)


def test_one_proxy_runs_beside_the_processes_which_listen_at_their_internal_ports(tmp_path: Path) -> None:
    proxy, *planes = hosted.processes(make(tmp_path, a=OWN, b={**OWN, "name": "acme.two", "internal": 20005}))
    assert (proxy.name, proxy.command) == (ENDPOINT_PROXY, ("/bin/endpoint-proxy", str(tmp_path)))
    assert [(each.name, each.port) for each in planes] == [("hosted@acme.web", 20002), ("hosted@acme.two", 20005)]


def test_without_a_control_plane_behind_it_there_is_no_proxy(tmp_path: Path) -> None:
    """Processes that an earlier version has started listen at their ports themselves until they are started again."""
    assert hosted.processes(make(tmp_path / "none")) == ()
    (only,) = hosted.processes(make(tmp_path / "earlier", a=EARLIER))
    assert (only.name, only.port) == ("hosted@acme.old", 20003)


def test_the_proxy_runs_while_all_control_planes_are_stopped(tmp_path: Path) -> None:
    """H01: the next client wakes one, and until then it has no process."""
    paths = make(tmp_path, a=OWN)
    (tmp_path / "hosted" / "a" / "process.json").rename(tmp_path / "hosted" / "a" / "stopped.json")
    assert [each.name for each in hosted.processes(paths)] == [ENDPOINT_PROXY]


def test_the_owner_of_a_port_is_named_within_its_namespace_only(tmp_path: Path) -> None:
    """H04: else, one tenant learns the names of the control planes of others."""
    make(tmp_path, a=OWN)
    mine = HostedPlane(uid="u", name="acme.two", issuer="", owner="")
    assert hosted.owner_of_port(mine, tmp_path / "hosted" / "a") == "the control plane 'acme.web'"
    assert hosted.owner_of_port(replace(mine, name="acm.two"), tmp_path / "hosted" / "a") == ""
    assert hosted.owner_of_port(mine, tmp_path / "hosted" / "b") == ""


def test_a_broken_file_of_the_proxy_does_not_stop_the_control_planes(tmp_path: Path) -> None:
    paths = make(tmp_path, a=OWN)
    (tmp_path / "hosted" / "endpoint-proxy.json").write_text("{")
    assert [each.name for each in hosted.processes(paths)] == ["hosted@acme.web"]


def test_a_control_plane_gets_one_more_port_and_keeps_the_one_that_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "uid"
    folder.mkdir()
    (first,) = ports.reserve_some(folder, 1)
    (further,) = ports.reserve_further(folder, 1)
    try:
        other = tmp_path / "other"
        other.mkdir()
        taken = ports.reserve_some(other, 1)
        assert len({first, further, *taken}) == 3
    finally:
        ports.release(tmp_path / "other")
        ports.release(folder)


def test_a_build_of_hosted_control_planes_has_the_proxy() -> None:
    assert build.ENDPOINT_PROXY in build.HOSTED.beside
    assert set(build.HOSTED.beside) <= set(build.PRODUCTS)
