"""Fill one tenant with the largest objects that it may have, and measure the API server's memory.

    PYTHONPATH=tests .venv/bin/python benchmarks/objects.py
    PYTHONPATH=tests .venv/bin/python benchmarks/objects.py --helm
    PYTHONPATH=tests .venv/bin/python benchmarks/objects.py --every-kind --children 2

Starts a throwaway cluster with the operator, and deletes it. The tenant has the default limits and all Subnamespaces
that it may have, unless --children is fewer. Prints JSON: the memory (PSS) of the API server before and after, the
bytes stored, and the bytes of memory for each. The objects are ConfigMaps and Secrets; with --helm, the Secrets are
releases of Helm, which may be larger; with --every-kind, they are of every kind that owners create and Kubernetes
counts. Takes two to ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import os
import sys
from pathlib import Path

import msgspec

from tenantry.api.errors import Conflict, Forbidden
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant
from tenantry.bench.load import new_tenant
from tenantry.cli.local.up import guard, install
from tenantry.engine.conditions import is_true
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.components import APISERVER
from testkit.everykind import kinds, long

NAME = "bench-objects"
TENANT = "flood"
MIB = 1024 * 1024
DATA_BYTES = 128 * 1024 - 500
RELEASE_BYTES = MIB - 4000
OTHER_BYTES, BINDING_BYTES = 62_000, 28_000
"""What rules leave for an annotation: policy tenantry-closable leaves bindings less."""
AT_ONCE = 8
ALL = 1000
START_SECONDS = 180.0
SETTLE_SECONDS = 150
"""How long the API server rests before each measurement: Go collects garbage at least every two minutes."""

CONFIG_MAPS, SECRETS = Resource("", "v1", "configmaps", "ConfigMap"), Resource("", "v1", "secrets", "Secret")


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    """The result; memory and bytes are in MiB.

    Args:
        before: The memory of the API server with the tree and without the objects.
        at_once: The same with them, as soon as the last one is there: with the garbage of the requests.
        after: The same with them, at rest.
        growth: after / before.
        stored: The bytes of the objects' data or annotations.
        objects: How many there are.
        memory_per_byte: (after - before) / stored.
    """

    before: float
    at_once: float
    after: float
    growth: float
    stored: float
    objects: int
    memory_per_byte: float


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024


async def _tree(client: Client, most: int) -> list[str]:
    """Create as many Subnamespaces as the tenant may have, or `most`, and return all namespaces."""
    await client.create(new_tenant(TENANT, TENANT))
    await _until_ready(client, Tenant, TENANT, "")
    limit = 0
    owner = Owner(kind=OwnerKind.USER, name="bench")
    namespaces = [TENANT]
    while limit < most:
        spec = SubnamespaceSpec(mode=Mode.WORKSPACE, owners=(owner,))
        try:
            await client.create(Subnamespace(metadata=ObjectMeta(name=f"n{limit}", namespace=TENANT), spec=spec))
        except Forbidden:
            return namespaces  # the count of Subnamespaces
        found = await _until_ready(client, Subnamespace, f"n{limit}", TENANT)
        if not isinstance(found, Subnamespace) or not found.status.namespace:
            return namespaces
        namespaces.append(found.status.namespace)
        limit += 1
    return namespaces


async def _until_ready(
    client: Client, kind: type[Tenant | Subnamespace], name: str, namespace: str
) -> Tenant | Subnamespace:
    """Return an object when it is Ready, or when the operator refuses it."""
    while True:
        found = await client.get(kind, name, namespace)
        if is_true(found.status.conditions, "Ready") or is_true(found.status.conditions, "Stalled"):
            return found
        await asyncio.sleep(0.1)


async def _fill(client: Client, namespace: str, resource: Resource, content: Json) -> int:
    """Create objects until the API server refuses one, and return how many there are."""
    numbers = itertools.count()

    async def fill() -> int:
        made = 0
        while True:
            metadata = {**content.get("metadata", {}), "name": f"flood-{next(numbers)}"}
            value = {"apiVersion": resource.api_version, "kind": resource.kind, **content, "metadata": metadata}
            try:
                await client.request("POST", wire.path(resource, namespace), body=msgspec.json.encode(value))
            except Conflict:
                continue
            except Forbidden:
                return made
            made += 1

    return sum(await asyncio.gather(*(fill() for _ in range(AT_ONCE))))


def _contents(namespace: str, *, helm: bool, every_kind: bool) -> list[tuple[Resource, Json, int]]:
    """Return each kind with the largest object, and the bytes of its data or annotation."""
    text = base64.b64encode(os.urandom(DATA_BYTES * 3 // 4)).decode()
    secret: Json = {"data": {"a": base64.b64encode(os.urandom(DATA_BYTES)).decode()}}
    if helm:
        release = base64.b64encode(os.urandom(RELEASE_BYTES)).decode()
        secret = {"type": "helm.sh/release.v1", "data": {"release": release}}
    found = [
        (CONFIG_MAPS, {"data": {"a": text}}, DATA_BYTES),
        (SECRETS, secret, RELEASE_BYTES if helm else DATA_BYTES),
    ]
    others = kinds(namespace) if every_kind else ()
    for resource, value in others:
        # No quota counts Events.
        if resource.plural not in {"configmaps", "secrets", "events"}:
            size = BINDING_BYTES if resource.plural == "rolebindings" else OTHER_BYTES
            found.append((resource, long(value, "", text[:size]), size))
    return found


async def _run(cluster: LocalCluster, *, helm: bool, every_kind: bool, children: int) -> Flood:
    options = UpOptions(throwaway=True, operator=True, install=install, guard=guard, timeout_seconds=START_SECONDS)
    started = await cluster.up(options)
    pid = next(each.pid for each in started.state.components if each.name == APISERVER)
    objects = stored = 0
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        namespaces = await _tree(client, children)
        await asyncio.sleep(SETTLE_SECONDS)
        before = _memory(pid)
        for namespace in namespaces:
            for resource, content, size in _contents(namespace, helm=helm, every_kind=every_kind):
                made = await _fill(client, namespace, resource, content)
                objects, stored = objects + made, stored + made * size
        at_once = _memory(pid)
        await asyncio.sleep(SETTLE_SECONDS)
        after = _memory(pid)
    megabytes = stored / MIB
    return Flood(
        before=round(before, 1),
        at_once=round(at_once, 1),
        after=round(after, 1),
        growth=round(after / before, 2),
        stored=round(megabytes, 1),
        objects=objects,
        memory_per_byte=round((after - before) / megabytes, 2),
    )


async def _measure(*, helm: bool, every_kind: bool, children: int) -> Flood:
    cluster = LocalCluster(NAME)
    try:
        return await _run(cluster, helm=helm, every_kind=every_kind, children=children)
    finally:
        await cluster.down(purge=True)


def main() -> None:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helm", action="store_true", help="Make the Secrets releases of Helm.")
    parser.add_argument("--every-kind", action="store_true", help="Create objects of every kind that owners create.")
    parser.add_argument("--children", type=int, default=ALL, help="Number of Subnamespaces (default: all allowed).")
    given = parser.parse_args()
    found = asyncio.run(_measure(helm=given.helm, every_kind=given.every_kind, children=given.children))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")


if __name__ == "__main__":
    main()
