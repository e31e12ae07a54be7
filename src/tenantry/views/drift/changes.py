"""How far a cluster is from what its tenants should be, or would be if files were applied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError, NotFound, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT
from tenantry.api.model import Json, KubernetesObject, Resource, object_key
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.watched import BY_TENANT
from tenantry.engine.clock import rfc3339
from tenantry.engine.plan import Amendment, Blocked, CopyStep, Plan, Step, StepAction
from tenantry.engine.preview import Preview, preview_copy, preview_step, preview_write, shown
from tenantry.engine.request import ApiRequest
from tenantry.engine.tasks import all_of
from tenantry.kube import wire
from tenantry.views.drift import topologies
from tenantry.views.drift.planners import UNKNOWN_DIGITS, Planned, cluster_inputs, cluster_plan, plans
from tenantry.views.drift.state import UNKNOWN_UID, DriftInputs, read
from tenantry.views.manifests import Manifests

if TYPE_CHECKING:
    from tenantry.kube.client import Client

C = TypeVar("C", Subnamespace, DedicatedCluster)
L = TypeVar("L", bound=KubernetesObject)

AT_ONCE = 16

Before = Mapping[tuple[Resource, str], KubernetesObject | None]
"""The live objects in the place of those of files, by kind and key; None for a new one."""


Copies = dict[tuple[Resource, str], Json]
"""The copies that plans make, by kind and key, for the plans of the children below."""


class TenantDrift(msgspec.Struct, frozen=True, kw_only=True):
    """What would change for one tenant.

    Args:
        tenant: Its name.
        changes: In the order in which they would be written.
        blocked: What keeps the operator from the rest.
    """

    tenant: str
    changes: tuple[Preview, ...]
    blocked: tuple[Blocked, ...]


async def find(client: Client, names: Sequence[str], manifests: Manifests | None) -> list[TenantDrift]:
    """Return what would change, tenant by tenant, including tenants without a change.

    Args:
        client: Of the cluster.
        names: The tenants; none means all.
        manifests: Objects that would be applied; None for the cluster as it is.

    Raises:
        NotFound: A tenant, or the namespace of a Subnamespace, does not exist.
        InputError: The namespace of a Subnamespace does not belong to a tenant.
    """
    given = Manifests([], []) if manifests is None else manifests
    if manifests is None:
        tenants = await _tenants(client, names)
        before: Before = {}
        subnamespaces: list[Subnamespace] = []
    else:
        tenants, subnamespaces, before = await _applied(client, manifests)
    state = await read(client, tenants, subnamespaces, _defaults(given))
    own = [change for each in given.templates for change in await _take_template(client, state, each)]
    own += [change for each in given.others for change in await _take_other(client, state, each)]
    for each in given.removed:
        state.remove(each)
    shared = [TenantDrift(tenant="", changes=tuple(own), blocked=())] if own else []
    for cluster in given.clusters:
        live = before[_id(cluster)]
        renewed = _renewed(cluster, live if isinstance(live, DedicatedCluster) else None)
        state.clusters.put(_later(renewed, live), listed=0)
    built = await topologies.read(client, (cluster_inputs(state, each) for each in state.clusters))
    state = msgspec.structs.replace(state, cluster_api=built)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(tenant: Tenant) -> TenantDrift:
        async with slots:
            return await _drift(client, state, tenant, before)

    return [*shared, *await all_of(one(tenant) for tenant in tenants)]


async def _tenants(client: Client, names: Sequence[str]) -> list[Tenant]:
    if not names:
        return await client.list(Tenant)
    return [await client.get(Tenant, name) for name in dict.fromkeys(names)]


# -- the objects of files -------------------------------------------------------------------------


async def _applied(client: Client, manifests: Manifests) -> tuple[list[Tenant], list[Subnamespace], Before]:
    """Return the tenants and Subnamespaces as they would be, and the live objects in their place."""
    before: dict[tuple[Resource, str], KubernetesObject | None] = {}
    subnamespaces: list[Subnamespace] = []
    for each in manifests.subnamespaces:
        live = None
        with suppress(NotFound):
            live = await client.get(Subnamespace, each.metadata.name, each.metadata.namespace)
        before[_id(each)] = live
        subnamespaces.append(_renewed(each, live))
    for each in manifests.clusters:
        found_cluster = None
        with suppress(NotFound):
            found_cluster = await client.get(DedicatedCluster, each.metadata.name, each.metadata.namespace)
        before[_id(each)] = found_cluster
    files = {tenant.metadata.name: tenant for tenant in manifests.tenants}
    within = [each for each in (*manifests.others, *manifests.removed) if each.resource.namespaced]
    above = [await _tenant_of(client, each, files) for each in (*manifests.subnamespaces, *manifests.clusters, *within)]
    above += [each.metadata.name for each in manifests.others if isinstance(each, TenantResourceQuota)]
    if any(isinstance(each, TenancyDefaults) for each in (*manifests.others, *manifests.removed)):
        # They decide about every tenant.
        above += [each.metadata.name for each in await client.list(Tenant)]
    gone = {each.metadata.name for each in manifests.removed if isinstance(each, Tenant)}
    tenants: list[Tenant] = []
    for name in [each for each in dict.fromkeys([*files, *above]) if each not in gone]:
        found = None
        with suppress(NotFound):
            found = await client.get(Tenant, name)
        if name in files:
            before[_id(files[name])] = found
            tenants.append(_tenant(files[name], found))
        elif found is not None:
            tenants.append(found)
    return tenants, subnamespaces, before


def _defaults(manifests: Manifests) -> TenancyDefaults | UnsetType | None:
    """Return the TenancyDefaults as they would be: None for none, UNSET for those of the cluster."""
    wanted = next((each for each in manifests.others if isinstance(each, TenancyDefaults)), None)
    is_removed = any(isinstance(each, TenancyDefaults) for each in manifests.removed)
    return None if wanted is None and is_removed else wanted or UNSET


async def _take_template(client: Client, state: DriftInputs, given: ClusterTemplate) -> list[Preview]:
    """Put a template of a file in the place of the live one, and return its change."""
    live = None
    with suppress(NotFound):
        live = await client.get(ClusterTemplate, given.metadata.name)
    state.templates.put(_later(given, live), listed=0)
    return _own_change(given, live)


async def _take_other(client: Client, state: DriftInputs, given: KubernetesObject) -> list[Preview]:
    """Put an object of a file in the place of the live one, and return its change."""
    live = None
    with suppress(NotFound):
        live = await client.get(type(given), given.metadata.name, given.metadata.namespace)
    state.replace(_later(given, live))
    return _own_change(given, live)


async def _tenant_of(client: Client, child: KubernetesObject, files: Mapping[str, Tenant]) -> str:
    """Return the tenant of the namespace of an object.

    Raises:
        NotFound: The namespace does not exist, and no tenant of the files will have it.
        InputError: It does not belong to a tenant.
    """
    parent = child.metadata.namespace
    if parent in files:
        return parent
    try:
        labels = (await client.get(Namespace, parent)).metadata.labels
    except NotFound as error:
        raise NotFound(f"{child.resource.kind} {child.key!r}: there is no namespace {parent!r}") from error
    if not labels.get(TENANT):
        raise InputError(f"{child.resource.kind} {child.key!r}: the namespace {parent!r} does not belong to a tenant")
    return labels[TENANT]


def _id(found: KubernetesObject) -> tuple[Resource, str]:
    return found.resource, found.key


def _later(given: L, live: KubernetesObject | None) -> L:
    """Return an object with a version after that of the live one, in whose place it is in a cache."""
    version = str(live.version + 1) if live is not None else ""
    return msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, resource_version=version))


def _renewed(given: C, live: C | None) -> C:
    """Return a Subnamespace or a cluster as it would be: the live one with the spec of the file."""
    if live is not None:
        return msgspec.structs.replace(live, spec=given.spec)
    # A uid of its own, and the time: the quota serves the newest Subnamespace last.
    metadata = msgspec.structs.replace(
        given.metadata,
        uid=f"{UNKNOWN_UID}: {given.key}",
        creation_timestamp=rfc3339(datetime.now(UTC)),
        generation=1,
    )
    return msgspec.structs.replace(given, metadata=metadata)


def _tenant(given: Tenant, live: Tenant | None) -> Tenant:
    """Return a tenant as it would be: with its live uid, and the labels and annotations of both."""
    if live is None:
        return msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, uid=UNKNOWN_UID))
    metadata = msgspec.structs.replace(
        live.metadata,
        labels={**live.metadata.labels, **given.metadata.labels},
        annotations={**live.metadata.annotations, **given.metadata.annotations},
    )
    return msgspec.structs.replace(live, spec=given.spec, metadata=metadata)


# -- one tenant -----------------------------------------------------------------------------------


async def _drift(client: Client, state: DriftInputs, tenant: Tenant, before: Before) -> TenantDrift:
    name = tenant.metadata.name
    if tenant.metadata.deletion_timestamp:
        return TenantDrift(tenant=name, changes=(), blocked=())  # the operator corrects nothing during a deletion
    own = [(tenant, before[_id(tenant)])] if _id(tenant) in before else []
    has_core = state.namespaces.get(name) is not None
    if not has_core:
        # The children of a new tenant are not planned, but their Subnamespaces are part of the change.
        children = [each for each in state.subnamespaces if each.metadata.namespace == name and _id(each) in before]
        later = [change for each in children for change in _own_change(each, before[_id(each)])]
    else:
        later = []
    changes = [change for each in own for change in _own_change(*each)]
    blocked: list[Blocked] = []
    shown_keys: set[str] = set()
    copies: Copies = {}
    names = None if has_core else {each.key: _unknown_name(each) for each in state.subnamespaces}
    first, *others = plans(state, tenant, names)
    if not has_core:
        # The uid of the tenant decides the names of the objects below, so that only what refuses them is shown.
        blocked += [each for planned in others for each in _refusals(planned)]
        others = []
    for planned in (first, *others):
        subject = planned.subnamespace
        if subject is not None and _id(subject) in before and subject.key not in shown_keys:
            # A Subnamespace has two plans; its own change comes before the first.
            shown_keys.add(subject.key)
            changes += _own_change(subject, before[_id(subject)])
        found, trouble = await _previews(client, planned.plan, copies)
        changes += found
        blocked += _about(subject, trouble)
    for cluster in _clusters(state, name):
        if _id(cluster) in before:
            changes += _own_change(cluster, before[_id(cluster)])
        if cluster.metadata.deletion_timestamp:
            continue
        found, trouble = await _previews(client, cluster_plan(state, cluster), copies)
        changes += found
        told = f"DedicatedCluster {cluster.key!r}: "
        blocked += [msgspec.structs.replace(each, message=f"{told}{each.message}") for each in trouble]
    return TenantDrift(tenant=name, changes=(*changes, *later), blocked=tuple(blocked))


def _about(subject: Subnamespace | None, found: Sequence[Blocked]) -> list[Blocked]:
    where = f"Subnamespace {subject.key!r}: " if subject is not None else ""
    return [msgspec.structs.replace(each, message=f"{where}{each.message}") for each in found]


def _refusals(planned: Planned) -> list[Blocked]:
    """Return what keeps a Subnamespace of a new tenant from its namespace, whatever happens after the creation."""
    subject = planned.subnamespace
    # An administrator can mark a namespace for adoption only after the Subnamespace has a uid.
    if subject is None or subject.spec.adopt.namespace:
        return []
    return _about(subject, [each for each in planned.plan.blocked if not each.passing])


def _unknown_name(child: Subnamespace) -> str:
    meta = child.metadata
    return child.status.namespace or f"{meta.namespace}-{meta.name}-{UNKNOWN_DIGITS}"


def _clusters(state: DriftInputs, tenant: str) -> list[DedicatedCluster]:
    """Return the clusters in the namespaces of a tenant, by their keys."""
    namespaces = {tenant, *(each.name for each in state.namespaces.by_index(BY_TENANT, tenant))}
    found = [each for each in state.clusters if each.metadata.namespace in namespaces]
    return sorted(found, key=lambda each: each.key)


async def _previews(client: Client, plan: Plan, copies: Copies) -> tuple[list[Preview], list[Blocked]]:
    """Return what a plan changes, and what keeps the operator from the rest.

    Args:
        client: Of the cluster.
        plan: The plan.
        copies: The copies that earlier plans make; those of this plan are added.
    """
    found = [preview_write(write, await _live(client, write.request)) for write in plan.before]
    found += [
        preview_step(step, await _live(client, step) if step.action is not StepAction.CREATE else None)
        for wave in plan.waves
        for step in wave
    ]
    for step in (step for wave in plan.copies for step in wave):
        found.append(await _preview_copy(client, step, copies))
    blocked = list(plan.blocked)
    for write in plan.writes if not blocked else ():
        try:
            about = write if isinstance(write, Amendment) else write.request
            found.append(preview_write(write, await _live(client, about)))
        except TerminalError as error:
            blocked.append(Blocked(reason=error.reason, message=str(error)))
            break
    return [each for each in found if each is not None], blocked


async def _preview_copy(client: Client, step: CopyStep, copies: Copies) -> Preview | None:
    text = b""
    if step.source is not None:
        source = step.source
        # The source may itself be a copy that the cluster does not have yet.
        whole = copies.get((step.resource, source.key)) or await _get(
            client, step.resource, source.namespace, source.name
        )
        if whole is None:
            return None  # deleted since the state was read
        text = msgspec.json.encode(whole)
    found = preview_copy(step, text, await _live(client, step))
    if found is not None and found.after is not None:
        copies[step.resource, object_key(step.namespace, step.name)] = found.after
    return found


def _own_change(value: KubernetesObject, before: KubernetesObject | None) -> list[Preview]:
    """Return the change of the object itself: what `kubectl apply` of the file would do."""
    after, was = _shown(value), _shown(before) if before is not None else None
    if was == after:
        return []
    action = StepAction.CREATE if was is None else StepAction.UPDATE
    meta, kind = value.metadata, value.resource.kind
    return [Preview(action=action, kind=kind, namespace=meta.namespace, name=meta.name, before=was, after=after)]


def _shown(value: KubernetesObject) -> Json:
    whole: Json = msgspec.to_builtins(value)
    # The API server stores defaults: an empty map is the same as none.
    spec = {key: inner for key, inner in whole["spec"].items() if inner != {}}
    return shown(value.resource, {**whole, "spec": spec})


async def _live(client: Client, about: Step | CopyStep | Amendment | ApiRequest) -> Json | None:
    return await _get(client, about.resource, about.namespace, about.name)


async def _get(client: Client, resource: Resource, namespace: str, name: str) -> Json | None:
    try:
        data = await client.request("GET", wire.path(resource, namespace, name))
    except NotFound:
        return None
    return msgspec.json.decode(data, type=Json)
