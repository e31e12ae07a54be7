"""Hosted control planes begin with a database made at build, and share no identity (H02)."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import msgspec

from tenantry.api.model import Json, Resource
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import SilentProgress
from testkit.api import Api, until
from testkit.hosted import running

pytest_plugins = ["testkit.fixtures"]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
UID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def values(file: Path) -> dict[str, bytes]:
    """Return all values in a database by their keys; those of objects that were deleted are among them."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        return {key: bytes(value or b"") for key, value in database.execute("SELECT name, value FROM kine ORDER BY id")}


async def objects(client: Client) -> list[Json]:
    """Return all objects of all kinds that an API server lists."""

    async def read(path: str) -> Json:
        return msgspec.json.decode(await client.request("GET", path))

    groups = [
        "/api/v1",
        *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in (await read("/apis"))["groups"]),
    ]
    found: list[Json] = []
    for path in groups:
        for kind in (await read(path))["resources"]:
            # Kubernetes makes the objects of that kind up.
            if "list" in kind["verbs"] and kind["kind"] != "ComponentStatus":
                found += [{**each, "kind": kind["kind"]} for each in (await read(f"{path}/{kind['name']}"))["items"]]
    return found


async def test_two_control_planes_share_no_identity(tenancy: LocalCluster, name: str) -> None:
    """H02, VCP-46: no uid, Secret, authority, key, address or value with them is the same in two control planes."""
    async with running(tenancy, f"{name}-a") as one, running(tenancy, f"{name}-b") as other:
        seen: list[dict[tuple[str, str, str], Json]] = []
        for _, _, place in (one, other):
            async with Client(place.connection) as client:
                inside = Api(client)

                async def published(inside: Api = inside) -> Json | None:
                    return await inside.find(CONFIG_MAPS, "kube-root-ca.crt", "default")

                await until(published, "the controllers have published the authority")
                found = await objects(client)
                hooks = (await client.request("GET", "/readyz?verbose")).decode()
                # Not those of Kubernetes, which first wait for a second.
                assert "start-hosted-defaults ok" in hooks
                assert "bootstrap-roles" not in hooks
                assert "bootstrap-system-priority-classes" not in hooks
                seen.append({(e["kind"], e["metadata"].get("namespace", ""), e["metadata"]["name"]): e for e in found})
        uids = [{each["metadata"]["uid"] for each in of.values()} for of in seen]
        assert len(uids[0]) == len(seen[0]) > 200
        assert not uids[0] & uids[1]
        assert not [key for of in seen for key in of if key[0] == "Secret"]
        authorities = [of["ConfigMap", "default", "kube-root-ca.crt"]["data"]["ca.crt"] for of in seen]
        assert authorities[0] != authorities[1]
        # Of the process, and of nothing earlier.
        folders = [place.gate(plane.uid).parent for place, plane, _ in (one, other)]
        stored = [await asyncio.to_thread(values, folder / "state.db") for folder in folders]
        inner = [set(UID.findall(b"".join(of.values()))) for of in stored]
        assert len(inner[0]) > 200
        assert not inner[0] & inner[1]
        # Without the file of former authorities: it is empty, as none was replaced.
        keys = [
            {file.read_bytes() for file in (folder / "pki").iterdir() if file.suffix in {".key", ".pub", ".crt"}}
            - {b""}
            for folder in folders
        ]
        assert not keys[0] & keys[1]


def test_the_file_made_at_build_has_only_what_all_have(tmp_path: Path) -> None:
    """H02, VCP-46: it has no uid, Secret, ConfigMap, Lease, Service or range, and no key or certificate."""
    programs = build.ensure(SilentProgress(), build.HOSTED)
    header, _, database = programs.prebuilt.read_bytes().partition(b"\n")
    assert msgspec.json.decode(header)["kubernetes"].startswith("v1.")
    (tmp_path / "prebuilt.db").write_bytes(database)
    made = values(tmp_path / "prebuilt.db")
    kinds = {key.removeprefix("/registry/").rpartition("/")[0].partition("/")[0] for key in made}
    assert kinds == {
        *("", "apiregistration.k8s.io", "clusterrolebindings", "clusterroles", "flowschemas", "namespaces"),
        *("priorityclasses", "prioritylevelconfigurations", "rolebindings", "roles", "serviceaccounts"),
    }
    assert {key for key in made if not key.partition("/registry/")[2].rpartition("/")[0]} == {
        "/registry/health",
        "compact_rev_key",
    }
    content = b"".join(made.values())
    assert not UID.search(content)
    assert b"BEGIN " not in content
