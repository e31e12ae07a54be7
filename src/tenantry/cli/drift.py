"""How far a cluster is from what its tenants should be: the operator's gather, desired and plan, over one reading."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from tenantry.api.errors import InputError, NotFound, TerminalError
from tenantry.api.kubernetes import ClusterNetworkPolicy, Namespace
from tenantry.api.marks import INHERITED_FROM, TENANT
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli import treedrift
from tenantry.cli.documents import Wanted
from tenantry.cli.treedrift import Reading
from tenantry.controllers import suspension, tenantnamespace
from tenantry.controllers.subnamespace.gather import rules_of_all
from tenantry.controllers.tenant.desired import whole
from tenantry.controllers.tenant.gather import CHILD_KINDS, gather
from tenantry.controllers.watched import OURS, selectors_of, watch
from tenantry.engine.cache import Cache
from tenantry.engine.clock import rfc3339
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import Action, Blocked, Edit, Plan, Step
from tenantry.engine.preview import Preview, preview_edit, preview_step, shown
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.world.leases import with_lease

UNKNOWN_UID = "(known when it is made)"
"""The uid of a tenant that is not in the cluster yet: unique, like a real one."""

AT_ONCE = 16


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What would change for one tenant.

    Args:
        tenant: Its name.
        changes: In the order in which they would be written.
        blocked: What stands in the way of the rest.
    """

    tenant: str
    changes: tuple[Preview, ...]
    blocked: tuple[Blocked, ...]


async def find(client: Client, names: Sequence[str], wanted: Wanted | None) -> list[Drift]:
    """Return what would change, tenant by tenant; those without a change are there too, empty.

    Args:
        client: Of the cluster.
        names: The tenants to look at; none means all.
        wanted: Tenants and Subnamespaces as they should become; None looks at all as it is.

    Raises:
        NotFound: One of the names is no tenant's, or a Subnamespace is to be in a namespace that is not there.
    """
    children = await _wanted_children(client, wanted.subnamespaces) if wanted is not None else {}
    if wanted is None:
        live = await _live_tenants(client, names)
        looked_at = list(live.values())
    else:
        above = [await _tenant_of(client, each, wanted) for each in wanted.subnamespaces]
        files = {tenant.metadata.name: tenant for tenant in wanted.tenants}
        live = await _those_there(client, [*files, *above])
        looked_at = [_as_wanted(tenant, live.get(name)) for name, tenant in files.items()]
        looked_at += [tenant for name, tenant in live.items() if name not in files]
    chosen = [tenant.metadata.name for tenant in looked_at]
    trees = await treedrift.read(client, looked_at, {key: after for key, (_, after) in children.items()})
    # A tree's namespaces are anywhere: then everything is read.
    only = chosen[0] if len(chosen) == 1 and not trees.has_tree(chosen[0]) else ""
    caches, cluster = await asyncio.gather(_read_all(client, only), client.get(Namespace, "kube-system"))
    trees = msgspec.structs.replace(trees, observed=caches, cluster_uid=cluster.metadata.uid)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(tenant: Tenant) -> Drift:
        async with places:
            drift = await _drift(client, trees, tenant, live.get(tenant.metadata.name))
            if drift.blocked or not trees.has_tree(drift.tenant) or tenant.metadata.deletion_timestamp:
                return drift
            return await _tree_drift(client, trees, tenant, drift, children)

    return list(await asyncio.gather(*(one(tenant) for tenant in looked_at)))


async def _live_tenants(client: Client, names: Sequence[str]) -> dict[str, Tenant]:
    if not names:
        return {tenant.metadata.name: tenant for tenant in await client.list(Tenant)}
    return {name: await client.get(Tenant, name) for name in dict.fromkeys(names)}


async def _those_there(client: Client, names: Sequence[str]) -> dict[str, Tenant]:
    found: dict[str, Tenant] = {}
    for name in dict.fromkeys(names):
        with suppress(NotFound):
            found[name] = await client.get(Tenant, name)
    return found


