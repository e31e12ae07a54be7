"""How far a tenant's tree is from what it should be: the division of its quota, and what is in each child namespace.

What children inherit of their parents' objects is not looked at.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError, TerminalError
from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT
from tenantry.api.model import ObjectMeta, Resource, object_key
from tenantry.api.node import Node
from tenantry.api.runtime import RuntimeClass
from tenantry.api.slice import Slice
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers import tenantnamespace, watched
from tenantry.controllers.network import ALONE, ClusterAddresses
from tenantry.controllers.nodes.addresses import around
from tenantry.controllers.quota import index as quota_index
from tenantry.controllers.quota import status as quota_status
from tenantry.controllers.quota.effective import effective_quota
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.controllers.runtime import sandbox_of
from tenantry.controllers.subnamespace import checks, desired
from tenantry.controllers.subnamespace import gather as child_gather
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Child, Plan, Step, compare
from tenantry.kube.client import Client
from tenantry.world.sandbox import NO_SANDBOX, Sandbox
from tenantry.world.shares.amounts import spelled
from tenantry.world.shares.division import Division
from tenantry.world.shares.tree import Tree


class Reading(msgspec.Struct, frozen=True):
    """One reading of the cluster.

    Args:
        tenants: As they are to be looked at.
        subnamespaces: All of them.
        tenant_quotas: The quotas of trees, by the tenant's name.
        slices: Which claims are charged against them.
        observed: What else there is, by kind.
        cluster_uid: The uid of the namespace kube-system.
        now: When it was read, with an offset.
        defaults: What holds for all tenants.
        around: What is around all tenants' networks.
        sandbox: What the cluster has.
    """

    tenants: Cache[Tenant]
    subnamespaces: Cache[Subnamespace]
    tenant_quotas: Cache[TenantResourceQuota]
    slices: Cache[Slice]
    now: dt.datetime
    observed: dict[Resource, Cache[Observed]] = {}
    cluster_uid: str = ""
    defaults: Cache[TenancyDefaults] | None = None
    around: ClusterAddresses = ALONE
    sandbox: Sandbox = NO_SANDBOX

    def has_tree(self, tenant: str) -> bool:
        """Tell whether a tenant's quota is divided, or about to be."""
        charged = any(found.spec.charge for found in self.slices.by_index(BY_TENANT, tenant))
        return (
            charged or self.tenant_quotas.get(tenant) is not None or self.subnamespaces.count(BY_NAMESPACE, tenant) > 0
        )


async def read(client: Client, tenants: list[Tenant], wanted: Mapping[str, Subnamespace]) -> Reading:
    """Read what says what trees there are; what is in them is still to be read.

    Args:
        client: Of the cluster.
        tenants: As they are to be looked at.
        wanted: Subnamespaces as they are to be looked at, by key; the others are as they are.
    """
    indexes = [each(lambda _: ()).indexes for each in (watched.subnamespaces, watched.slices)]
    found = Reading(Cache(), Cache(indexes[0]), Cache(), Cache(indexes[1]), dt.datetime.now(dt.UTC))
    for tenant in tenants:
        found.tenants.put(tenant)
    live = {each.key: each for each in await client.list(Subnamespace)}
    for subnamespace in ({**live, **wanted}).values():
        # Listed: what is not in the cluster yet has no version.
        found.subnamespaces.put(subnamespace, listed=0)
    for slice_ in await client.list(Slice):
        found.slices.put(slice_)
    for tenant_quota in await client.list(TenantResourceQuota):
        found.tenant_quotas.put(tenant_quota)
    defaults: Cache[TenancyDefaults] = Cache()
    for each in await client.list(TenancyDefaults):
        defaults.put(each)
    place = around(await client.list(Node), defaults.get(DEFAULTS))
    sandbox = sandbox_of(defaults.get(DEFAULTS), await client.list(RuntimeClass))
    return msgspec.structs.replace(found, defaults=defaults, around=place, sandbox=sandbox)


