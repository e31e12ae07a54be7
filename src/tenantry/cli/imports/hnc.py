"""The objects of the Hierarchical Namespace Controller (HNC), read from an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tenantry.api.errors import ConfigError, NotFound
from tenantry.api.kubernetes import RBAC_GROUP, LimitRange, Namespace, NetworkPolicy, RoleBinding
from tenantry.api.model import Model, ObjectMeta, Resource
from tenantry.kube.client import Client
from tenantry.world.hnc import objects as hnc
from tenantry.world.hnc.objects import (
    CountedQuota,
    HierarchicalResourceQuota,
    HierarchyConfiguration,
    HncConfiguration,
    HncObjects,
    MarkedObject,
    SubnamespaceAnchor,
)

ALWAYS = (Resource(RBAC_GROUP, "v1", "roles", "Role"), RoleBinding.resource)
"""Kinds that HNC always propagates."""

KNOWN = (
    *ALWAYS,
    LimitRange.resource,
    NetworkPolicy.resource,
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
)


class _Listed(Model, frozen=True, kw_only=True):
    """The metadata of an object: the data of Secrets is not decoded."""

    metadata: ObjectMeta


async def read(client: Client) -> HncObjects:
    """Return all objects of HNC.

    Raises:
        ConfigError: The cluster does not have HNC's kinds.
    """
    try:
        hierarchies = await client.list(HierarchyConfiguration)
        anchors = await client.list(SubnamespaceAnchor)
    except NotFound as error:
        raise ConfigError(
            f"this cluster does not have HNC's kinds ({hnc.GROUP}/{hnc.VERSION}); choose another one with --cluster,"
            " --kubeconfig or --context, or read files with -f"
        ) from error
    only = {"fieldSelector": f"metadata.name={hnc.QUOTA_NAME}"}
    configuration = next(iter([found async for found in _some(client, HncConfiguration)]), None)
    return HncObjects(
        namespaces={found.metadata.name: found for found in await client.list(Namespace)},
        anchors=anchors,
        hierarchies={found.metadata.namespace: found for found in hierarchies},
        # HNC before v1.1 has no quotas.
        quotas=[found async for found in _some(client, HierarchicalResourceQuota)],
        configuration=configuration,
        bindings=await client.list(RoleBinding),
        usage={
            found.metadata.namespace: found.status.used for found in await client.list(CountedQuota, selectors=only)
        },
        marked=[found async for found in _marked(client, configuration)],
    )


async def _some(client: Client, kind: type[hnc.K]) -> AsyncIterator[hnc.K]:
    """Yield the objects of a kind that the cluster may not have."""
    try:
        for found in await client.list(kind):
            yield found
    except NotFound:
        return


async def _marked(client: Client, configuration: HncConfiguration | None) -> AsyncIterator[MarkedObject]:
    """Yield the objects with an exception from propagation, of all kinds that HNC propagates."""
    known = {(kind.group, kind.plural): kind for kind in KNOWN}
    asked = {(kind.group, kind.plural): kind for kind in ALWAYS}
    for part in (configuration.spec, configuration.status) if configuration is not None else ():
        for each in part.resources:
            name = (each.group, each.resource)
            # The spec names resources without their versions; the status has both.
            found = known.get(name) or Resource(each.group, each.version, each.resource, each.resource)
            if found.version and each.mode in {"", "Propagate", "AllowPropagate"}:
                asked[name] = found
    for kind in asked.values():
        async for page in client.pages(kind, _Listed):
            for found in page.items:
                if hnc.is_marked(kind.kind, found.metadata):
                    yield MarkedObject(
                        api_version=kind.api_version, kind=kind.kind, plural=kind.plural, metadata=found.metadata
                    )
