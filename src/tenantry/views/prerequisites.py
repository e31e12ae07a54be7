"""What a cluster has of all that Tenantry uses, and what is missing without it: `tenantry install --check`."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import ClusterNetworkPolicy
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.runtime import RuntimeClass
from tenantry.api.wording import shortened
from tenantry.engine.tasks import all_of
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.version import has_mutating_policies, require_supported

STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
_METRICS = "v1beta1.metrics.k8s.io"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


class Prerequisite(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One part of a cluster.

    Args:
        name: Of the part.
        is_there: Whether the cluster has it.
        detail: Which ones it has, or what does not work without it.
    """

    name: str
    is_there: bool
    detail: str


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Availability(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Aggregated(msgspec.Struct, frozen=True):
    status: _Availability = _Availability()


async def prerequisites(client: Client) -> list[Prerequisite]:
    """Return the parts that Tenantry uses, in a fixed order.

    Args:
        client: Of the user; what it may not read counts as missing, with the reason.

    Raises:
        ConfigError: The API server is older than Tenantry supports, or has no validating policies.
    """
    version = await require_supported(client)
    has_mutating = await has_mutating_policies(client)
    return [
        Prerequisite(name="Kubernetes", is_there=True, detail=version.git_version),
        Prerequisite(name="ValidatingAdmissionPolicy v1", is_there=True, detail="enforces rules"),
        Prerequisite(
            name="MutatingAdmissionPolicy v1",
            is_there=has_mutating,
            detail="changes objects" if has_mutating else "the operator serves the same changes as a webhook",
        ),
        *await all_of(
            [
                _readable("ClusterNetworkPolicy", _network(client)),
                _readable("RuntimeClasses", _runtimes(client)),
                _readable("StorageClasses", _storage(client)),
                _readable("metrics", _metrics(client)),
            ]
        ),
    ]


async def _readable(name: str, found: Awaitable[tuple[bool, str]]) -> Prerequisite:
    try:
        is_there, detail = await found
    except Forbidden as error:
        is_there, detail = False, f"not known: {error}"
    return Prerequisite(name=name, is_there=is_there, detail=detail)


async def _network(client: Client) -> tuple[bool, str]:
    try:
        await client.count(ClusterNetworkPolicy.resource)
    except NotFound:
        return False, "NetworkPolicies isolate tenants: their owners can add others, which policies check"
    return True, "isolates tenants"


async def _runtimes(client: Client) -> tuple[bool, str]:
    names = [each.metadata.name for each in await client.list(RuntimeClass)]
    if not names:
        return False, "isolation.runtime of a Tenant cannot be Sandboxed"
    return True, shortened(sorted(names))


async def _storage(client: Client) -> tuple[bool, str]:
    found = [each async for each in client.items(STORAGE_CLASSES, _Named)]
    if not found:
        return False, "PersistentVolumeClaims of tenants stay Pending"
    default = [each.metadata.name for each in found if each.metadata.annotations.get(_IS_DEFAULT) == "true"]
    names = shortened(sorted(each.metadata.name for each in found))
    return True, f"{names}; {f'default {shortened(sorted(default))}' if default else 'no default'}"


async def _metrics(client: Client) -> tuple[bool, str]:
    lacks = "`kubectl top` and HorizontalPodAutoscalers do not work, in virtual control planes neither"
    try:
        answer = await client.request("GET", wire.path(_API_SERVICES, "", _METRICS))
    except NotFound:
        return False, lacks
    conditions = msgspec.json.decode(answer, type=_Aggregated).status.conditions
    is_available = _Condition("Available", "True") in conditions
    return is_available, "metrics.k8s.io" if is_available else f"APIService {_METRICS} is not Available: {lacks}"
