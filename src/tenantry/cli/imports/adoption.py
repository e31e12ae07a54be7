"""Adopts existing namespaces into a tenant unchanged: the part of `tenantry import … --apply` and `adopt` that writes.

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
from tenantry.api.errors import AlreadyExists, Conflict, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, OwnerReference, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli import output
from tenantry.cli.imports.record import ImportRecord, record_of, written
from tenantry.cli.imports.running import check_stopped
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.wait import wait_for_all
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.views.discovery import Discovery
from tenantry.views.restored import TenantAdoption
from tenantry.world.imports.form import (
    ImportedChild,
    ImportedObject,
    ImportedTree,
    ImportPlan,
    InheritException,
)
from tenantry.world.imports.objects import ImportTool


async def adopt(client: Client, plan: ImportPlan, source: ImportTool, *, seconds: float) -> None:
    """Carry out a plan.

    Args:
        client: The client of an administrator.
        plan: The plan.
        source: The other tool.
        seconds: How long to wait for each tenant, and for each level of its tree.

    Raises:
        InputError: The other tool still runs, or a namespace belongs to another tenant.
        TenantryError: An object is not ready in time; the message says what it waits for.
    """
    await check_stopped(client, source.title, source.controllers)
    cluster_uid = (await client.get(Namespace, "kube-system")).metadata.uid
    for tree in plan.trees:
        # All namespaces of all trees are checked before the first is changed.
        await _check(client, tree, source)
    for exempt in plan.exceptions:
        await _mark(client, exempt)
    for tree in plan.trees:
        await _adopt_root(client, tree, source, cluster_uid, seconds=seconds)
        for value in tree.objects:
            if value.namespace == tree.tenant.metadata.name:
                await _create(client, value, source)
        for level in _levels(tree):
            await _adopt_level(client, level, tree.tenant.metadata.name, source, seconds=seconds)
        for value in tree.objects:
            if value.namespace != tree.tenant.metadata.name:
                await _create(client, value, source)


async def _check(client: Client, tree: ImportedTree, source: ImportTool) -> None:
    root = tree.tenant.metadata.name
    for name in tree.namespaces:
        try:
            namespace = await client.get(Namespace, name)
        except NotFound as error:
            raise InputError(f"there is no namespace {name!r} in this cluster") from error
        if namespace.metadata.deletion_timestamp:
            raise InputError(f"the namespace {name!r} is being deleted")
        owner = namespace.metadata.labels.get(marks.TENANT, root)
        if owner != root:
            raise InputError(f"the namespace {name!r} belongs to the tenant {owner!r} already")
        for reference in namespace.metadata.owner_references:
            if reference.controller and not is_tenant(reference) and not is_of(reference, source):
                told = f"{reference.kind} {reference.name!r}"
                raise InputError(f"the namespace {name!r} is controlled by {told}, and cannot have a second controller")
    if not tree.has_core:
        await _check_core_is_free(client, root)


async def _check_core_is_free(client: Client, root: str) -> None:
    """Check that the core namespace, which the operator creates, does not exist, or is the tenant's.

    Raises:
        InputError: It belongs to none, or to another tenant.
    """
    try:
        namespace = await client.get(Namespace, root)
    except NotFound:
        return
    if namespace.metadata.labels.get(marks.TENANT) != root or not any(
        map(is_tenant, namespace.metadata.owner_references)
    ):
        raise InputError(
            f"there is a namespace {root!r} that does not belong to the tenant to import, and a Tenant's core namespace"
            " has the Tenant's name: make it a namespace of this tenant in the other tool, or delete it"
        )


def is_tenant(reference: OwnerReference) -> bool:
    """Return whether an owner is a Tenant of Tenantry, existing or not."""
    return reference.kind == Tenant.resource.kind and reference.api_version == Tenant.resource.api_version


def is_of(reference: OwnerReference, source: ImportTool) -> bool:
    """Return whether an owner belongs to the other tool."""
    return (reference.api_version.rpartition("/")[0], reference.kind) in source.owners


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


async def _adopt_root(
    client: Client, tree: ImportedTree, source: ImportTool, cluster_uid: str, *, seconds: float
) -> None:
    name = tree.tenant.metadata.name
    wanted = msgspec.structs.replace(
        tree.tenant,
        metadata=msgspec.structs.replace(tree.tenant.metadata, annotations={marks.IMPORTED: source.name}),
    )
    try:
        tenant = msgspec.json.decode(await client.create(wanted), type=Tenant)
        output.talk(f"tenant {name!r}: created")
    except AlreadyExists:
        tenant = await client.get(Tenant, name)  # created by an earlier run, or by an administrator
    if tree.has_core:
        await _give_core(client, tenant, cluster_uid, source)
    await wait_for_all(client, [ObjectSelection(Tenant, (name,))], seconds=seconds)


async def _give_core(client: Client, tenant: Tenant, cluster_uid: str, source: ImportTool | None = None) -> None:
    """Make a namespace the core namespace of the tenant of its name."""
    name = tenant.metadata.name
    owner = OwnerReference(
        api_version=tenant.resource.api_version,
        kind=tenant.resource.kind,
        name=name,
        uid=tenant.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    namespace = await client.get(Namespace, name)
    if owner in namespace.metadata.owner_references:
        return
    labels = {
        marks.MANAGED_BY: marks.MANAGER,
        marks.TENANT: name,
        marks.TENANT_UID: tenant.metadata.uid,
        marks.CLUSTER_UID: cluster_uid,
        marks.KIND: marks.KIND_CORE,
        f"{name}{marks.TREE_SUFFIX}": "0",
    }
    await _patch(client, namespace, _taken(namespace, name, source, labels, [owner]))
    output.talk(f"namespace {name!r}: is the tenant's")


def _taken(
    namespace: Namespace,
    tenant: str,
    source: ImportTool | None,
    labels: dict[str, str],
    owners: Sequence[OwnerReference],
) -> Json:
    """Return the metadata by which a namespace changes hands: one write with the record that undoes it.

    Without another tool, the namespace was the tenant's before, and there is nothing to undo.
    """
    # A deleted tenant of the same name may have left a reference to its uid.
    before = [each for each in namespace.metadata.owner_references if not is_tenant(each)]
    removed = tuple(each for each in before if source is not None and is_of(each, source))
    change: Json = {"labels": labels, "ownerReferences": [*(each for each in before if each not in removed), *owners]}
    if source is not None and record_of(namespace) is None:
        record = ImportRecord(source=source.name, tenant=tenant, owner_references=removed)
        change["annotations"] = {marks.IMPORTED: written(record)}
    return change


async def _patch(client: Client, namespace: Namespace, metadata: Json) -> None:
    meta = namespace.metadata
    guarded = {"metadata": {**metadata, "uid": meta.uid, "resourceVersion": meta.resource_version}}
    await client.merge_patch(Namespace.resource, "", meta.name, guarded)


# -- after a restore ------------------------------------------------------------------------------


async def rebind(client: Client, found: TenantAdoption, cluster_uid: str) -> None:
    """Bind the restored namespaces of a tenant, the lowest first.

    Raises:
        Conflict: Another client changed a namespace, or its Tenant, since the plan: repeat the command.
    """
    tenant = await client.get(Tenant, found.tenant)
    for each in found.namespaces:
        if each.kind == Tenant.resource.kind:
            if each.uid != tenant.metadata.uid:
                raise Conflict(f"tenant {found.tenant!r} was created again meanwhile: repeat the command")
            await _give_core(client, tenant, cluster_uid)
            continue
        labels = {
            marks.TENANT_UID: tenant.metadata.uid,
            marks.CLUSTER_UID: cluster_uid,
            marks.SUBNAMESPACE_UID: each.uid,
        }
        await _patch(client, await client.get(Namespace, each.namespace), {"labels": labels})
        output.talk(f"namespace {each.namespace!r}: is that of subnamespace {each.key!r}")


async def wait_for_bound(client: Client, adopted: Sequence[TenantAdoption], *, seconds: float) -> None:
    """Wait until adopted tenants and their Subnamespaces are ready.

    Raises:
        TenantryError: The deadline has passed; the message lists what is not ready.
    """
    names: dict[str, list[str]] = defaultdict(list)
    for each in (each for found in adopted for each in found.namespaces):
        namespace, _, name = each.key.rpartition("/")
        names[namespace].append(name)
    tenants = ObjectSelection(Tenant, tuple(each.tenant for each in adopted))
    below = [ObjectSelection(Subnamespace, tuple(each), namespace) for namespace, each in names.items() if namespace]
    await wait_for_all(client, [tenants, *below], seconds=seconds)


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


async def _adopt_level(
    client: Client, level: Sequence[ImportedChild], tenant: str, source: ImportTool, *, seconds: float
) -> None:
    for child in level:
        meta = child.subnamespace.metadata
        try:
            # First: admission refuses to create one whose share is given out, and does not report that it exists.
            made = await client.get(Subnamespace, meta.name, meta.namespace)
        except NotFound:
            made = msgspec.json.decode(await client.create(child.subnamespace), type=Subnamespace)
            output.talk(f"subnamespace {made.key!r}: created for the namespace {child.namespace!r}")
        if made.spec.adopt.namespace != child.namespace:
            raise InputError(
                f"there is a Subnamespace {made.key!r} already, for another namespace than {child.namespace!r}"
            )
        namespace = await client.get(Namespace, child.namespace)
        # The mark of an administrator: owners may not set labels of Tenantry.
        if namespace.metadata.labels.get(marks.SUBNAMESPACE_UID) != made.metadata.uid:
            label = {marks.SUBNAMESPACE_UID: made.metadata.uid}
            await _patch(client, namespace, _taken(namespace, tenant, source, label, []))
    names: dict[str, list[str]] = defaultdict(list)
    for child in level:
        names[child.subnamespace.metadata.namespace].append(child.subnamespace.metadata.name)
    selections = [ObjectSelection(Subnamespace, tuple(each), namespace) for namespace, each in names.items()]
    await wait_for_all(client, selections, seconds=seconds)


async def _create(client: Client, value: ImportedObject, source: ImportTool) -> None:
    """Create an object, unless it exists: its name depends on its content."""
    document = value.document
    document["metadata"] = {"name": value.name, "namespace": value.namespace, "labels": {marks.IMPORTED: source.name}}
    try:
        await client.request("POST", wire.path(value.resource, value.namespace), body=wire.encode_json(document))
    except AlreadyExists:
        return
    output.talk(f"{value.resource.kind.lower()} {value.namespace}/{value.name}: created")
