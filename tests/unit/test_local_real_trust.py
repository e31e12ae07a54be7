"""The authorities of machines that serve hosted control planes: their files, and what starts anew with them (H04)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import LocalError
from tenantry.hosting import plane as hosting
from tenantry.local import hostedpki, kubeconfigs
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import memberships, trust
from tenantry.local.real.init import TrustedServers
from tenantry.local.real.memberships import Membership

UID, OTHER = "0a1b2c3d-0000-4000-8000-000000000001", "0a1b2c3d-0000-4000-8000-000000000002"
AWAY = Membership(plane=UID, server="https://10.113.128.1:6443", ca="joined", token="abcdef.0123456789abcdef")


def _pki(folder: Path, clients: str, servers: str) -> None:
    pki = ClusterPaths(folder / "hosted" / UID).pki
    pki.mkdir(parents=True, exist_ok=True)
    (pki / hostedpki.NODE_CLIENTS).write_text(clients)
    (pki / hosting.TRUSTED).write_text(servers)


def _has(folder: Path) -> tuple[str, str]:
    return (folder / "ca.crt").read_text(), (folder / "servers-ca.crt").read_text()


def _machine(paths: ClusterPaths, name: str, membership: Membership) -> Path:
    memberships.write(paths, name, membership)
    folder = memberships.folder_in(paths, membership.plane, name) / "node"
    folder.mkdir(parents=True)
    trust.write(paths, membership, folder)
    return folder


def test_machines_get_the_authorities_of_their_own_control_plane(tmp_path: Path) -> None:
    """Also one that joins with a token of before; the files are new ones, which a kubelet notices."""
    paths = ClusterPaths(tmp_path)
    early = _machine(paths, "real-1", AWAY)
    assert _has(early) == ("joined", "joined")
    other = _machine(paths, "real-2", Membership(plane=OTHER, server=AWAY.server, ca="other", token="a.b"))
    memberships.write(paths, "real-3", Membership(plane=UID))
    _pki(tmp_path, "now", "now, before")
    late = _machine(paths, "real-4", AWAY)
    assert _has(late) == ("now", "now, before")
    trust.bring(paths, UID)
    assert _has(early) == ("now", "now, before")
    assert _has(other) == ("other", "other")
    _pki(tmp_path, "now, next", "now, before, next")
    trust.bring(paths, UID)
    assert [_has(each) for each in (early, late)] == [("now, next", "now, before, next")] * 2


def test_a_machine_without_the_authorities_is_told_and_one_that_has_not_started_is_not(tmp_path: Path) -> None:
    """The phase of a rotation is not in force before all have them; users inside may be root on a machine."""
    paths = ClusterPaths(tmp_path)
    _pki(tmp_path, "now", "now")
    memberships.write(paths, "real-2", AWAY)
    trust.bring(paths, UID)
    folder = memberships.folder_in(paths, UID, "real-2") / "node"
    folder.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_text("secret")
    (folder / "ca.crt").symlink_to(outside)
    trust.bring(paths, UID)
    assert (outside.read_text(), _has(folder)) == ("secret", ("now", "now"))
    (folder / "ca.crt").unlink()
    (folder / "ca.crt").mkdir()
    with pytest.raises(LocalError, match=r'the machine "real-2" does not get new authorities: .*ca.crt'):
        trust.bring(paths, UID)


def test_a_file_of_authorities_stays_a_file_in_the_kubeconfig() -> None:
    """A kubelet writes the name into its own kubeconfig; one on another machine gets the authorities themselves."""
    here = kubeconfigs.joining("PEM", "c", "a.b", "https://x", file="/run/ca.crt")
    assert "certificate-authority: /run/ca.crt\n" in here
    assert "certificate-authority-data: UEVN\n" in kubeconfigs.joining("PEM", "c", "a.b", "https://x")


def test_programs_start_anew_once_for_authorities_that_stay(tmp_path: Path) -> None:
    """Their order, a change that is followed by another one, and a file that is gone start nothing."""
    begin, file = "-----BEGIN CERTIFICATE-----", tmp_path / "ca.crt"

    def put(*names: str) -> None:
        file.write_text("".join(f"{begin}{name}" for name in names))

    put("one")
    servers = TrustedServers(file, settled_seconds=100)
    assert not servers.are_new(1000)
    put("one", "two")
    assert [servers.are_new(now) for now in (2000, 2099)] == [False, False]
    put("two", "one")
    assert [servers.are_new(now) for now in (2100, 2101)] == [True, False]
    put("two")
    assert not servers.are_new(3000)
    file.unlink()
    assert [servers.are_new(now) for now in (3050, 3500)] == [False, False]
    put("two")
    assert [servers.are_new(now) for now in (3600, 3700, 3800)] == [False, True, False]
    put("two", "three")
    assert not servers.are_new(4000)
    put("two")
    assert [servers.are_new(now) for now in (4050, 4200)] == [False, False]
