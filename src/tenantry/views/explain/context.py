"""What surrounds an object in its namespace: labels, suspension, rules, limits; and who wrote a rule last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import LimitRange, Namespace
from tenantry.api.model import Json, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import NAME, TenancyRules, TenancyRulesSpec
from tenantry.api.tenant import Tenant
from tenantry.engine.reader import ObjectReader
from tenantry.kube import wire
from tenantry.policy.explain.refusal import Cause, author_of, source_of
from tenantry.views import acting

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.acting import ActingUser

STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
RULE_SOURCES = {kind.resource.kind: kind.resource for kind in (TenancyDefaults, Tenant, Subnamespace)}
"""The kinds that define rules."""


class NamespaceContext(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds the objects of a namespace.

    Args:
        namespace: Its name; "" for a cluster-scoped object.
        labels: The labels of the namespace.
        suspended: The tenant of the namespace if it is suspended; "" if it is not, or if that may not be read.
        rules: The rules in force there.
        is_ruled: Whether rules can be in force there. Inside a virtual control plane, the host has them.
        limit_ranges: The LimitRanges of the namespace; None if they may not be read.
        reclaim_policies: Name of each StorageClass to its reclaim policy; None if they may not be read.
        notes: What could not be read.
    """

    namespace: str = ""
    labels: dict[str, str] = {}
    suspended: str = ""
    rules: TenancyRulesSpec = TenancyRulesSpec()
    is_ruled: bool = True
    limit_ranges: Sequence[Json] | None = ()
    reclaim_policies: dict[str, str] | None = {}
    notes: tuple[str, ...] = ()


async def gather(asking: ActingUser, name: str) -> NamespaceContext:
    """Read the surroundings of the objects of a namespace that the requester may read."""
    notes: list[str] = []
    labels: dict[str, str] | None = None
    try:
        labels = (await asking.client.get(Namespace, name)).metadata.labels
    except Forbidden:
        notes.append(f"{asking.user!r} may not read the namespace {name!r}: its quota is left out")
    suspended = await _suspended(asking, name, labels)
    if suspended is None:
        notes.append(f"whether the tenant of {name!r} is suspended, which removes all rights there, is left out")
    rules = TenancyRulesSpec()
    try:
        rules = await read_rules(asking.client, name, labels)
    except Forbidden:
        notes.append(f"{asking.user!r} may not read the rules of {name!r}: they are left out")
    classes = await _items(asking.client, STORAGE_CLASSES, "")
    return NamespaceContext(
        namespace=name,
        labels=labels or {},
        suspended=suspended or "",
        rules=rules,
        is_ruled=labels is None or marks.TENANT_UID in labels,
        limit_ranges=await _items(asking.client, LimitRange.resource, name),
        reclaim_policies=None
        if classes is None
        else {each["metadata"]["name"]: each.get("reclaimPolicy", "Delete") for each in classes},
        notes=tuple(notes),
    )


async def _suspended(asking: ActingUser, namespace: str, labels: dict[str, str] | None) -> str | None:
    """Return the tenant of a namespace if it is suspended, "" if it is not; None if that may not be read.

    A suspension takes the right to read its own label: then the caller's rights are used.
    """
    if labels is None and asking.caller is not asking.client:
        try:
            labels = (await asking.caller.get(Namespace, namespace)).metadata.labels
        except NotFound:
            return ""
        except Forbidden:
            return None
    if labels is None:
        return None
    return labels.get(marks.TENANT, "") if labels.get(marks.SUSPENDED) else ""


async def read_rules(reader: ObjectReader, namespace: str, labels: Mapping[str, str] | None) -> TenancyRulesSpec:
    """Return the rules in force in a namespace.

    Args:
        reader: Reads with the user's rights.
        namespace: The namespace.
        labels: Its labels; None if they may not be read.

    Raises:
        NotFound: The operator has not written the rules of all tenants.
        Forbidden: They may not be read.
    """
    try:
        return (await reader.get(TenancyRules, NAME, namespace)).spec
    except NotFound:
        # A tenant's namespace without rules of its own follows those of all tenants.
        if labels is not None and marks.TENANT_UID not in labels:
            return TenancyRulesSpec()
        return (await reader.get(TenancyRules, NAME, marks.SYSTEM_NAMESPACE)).spec


async def _items(client: Client, resource: Resource, namespace: str) -> list[Json] | None:
    try:
        items: list[Json] = (await acting.get(client, wire.path(resource, namespace)))["items"]
    except Forbidden:
        return None
    except NotFound:
        return []  # the cluster does not have the kind
    return items


class RuleAuthors:
    """Looks up who wrote a rule last; each object that defines rules is read once.

    The caller reads the answer, so the caller's rights count here, too.
    """

    def __init__(self, asking: ActingUser) -> None:
        self._clients = tuple(dict.fromkeys((asking.client, asking.caller)))
        self._sources: dict[str, Json | None] = {}

    async def added_to(self, cause: Cause) -> Cause:
        """Return a cause with the author of its rule, if that may be read."""
        if not cause.rule:
            return cause
        if cause.source not in self._sources:
            self._sources[cause.source] = await self._read(cause.source)
        found = self._sources[cause.source]
        return msgspec.structs.replace(cause, author=author_of(found, cause.rule)) if found is not None else cause

    async def _read(self, source: str) -> Json | None:
        named = source_of(source)
        resource = RULE_SOURCES.get(named.kind) if named is not None else None
        if named is None or resource is None:
            return None
        for client in self._clients:
            try:
                return await acting.get(client, wire.path(resource, named.namespace, named.name))
            except (Forbidden, NotFound):
                continue
        return None