async def _tenant_of(client: Client, wanted: Subnamespace, files: Wanted) -> str:
    """Return the tenant in whose tree a Subnamespace is to be.

    Raises:
        NotFound: Its namespace is not there, and no tenant of the files will have it.
        InputError: Its namespace is no tenant's.
    """
    parent = wanted.metadata.namespace
    if any(tenant.metadata.name == parent for tenant in files.tenants):
        return parent
    try:
        labels = (await client.get(Namespace, parent)).metadata.labels
    except NotFound as error:
        raise NotFound(f"Subnamespace {wanted.key!r}: there is no namespace {parent!r}") from error
    if not labels.get(TENANT):
        raise InputError(f"Subnamespace {wanted.key!r}: the namespace {parent!r} is no tenant's")
    return labels[TENANT]


Pair = tuple[Subnamespace | None, Subnamespace]


async def _wanted_children(client: Client, wanted: Sequence[Subnamespace]) -> dict[str, Pair]:
    """Return Subnamespaces as they are, and as they should become, by key."""
    found: dict[str, Pair] = {}
    for each in wanted:
        try:
            live = await client.get(Subnamespace, each.metadata.name, each.metadata.namespace)
        except NotFound:
            # Each has a uid of its own; what is made last is served last.
            made = {"uid": f"{UNKNOWN_UID}: {each.key}", "creation_timestamp": rfc3339(datetime.now(UTC))}
            metadata = msgspec.structs.replace(each.metadata, **made, generation=1)
            found[each.key] = None, msgspec.structs.replace(each, metadata=metadata)
        else:
            found[each.key] = live, msgspec.structs.replace(live, spec=each.spec)
    return found


def _as_wanted(tenant: Tenant, live: Tenant | None) -> Tenant:
    """Return a tenant as it would be in the cluster: with the uid that it has there, and the marks of both."""
    given = tenant.metadata
    if live is None:
        return msgspec.structs.replace(tenant, metadata=msgspec.structs.replace(given, uid=UNKNOWN_UID))
    metadata = msgspec.structs.replace(
        live.metadata,
        labels={**live.metadata.labels, **given.labels},
        annotations={**live.metadata.annotations, **given.annotations},
    )
    return msgspec.structs.replace(live, spec=tenant.spec, metadata=metadata)


# -- one reading of the cluster -------------------------------------------------------------------

Caches = dict[Resource, Cache[Observed]]


async def _read_all(client: Client, only: str) -> Caches:
    """Return caches of everything that belongs to tenants, or has a name that they need; of one tenant, or of all."""
    read = await asyncio.gather(*(_read_kind(client, kind.resource, only) for kind in CHILD_KINDS))
    return {kind.resource: cache for kind, cache in zip(CHILD_KINDS, read, strict=True) if cache is not None}


async def _read_kind(client: Client, resource: Resource, one: str) -> Cache[Observed] | None:
    cache: Cache[Observed] = Cache(watch(resource, lambda _: ()).indexes)
    selectors = selectors_of(resource)
    if one and resource == Namespace.resource:
        selectors = {"fieldSelector": f"metadata.name={one}"}
    elif one and selectors:
        selectors = {"labelSelector": f"{OURS['labelSelector']},{TENANT}={one}"}
    try:
        async for page in client.pages(resource, msgspec.Raw, namespace=one, selectors=selectors):
            for raw in page.items:
                cache.put(observe(resource, raw))
    except NotFound:
        if resource == ClusterNetworkPolicy.resource:
            return None  # the cluster does not have the kind
        raise
    return cache


# -- one tenant -----------------------------------------------------------------------------------


async def _drift(client: Client, trees: Reading, tenant: Tenant, before: Tenant | None) -> Drift:
    caches = trees.observed
    name = tenant.metadata.name
    if tenant.metadata.deletion_timestamp:
        return Drift(tenant=name, changes=(), blocked=())  # it is on its way out: nothing is put back
    namespace = caches[Namespace.resource].get(name)
    owns = namespace is not None and namespace.owner_uid == tenant.metadata.uid
    counted = with_lease(tenant, trees.now)
    inputs = gather(counted, caches, cluster_uid=trees.cluster_uid, owns_namespace=owns)
    rules = rules_of_all(trees.defaults)
    plan = whole(msgspec.structs.replace(inputs, defaults=rules, around=trees.around, sandbox=trees.sandbox))
    if namespace is not None and trees.has_tree(name):
        plan = treedrift.without_shares(plan)
    changes = [*_own_change(tenant, before), *await _steps(client, plan)]
    blocked = list(plan.blocked)
    if not blocked:
        edits, trouble = await _edits(client, plan.edits)
        changes += edits
        blocked += trouble
    return Drift(tenant=name, changes=tuple(changes), blocked=tuple(blocked))


