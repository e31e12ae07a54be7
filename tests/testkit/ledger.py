"""An auditor of quotas: it watches the API server itself, and replays every resourceVersion in order.

It knows nothing of how shares are moved: only that, for every key, neither the sum of what the ResourceQuotas of a tree
say nor the sum of what is in force may ever be more than `TenantResourceQuota.status.hard`. Where it looks at claims
of nodes of a tenant, too, their unused part counts as well, and so does what its control planes are charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from tenantry.api.errors import Unreachable
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.slice import Slice
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.world.shares.amounts import Amounts, ShareQuota, read, total
from tenantry.world.shares.defaults import LEAST, default
from tenantry.world.shares.share import ShareRequest, TreeNamespace
from testkit.api import Api, until

Json = dict[str, Any]
QUOTAS, TENANT_QUOTAS, SLICES = ResourceQuota.resource, TenantResourceQuota.resource, Slice.resource
PLANES = VirtualControlPlane.resource
_TENANT = "tenantry.dev/tenant"


class Entry(NamedTuple):
    """One object from a resourceVersion on; None if it was deleted."""

    version: int
    resource: Resource
    key: str
    value: Json | None


class Ledger:
    """All changes of ResourceQuotas and TenantResourceQuotas.

    Args:
        client: Reads as an administrator; no other code uses it.
        claims_of: Look at the claims of this tenant, too; none of its namespaces may use any. Tenants of earlier tests
            may still be there, with claims that namespaces use.
        planes_of: Look at the control planes in the core namespace of this tenant, too.
    """

    def __init__(self, client: Client, *, claims_of: str = "", planes_of: str = "") -> None:
        self._client = client
        self._claims_of = claims_of
        self._planes_of = planes_of
        claims = (SLICES,) if claims_of else ()
        planes = (PLANES,) if planes_of else ()
        self._kinds = (QUOTAS, TENANT_QUOTAS, *claims, *planes)
        self._entries: list[Entry] = []
        self._began: dict[Resource, int] = {}
        self._seen: dict[Resource, int] = {}
        self.checked = 0

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[Ledger]:
        """Record all changes while the context is open."""
        for resource in self._kinds:
            await self._list(resource)
        tasks = [asyncio.create_task(self._follow(resource)) for resource in self._kinds]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _list(self, resource: Resource) -> None:
        async for page in self._client.pages(resource, msgspec.Raw):
            for raw in page.items:
                self._note(resource, msgspec.json.decode(raw), gone=False)
            self._began[resource] = self._seen[resource] = int(page.metadata.resource_version)

    async def _follow(self, resource: Resource) -> None:
        while True:
            with suppress(Unreachable):
                version = str(self._seen[resource])
                async for events in watch(self._client, resource, resource_version=version):
                    for event in events:
                        value: Json = msgspec.json.decode(event.object)
                        if event.type is not EventType.BOOKMARK:
                            self._note(resource, value, gone=event.type is EventType.DELETED)
                        self._seen[resource] = int(value["metadata"]["resourceVersion"])

    def _note(self, resource: Resource, value: Json, *, gone: bool) -> None:
        meta: Json = value["metadata"]
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        self._entries.append(Entry(int(meta["resourceVersion"]), resource, key, None if gone else value))

    async def catch_up(self, api: Api) -> None:
        """Wait until all changes until now are recorded: a marker object is the last change of each kind."""
        for resource, namespace in ((QUOTAS, "default"), (TENANT_QUOTAS, ""), (SLICES, ""), (PLANES, "default")):
            if resource not in self._kinds:
                continue
            about = {"claim": dict.fromkeys(("namespace", "name", "uid"), "mark"), "tenant": "mark"}
            spec = about if resource == SLICES else {}
            mark: Json = {"metadata": {"name": f"mark-{len(self._entries)}"}, "spec": spec}
            made = await api.create(resource, mark, namespace)
            version = int(made["metadata"]["resourceVersion"])

            async def so(resource: Resource = resource, version: int = version) -> bool:
                return self._seen[resource] >= version

            await until(so, f"every event of {resource.plural} has come")
            await api.delete(resource, mark["metadata"]["name"], namespace)

    def breaches(self) -> list[str]:
        """Replay all changes, and return each excess over a limit; `checked` counts the inspected states."""
        quotas: dict[str, dict[str, tuple[Amounts, Amounts]]] = {}
        owner: dict[str, str] = {}
        whole: dict[str, Amounts] = {}
        found: list[str] = []
        begin = max(self._began.values())
        for entry in sorted(self._entries, key=lambda entry: entry.version):
            tenant = entry.key.strip("/")
            if entry.resource == TENANT_QUOTAS:
                whole.pop(tenant, None)
                status: Json = (entry.value or {}).get("status", {})
                if status.get("batch", {}).get("counted"):
                    whole[tenant] = read(status.get("hard", {}))
            else:
                tenant = _tenant_of(entry.value) or owner.get(entry.key, "")
                if entry.resource == PLANES and entry.key.startswith(f"{self._planes_of}/"):
                    tenant = self._planes_of
                owner[entry.key] = tenant
                quotas.setdefault(tenant, {}).pop(entry.key, None)
                if entry.value is not None and entry.key.endswith("/tenantry-quota"):
                    quotas[tenant][entry.key] = _sides(entry.value)
                elif entry.value is not None and (
                    (entry.resource == SLICES and tenant == self._claims_of) or (entry.resource == PLANES and tenant)
                ):
                    charged = read(entry.value.get("status", {}).get("charged", {}))
                    quotas[tenant][entry.key] = charged, charged
            if entry.version >= begin and tenant in whole:
                self.checked += 1
                found += _breaches(entry, tenant, whole[tenant], list(quotas.get(tenant, {}).values()))
        return found


def _tenant_of(value: Json | None) -> str:
    labels: dict[str, str] = value["metadata"].get("labels") or {} if value is not None else {}
    return labels.get(_TENANT, "")


def _sides(value: Json) -> tuple[Amounts, Amounts]:
    return read(value["spec"].get("hard", {})), read(value.get("status", {}).get("hard", {}))


def _breaches(entry: Entry, tenant: str, whole: Amounts, quotas: list[tuple[Amounts, Amounts]]) -> list[str]:
    found: list[str] = []
    for side, sums in (("spec", total(q[0] for q in quotas)), ("status", total(q[1] for q in quotas))):
        found += [
            f"{entry.version}: tenant {tenant!r}: {side}.hard[{key}] adds up to {sums[key]} thousandths of {whole[key]}"
            for key in whole
            if sums.get(key, 0) > whole[key]
        ]
    return found


class End(NamedTuple):
    """A tree at rest; the maps are by namespace."""

    whole: Amounts
    hard: Amounts
    namespaces: Mapping[str, TreeNamespace]
    quotas: Mapping[str, ShareQuota]
    children: Iterable[ShareRequest]

    def inexact(self) -> list[str]:
        """Return each difference between the tree and the specs; a refused child must lack something."""
        whole, quotas = self.whole, self.quotas
        shares = total(held.hard for held in quotas.values())
        least = {key: max(value, shares.get(key, 0)) for key, value in whole.items()}
        found = [f"the whole is {self.hard}, not {least}"] if self.hard != least else []
        found += [f"{n} has no quota" for n in self.namespaces if whole and n not in quotas]
        found += [f"{n} has {held.hard}" for n, held in quotas.items() if set(held.hard) != set(whole)]
        found += [f"{n} is not in force" for n, held in quotas.items() if held.in_force != held.hard]
        # A namespace that was created a moment ago may have no quota yet: nothing can be summed up over the tree.
        if found or not whole:
            return found
        below = self._spare(next(found.name for found in self.namespaces.values() if not found.parent))
        short = [key for key in whole if shares.get(key, 0) > whole[key] and not self._is_kept(key, below)]
        found = [f"{key} is short, and {below} is unused" for key in short]
        return found or [told for child in self.children if (told := self._wrong(child))]

    def _wrong(self, child: ShareRequest) -> str:
        """Return the faults of one child: it has neither its request nor a reason for the refusal."""
        keys = list(self.whole)
        found = next((found for found in self.namespaces.values() if found.key == child.uid), None)
        have = self._below(found.name) if found is not None else dict.fromkeys(keys, 0)
        # A key that the child does not name has any default, but none is left out while some is free.
        request = {key: child.hard.get(key, have[key]) for key in keys}
        held = self.quotas[child.parent]
        free = {key: held.hard[key] - held.used.get(key, 0) for key in keys}
        is_valid = self._is_valid(child)
        small = [key for key in keys if key not in child.hard and have[key] <= LEAST.get(key, 0)]
        missing = [key for key in small if have[key] < default(key, free[key])]
        if found is not None and have == request:
            told = f"{child.parent}/{child.name} has too little of {missing}, and {free} is free"
            return told if missing and is_valid else ""
        # What siblings have of keys that they do not name, and do not use, is free for requests.
        spare = self._spare(child.parent)
        lacks = any(request[key] - have[key] > free[key] + spare[key] for key in keys)
        below = self._spare(found.name) if found is not None else {}
        holds = found is not None and any(have[key] > request[key] and self._is_kept(key, below) for key in keys)
        if lacks or holds or not is_valid:
            return ""
        return f"{child.parent}/{child.name} asks {request}, has {have}, and {free} is free"

    def _is_valid(self, child: ShareRequest) -> bool:
        return child.problem is None and not set(child.hard) - set(self.whole)

    def _is_kept(self, key: str, spare: Amounts) -> bool:
        """Return whether a child rightly holds more than it requests: nothing below it has an unused default."""
        is_exceeded = any(quota.used.get(key, 0) > quota.hard[key] for quota in self.quotas.values())
        return is_exceeded or not spare[key]

    def _spare(self, namespace: str) -> Amounts:
        """Return what the subtrees below a namespace have of keys that their children do not name, and do not use."""
        out = dict.fromkeys(self.whole, 0)
        for child in self.children:
            found = next((found for found in self.namespaces.values() if found.key == child.uid), None)
            # A child whose request is wrong keeps what it has until it is corrected.
            if child.parent != namespace or found is None or not self._is_valid(child):
                continue
            held, below = self.quotas[found.name], self._spare(found.name)
            for key in self.whole.keys() - child.hard.keys():
                out[key] += max(0, held.hard[key] - held.used.get(key, 0)) + below[key]
        return out

    def _below(self, namespace: str) -> Amounts:
        """Return the quota of a subtree, with the use beyond the shares of its children."""
        held = self.quotas[namespace]
        below = [found.name for found in self.namespaces.values() if found.parent == namespace]
        over = [
            {key: max(0, self.quotas[each].used.get(key, 0) - self.quotas[each].hard[key]) for key in self.whole}
            for each in below
        ]
        return total([held.hard, *over, *(self._below(each) for each in below)])