def plans(reading: Reading, tenant: Tenant) -> Iterator[tuple[Plan, SubnamespaceInputs | None]]:
    """Yield what would be written for a tenant's tree: its ResourceQuotas, then each child with what decided about it.

    Args:
        reading: Of the cluster.
        tenant: As it is, or is to become.

    Raises:
        InputError: The tenant's quota is wrong in a way that the CRD's schema did not catch.
    """
    tree = _divided(reading, tenant)
    yield _shares(reading, tenant, tree), None
    caches = child_gather.SubnamespaceCaches(
        reading.tenants, reading.subnamespaces, reading.observed, {}, reading.defaults, reading.sandbox
    )
    for subnamespace in sorted(reading.subnamespaces, key=lambda each: each.key):
        if subnamespace.metadata.deletion_timestamp:
            continue
        parent = reading.observed[Namespace.resource].get(subnamespace.metadata.namespace)
        if parent is None or parent.labels.get(TENANT) != tenant.metadata.name:
            continue
        verdict = _verdict(tree, subnamespace)
        inputs = child_gather.gather(
            *(subnamespace, caches, verdict),
            cluster_uid=reading.cluster_uid,
            now=reading.now,
            around=reading.around,
        )
        yield _child(reading, inputs), inputs


# -- quota ----------------------------------------------------------------------------------------


def _divided(reading: Reading, tenant: Tenant) -> Tree:
    tenant_quota = reading.tenant_quotas.get(tenant.metadata.name)
    caches = quota_index.QuotaCaches(
        tenants=reading.tenants,
        tenant_quotas=reading.tenant_quotas,
        slices=reading.slices,
        subnamespaces=reading.subnamespaces,
        namespaces=reading.observed[Namespace.resource],
        quotas=reading.observed[ResourceQuota.resource],
    )
    whole = effective_quota(tenant, tenant_quota, reading.now).hard
    known = quota_index.observed_tenant_quota(tenant_quota) if tenant_quota is not None else None
    index = quota_index.Index(tenant, whole, caches, tenant_quota=known)
    index.follow()
    Division(index.tree).divide()
    return index.tree


def _shares(reading: Reading, tenant: Tenant, tree: Tree) -> Plan:
    """Return the plan of the ResourceQuotas; the operator itself moves shares in an order of its own."""
    children: list[Child] = []
    for share in tree.shares.values():
        if tree.keys and share.namespace is not None and not share.namespace.terminating:
            # As it is once all that is to be made is there: what is kept for that is given away then.
            hard = {key: max(0, share.own[key] - share.reserved[key]) for key in tree.keys}
            children.append(_share(reading, tenant, share.namespace.name, spelled(hard)))
    return compare(children, lambda resource, key: reading.observed[resource].get(key))


def _share(reading: Reading, tenant: Tenant, namespace: str, hard: dict[str, str]) -> Child:
    found = reading.observed[ResourceQuota.resource].get(object_key(namespace, QUOTA))
    meta = ObjectMeta(
        name=QUOTA,
        namespace=namespace,
        labels=found.labels if found is not None else {MANAGED_BY: MANAGER, TENANT: tenant.metadata.name},
        annotations=found.annotations if found is not None else {},
    )
    return Child(
        object=ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard=hard)), wave=tenantnamespace.WAVE_LIMITS
    )


def _verdict(tree: Tree, subnamespace: Subnamespace) -> ShareVerdict | None:
    share = tree.shares.get(subnamespace.metadata.uid)
    return quota_status.verdict(tree, share) if share is not None else None


# -- children -------------------------------------------------------------------------------------


def _child(reading: Reading, inputs: SubnamespaceInputs) -> Plan:
    tenant = inputs.tenant
    try:
        blocked = checks.blocked(inputs)
        children = desired.children(inputs, tenant) if tenant is not None else []
    except (InputError, TerminalError) as error:
        return Plan(waves=(), blocked=(Blocked(reason=reasons.INVALID_SPEC, message=str(error)),))
    if blocked is not None:
        return Plan(waves=(), blocked=(blocked,))
    assigned = inputs.verdict.totals.assigned if inputs.verdict is not None else {}
    if tenant is not None and inputs.bound is None and inputs.adoptee is None and assigned:
        children.append(_share(reading, tenant, inputs.namespace, dict(assigned)))
    wanted = {(child.object.resource, child.object.key) for child in children}
    return compare(
        children,
        lambda resource, key: reading.observed[resource].get(key),
        stale=[each for each in child_gather.made_inside(inputs, reading.observed) if _key(each) not in wanted],
    )


def _key(found: tuple[Resource, Observed]) -> tuple[Resource, str]:
    return found[0], found[1].key


def without_shares(whole: Plan) -> Plan:
    """Leave out the ResourceQuota of the core namespace: where there is a tree, it is a share like others."""

    def is_share(step: Step) -> bool:
        return step.resource == ResourceQuota.resource

    waves: list[tuple[Any, ...]] = [tuple(step for step in wave if not is_share(step)) for wave in whole.waves]
    return msgspec.structs.replace(whole, waves=tuple(wave for wave in waves if wave))