async def _tree_drift(client: Client, trees: Reading, tenant: Tenant, core: Drift, wanted: Mapping[str, Pair]) -> Drift:
    """Return the drift of a tenant with that of its whole tree."""
    changes, blocked = list(core.changes), list(core.blocked)
    if trees.observed[Namespace.resource].get(core.tenant) is None:
        # What children are made of is not known before the top of the tree is there.
        own = (
            _own_change(after, before) for before, after in wanted.values() if after.metadata.namespace == core.tenant
        )
        return msgspec.structs.replace(core, changes=(*core.changes, *(change for each in own for change in each)))
    for plan, inputs in treedrift.plans(trees, tenant):
        if inputs is not None and inputs.subnamespace.key in wanted:
            before, after = wanted[inputs.subnamespace.key]
            changes += _own_change(after, before)
        changes += await _steps(client, plan)
        where = f"Subnamespace {inputs.subnamespace.key!r}: " if inputs is not None else ""
        blocked += [msgspec.structs.replace(each, message=f"{where}{each.message}") for each in plan.blocked]
        if inputs is None or inputs.tenant is None or plan.blocked:
            continue
        others = [binding for binding in inputs.bindings if INHERITED_FROM not in binding.labels]
        ours = tenantnamespace.OWNER_BINDING
        wanted_edits = suspension.edits(others, suspended=inputs.tenant.spec.suspended, ours=ours)
        edits, trouble = await _edits(client, wanted_edits)
        changes += edits
        blocked += trouble
    return Drift(tenant=core.tenant, changes=tuple(changes), blocked=tuple(blocked))


async def _steps(client: Client, plan: Plan) -> list[Preview]:
    changes: list[Preview] = []
    for step in (step for wave in plan.waves for step in wave):
        preview = preview_step(step, await _live(client, step) if step.action is not Action.CREATE else None)
        if preview is not None:
            changes.append(preview)
    return changes


async def _edits(client: Client, edits: Sequence[Edit]) -> tuple[list[Preview], list[Blocked]]:
    """Return what a suspension, or its end, would change in other people's bindings."""
    changes: list[Preview] = []
    for edit in edits:
        try:
            preview = preview_edit(edit, await _live(client, edit))
        except TerminalError as error:
            return changes, [Blocked(reason=error.reason, message=str(error))]
        if preview is not None:
            changes.append(preview)
    return changes, []


def _own_change(value: Tenant | Subnamespace, before: Tenant | Subnamespace | None) -> list[Preview]:
    """Return the change of the object itself: what `kubectl apply` of the file would do."""
    after = _shown(value)
    if before is None:
        return [_of_own(Action.CREATE, value, None, after)]
    was = _shown(before)
    return [] if was == after else [_of_own(Action.UPDATE, value, was, after)]


def _shown(value: Tenant | Subnamespace) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(value)
    # The server stores what it fills in; an empty map is the same as none.
    spec = {key: inner for key, inner in whole["spec"].items() if inner != {}}
    return shown(value.resource, {**whole, "spec": spec})


def _of_own(
    action: Action, value: Tenant | Subnamespace, before: dict[str, Any] | None, after: dict[str, Any]
) -> Preview:
    meta, kind = value.metadata, value.resource.kind
    return Preview(action=action, kind=kind, namespace=meta.namespace, name=meta.name, before=before, after=after)


async def _live(client: Client, about: Step | Edit) -> dict[str, Any] | None:
    try:
        data = await client.request("GET", wire.path(about.resource, about.namespace, about.name))
    except NotFound:
        return None
    return msgspec.json.decode(data, type=dict[str, Any])
