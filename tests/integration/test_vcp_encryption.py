"""Secrets and ConfigMaps of virtual control planes are encrypted where they are stored."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import authorityobjects
from tenantry.hosting import encryption, snapshots
from tenantry.local import hostedkeys
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, SECONDS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.planes import Planes, vcp

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
PLANES = VirtualControlPlane.resource
CANARY = "canary-5c0ffee5-in-a-secret"
KNOWN = "canary-5c0ffee5-in-a-role"
"""In an object of a kind that is not encrypted: the search finds it, so that it would find the other one."""


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all regular files below a folder."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file() and not each.is_symlink()
    }


def holding(folder: Path, text: str) -> list[str]:
    """Return the files below a folder that have a text."""
    return sorted(name for name, content in files(folder).items() if text.encode() in content)


async def planted(inside: Api) -> None:
    """Create objects with the canaries, and change one, which leaves former values."""
    await inside.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": CANARY}}, "default")
    await inside.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"password": CANARY}}, "default")
    await inside.patch(SECRETS, "s", {"stringData": {"other": CANARY}}, "default")
    account = {"metadata": {"name": "known", "annotations": {"known": KNOWN}}}
    await inside.create(SERVICE_ACCOUNTS, account, "default")


async def status_of(planes: Planes, namespace: str, name: str) -> Json:
    """Return the status of a control plane."""
    found: Json = (await planes.host.get(PLANES, name, namespace))["status"]
    return found


async def test_nothing_on_the_disk_has_a_secret(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """E20: neither the database, nor its log, nor a snapshot; the key is not beside them, and ends with them."""
    await planes.host.make_tenant(name)
    uid = (await planes.create(name, "web"))["metadata"]["uid"]
    place = authorityobjects.place(uid)
    folder = plane_cluster.paths.folder
    copy = tmp_path / "web.snapshot"
    async with planes.entered(name, "web") as inside:
        await planted(inside)
        code, _, told = await vcp(plane_cluster, "snapshot", "web", "-n", name, "--to", str(copy))
        assert code == 0, told
        assert (await inside.get(SECRETS, "s", "default"))["data"].keys() == {"password", "other"}
    own = folder / "hosted" / uid
    assert holding(own, CANARY) == []
    # The same search finds what is not encrypted.
    assert holding(own, KNOWN) == ["state.db-wal"]
    key = encryption.parse(hostedkeys.read(plane_cluster.paths, uid))
    assert key is not None
    assert [stat.S_IMODE(each.stat().st_mode) for each in (hostedkeys.folder(plane_cluster.paths, uid)).iterdir()] == [
        0o600
    ]
    status = await status_of(planes, name, "web")
    assert [each["name"] for each in status["encryption"]["keys"]] == [key.keys[0].name]
    assert not status["encryption"].get("readsPlain")
    assert await planes.names(SECRETS, place) == ["web-encryption"]
    await planes.delete(name, "web")
    assert not (folder / "hosted-keys" / uid).exists()

    async def gone() -> bool:
        return not await planes.exists(place)

    await until(gone, "the key is destroyed", seconds=SECONDS)


async def test_a_rotation_stores_everything_under_a_new_key(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """E20: the former key is destroyed with the last snapshot that needs it; another control plane needs the keys."""
    await planes.host.make_tenant(name)
    uid = (await planes.create(name, "web"))["metadata"]["uid"]
    first = (await status_of(planes, name, "web"))["encryption"]["keys"][0]["name"]
    copy = tmp_path / "web.snapshot"
    async with planes.entered(name, "web") as inside:
        await planted(inside)
        code, _, told = await vcp(plane_cluster, "snapshot", "web", "-n", name, "--to", str(copy))
        assert code == 0, told
        code, _, told = await vcp(plane_cluster, "rotate", "web", "-n", name, "--encryption", "--yes")
        assert code == 0, told
        assert (await inside.get(SECRETS, "s", "default"))["data"].keys() == {"password", "other"}
    keys = encryption.parse(hostedkeys.read(plane_cluster.paths, uid))
    assert keys is not None
    # The snapshot needs the former one.
    assert [each.name == first for each in keys.keys] == [False, True]
    await planes.create(name, "second")
    code, _, told = await vcp(plane_cluster, "restore", "second", "-n", name, "--from", str(copy), "--yes")
    assert code == 0, told
    async with planes.entered(name, "second") as inside:
        assert (await inside.get(SECRETS, "s", "default"))["data"].keys() == {"password", "other"}
    snapshots.keys_of(copy).unlink()
    code, _, told = await vcp(plane_cluster, "restore", "second", "-n", name, "--from", str(copy), "--yes")
    assert code != 0
    assert "its key is missing" in told
