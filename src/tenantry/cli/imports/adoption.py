"""Adopts existing namespaces into a tenant unchanged: the part of `tenantry import … --apply` that writes.

For each tree, this module marks exceptions from inheritance, creates the Tenant and gives it its namespace, and then,
level by level, creates the Subnamespaces and gives them theirs. The mark of an administrator on a namespace gives it
away. The operator waits for this mark, and changes nothing in the namespace before. Every step reads first, so that a
repeated run continues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.errors import AlreadyExists, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, KubernetesObject, Model, OwnerReference, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli import output
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.wait import wait_for_all
from tenantry.kube.client import Client
from tenantry.views.discovery import Discovery
from tenantry.world.hnc.exceptions import InheritException
from tenantry.world.hnc.plan import ImportedChild, ImportedTree, ImportPlan

NEXT = (
    "HNC's own marks and copies are as they were. When all is well:",
    "  kubectl delete roles,rolebindings -A -l hnc.x-k8s.io/inherited-from   # its copies; likewise other kinds",
    "  kubectl delete resourcequotas -A -l hnc.x-k8s.io/hrq                  # its quotas",
    "  kubectl get subnamespaceanchors,hierarchyconfigurations -A            # take off their finalizers, delete them",
)

WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
HNC_NAMESPACE = "hnc-system"
HNC_WEBHOOKS = "hnc-validating-webhook-configuration"


class _Replicas(Model, frozen=True, kw_only=True):
    replicas: int = 1


class _Deployment(KubernetesObject, frozen=True, kw_only=True):
    resource = DEPLOYMENTS
    spec: _Replicas = _Replicas()


async def adopt(client: Client, plan: ImportPlan, *, seconds: float) -> None:
    """Carry out a plan.

    Args:
        client: The client of an administrator.
        plan: The plan.
        seconds: How long to wait for each tenant, and for each level of its tree.

    Raises:
        InputError: HNC still runs, or a namespace belongs to another tenant.
        TenantryError: An object is not ready in time; the message says what it waits for.
    """
    await _check_hnc_is_stopped(client)
    cluster_uid = (await client.get(Namespace, "kube-system")).metadata.uid
    for tree in plan.trees:
        # All namespaces of a tree are checked before the first is changed.
        await _check(client, tree)
    for exempt in plan.exceptions:
        await _mark(client, exempt)
    for tree in plan.trees:
        await _adopt_root(client, tree.tenant, cluster_uid, seconds=seconds)
        for level in _levels(tree):
            await _adopt_level(client, level, seconds=seconds)


async def _check_hnc_is_stopped(client: Client) -> None:
    """Check that HNC is stopped: it would propagate our bindings, and its webhooks would reject those below.

    Raises:
        InputError: HNC runs, or its webhooks exist.
    """
    running = [found for found in await client.list(_Deployment, namespace=HNC_NAMESPACE) if found.spec.replicas]
    try:
        await client.request("GET", f"/apis/{WEBHOOKS.api_version}/{WEBHOOKS.plural}/{HNC_WEBHOOKS}")
        hooked = True
    except NotFound:
        hooked = False
    if running or hooked:
        raise InputError(
            "HNC still works here, and would work against Tenantry: stop it first, which changes nothing else, with"
            f" `kubectl -n {HNC_NAMESPACE} scale deployment --all --replicas=0` and"
            f" `kubectl delete validatingwebhookconfiguration {HNC_WEBHOOKS}`"
        )


async def _check(client: Client, tree: ImportedTree) -> None:
    root = tree.tenant.metadata.name
    for name in [root, *(child.namespace for child in tree.children)]:
        try:
            namespace = await client.get(Namespace, name)
        except NotFound as error:
            raise InputError(f"there is no namespace {name!r} in this cluster") from error
        if namespace.metadata.deletion_timestamp:
            raise InputError(f"the namespace {name!r} is being deleted")
        owner = namespace.metadata.labels.get(marks.TENANT, root)
        if owner != root:
            raise InputError(f"the namespace {name!r} belongs to the tenant {owner!r} already")
        controllers = [each for each in namespace.metadata.owner_references if each.controller]
        if any(each.kind != Tenant.resource.kind for each in controllers):
            told = f"{controllers[0].kind} {controllers[0].name!r}"
            raise InputError(f"the namespace {name!r} is controlled by {told}, and cannot have a second controller")


async def _mark(client: Client, exempt: InheritException) -> None:
    """Write the exception on an object, unless it has one already, before objects below can inherit it."""
    source = exempt.source
    if marks.INHERIT in source.metadata.annotations:
        return
    group, _, version = source.api_version.rpartition("/")
    # Objects of files have no plural.
    resource = (
        Resource(group, version, source.plural, source.kind)
        if source.plural
        else await Discovery(client).by_kind(source.api_version, source.kind)
    )
    patch = {"metadata": {"annotations": {marks.INHERIT: exempt.inherit}}}
    try:
        await client.merge_patch(resource, source.metadata.namespace, source.metadata.name, patch)
    except NotFound:
        return
    output.talk(f"{source.told}: {marks.INHERIT}={exempt.inherit}")


# -- the root -------------------------------------------------------------------------------------


async def _adopt_root(client: Client, wanted: Tenant, cluster_uid: str, *, seconds: float) -> None:
    name = wanted.metadata.name
    try:
        tenant = msgspec.json.decode(await client.create(wanted), type=Tenant)
        output.talk(f"tenant {name!r}: created")
    except AlreadyExists:
        tenant = await client.get(Tenant, name)  # created by an earlier run, or by an administrator
    owner = OwnerReference(
        api_version=tenant.resource.api_version,
        kind=tenant.resource.kind,
        name=name,
        uid=tenant.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    namespace = await client.get(Namespace, name)
    # A deleted tenant of the same name may have left a reference to its uid.
    others = [each for each in namespace.metadata.owner_references if each.kind != Tenant.resource.kind]
    if owner not in namespace.metadata.owner_references:
        labels = {
            marks.MANAGED_BY: marks.MANAGER,
            marks.TENANT: name,
            marks.TENANT_UID: tenant.metadata.uid,
            marks.CLUSTER_UID: cluster_uid,
            marks.KIND: marks.KIND_CORE,
            f"{name}{marks.TREE_SUFFIX}": "0",
        }
        await _patch(client, namespace, {"labels": labels, "ownerReferences": [*others, owner]})
        output.talk(f"namespace {name!r}: is the tenant's")
    await wait_for_all(client, [ObjectSelection(Tenant, (name,))], seconds=seconds)


async def _patch(client: Client, namespace: Namespace, metadata: Json) -> None:
    meta = namespace.metadata
    guarded = {"metadata": {**metadata, "uid": meta.uid, "resourceVersion": meta.resource_version}}
    await client.merge_patch(Namespace.resource, "", meta.name, guarded)


# -- below it -------------------------------------------------------------------------------------


def _levels(tree: ImportedTree) -> list[list[ImportedChild]]:
    depth = {tree.tenant.metadata.name: 0}
    levels: list[list[ImportedChild]] = []
    for child in tree.children:  # parents come before their children
        level = depth[child.subnamespace.metadata.namespace]
        depth[child.namespace] = level + 1
        if level == len(levels):
            levels.append([])
        levels[level].append(child)
    return levels


async def _adopt_level(client: Client, level: Sequence[ImportedChild], *, seconds: float) -> None:
    for child in level:
        meta = child.subnamespace.metadata
        try:
            made = msgspec.json.decode(await client.create(child.subnamespace), type=Subnamespace)
            output.talk(f"subnamespace {made.key!r}: created for the namespace {child.namespace!r}")
        except AlreadyExists:
            made = await client.get(Subnamespace, meta.name, meta.namespace)
            if made.spec.adopt.namespace != child.namespace:
                raise InputError(
                    f"there is a Subnamespace {made.key!r} already, for another namespace than {child.namespace!r}"
                ) from None
        namespace = await client.get(Namespace, child.namespace)
        # The mark of an administrator: owners may not set labels of Tenantry.
        if namespace.metadata.labels.get(marks.SUBNAMESPACE_UID) != made.metadata.uid:
            await _patch(client, namespace, {"labels": {marks.SUBNAMESPACE_UID: made.metadata.uid}})
    names: dict[str, list[str]] = defaultdict(list)
    for child in level:
        names[child.subnamespace.metadata.namespace].append(child.subnamespace.metadata.name)
    selections = [ObjectSelection(Subnamespace, tuple(each), namespace) for namespace, each in names.items()]
    await wait_for_all(client, selections, seconds=seconds)
