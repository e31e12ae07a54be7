"""What a Subnamespace's child is made of: pure. The order of writing is the order of safety, as for a tenant."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.subnamespace import Mode
from tenantry.api.tenant import Tenant
from tenantry.controllers import network, tenancyrules, tenantnamespace
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.controllers.tenantnamespace import TenantNamespace
from tenantry.engine.observed import is_ours
from tenantry.engine.plan import Child
from tenantry.world import quota


def children(inputs: SubnamespaceInputs, tenant: Tenant) -> list[Child]:
    """Return everything that the child should have, whole; its quota and what it inherits are others' work.

    Args:
        inputs: What is known.
        tenant: The tenant of the tree.

    Raises:
        InputError: A quantity is wrong in a way that the CRD's schema did not catch.
    """
    namespace = TenantNamespace(
        tenant=tenant,
        name=inputs.namespace,
        owners=inputs.owners,
        hard=_limits_of(inputs, tenant),
        suspended=tenant.spec.suspended,
    )
    rules = tenancyrules.render(namespace, inputs.defaults, inputs.above, inputs.sandbox)
    return [
        _namespace(inputs, tenant, rules.labels),
        *rules.children,
        *tenantnamespace.limits(namespace),
        *network.policies(namespace, inputs.zone, inputs.around),
        tenantnamespace.owner_binding(namespace),
    ]


def _limits_of(inputs: SubnamespaceInputs, tenant: Tenant) -> dict[str, str]:
    """Return what the containers' defaults must fit in: the child's own quota, else the tenant's."""
    asked = quota.normal(inputs.subnamespace.spec.quota.hard)
    return {key: asked.get(key, whole) for key, whole in quota.normal(tenant.spec.quota.hard).items()}


def _namespace(inputs: SubnamespaceInputs, tenant: Tenant, marked: dict[str, str]) -> Child:
    subnamespace = inputs.subnamespace
    spec, meta = subnamespace.spec, subnamespace.metadata
    accepted = {meta.uid}
    if inputs.adopted_from is not None:
        accepted.add(inputs.adopted_from.metadata.uid)
    depth = len(inputs.ancestors)
    labels = {
        **spec.labels,
        marks.MANAGED_BY: marks.MANAGER,
        marks.KIND: marks.KIND_WORKSPACE if spec.mode is Mode.WORKSPACE else marks.KIND_SUBTENANT,
        marks.TENANT: tenant.metadata.name,
        marks.TENANT_UID: tenant.metadata.uid,
        marks.CLUSTER_UID: inputs.cluster_uid,
        **network.labels(tenant, inputs.zone),
        marks.PARENT: meta.namespace,
        marks.SUBNAMESPACE: meta.name,
        marks.SUBNAMESPACE_UID: meta.uid,
        **{f"{name}{marks.TREE_SUFFIX}": str(depth - level) for level, name in enumerate(inputs.ancestors)},
        f"{inputs.namespace}{marks.TREE_SUFFIX}": "0",
        **({marks.SUSPENDED: "true"} if tenant.spec.suspended else {}),
        **marked,
    }
    annotations = {
        **spec.annotations,
        **_given(marks.GIVEN_LABELS, spec.labels),
        **_given(marks.GIVEN_ANNOTATIONS, spec.annotations),
        **network.allowances(tenant),
    }
    return Child(
        object=Namespace(metadata=ObjectMeta(name=inputs.namespace, labels=labels, annotations=annotations)),
        wave=tenantnamespace.WAVE_NAMESPACE,
        marks={marks.SUBNAMESPACE_UID: frozenset(accepted)},
    )


def _given(mark: str, keys: Iterable[str]) -> dict[str, str]:
    """Return the annotation that tells of keys without our prefix that they are the Subnamespace's."""
    others = sorted(key for key in keys if not is_ours(key))
    return {mark: ",".join(others)} if others else {}
