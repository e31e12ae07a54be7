"""Gives namespaces back, or ends the time in which that is possible: `tenantry import … --undo` and `--commit`.

An undo runs from the lowest Subnamespaces up. The order keeps the operator from deleting a namespace with its
Subnamespace:

1. One write takes all marks of Tenantry off the namespaces. The operator reports CannotAdopt: it lets go of them.
2. The finalizer is removed, and the Subnamespace is deleted at that resourceVersion. So it ends at once, without the
   step in which the operator would delete a namespace. If the operator wrote in between, the undo begins again at 1.
3. What Tenantry created in the namespaces is deleted.
4. The owner references of the other tool return, of owners that still exist: with one of a missing owner, the garbage
   collector would delete the namespace. The record goes last, so that an interrupted undo continues.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TypeVar

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import Conflict, InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, KubernetesObject, Model, ObjectMeta, OwnerReference, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.cli import output
from tenantry.cli.delete import remove
from tenantry.cli.following import follow, only
from tenantry.cli.imports.adoption import is_tenant
from tenantry.cli.imports.record import record_of, source_of
from tenantry.cli.wait import conditions_of
from tenantry.controllers.tenantnamespace import RULES
from tenantry.engine.conditions import find
from tenantry.engine.observed import is_ours
from tenantry.engine.reader import Reader
from tenantry.kube.client import Client
from tenantry.world.imports.objects import ImportSource, ImportTool

K = TypeVar("K", bound=KubernetesObject)

ATTEMPTS = 10
"""How often a level begins again because the operator wrote in between."""


class _Listed(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta


class UndoneTree(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant whose import is not committed.

    Args:
        tenant: The Tenant; None if an earlier undo has deleted it.
        name: Its name.
        namespaces: The namespaces with a record, by name.
        levels: The Subnamespaces of these namespaces, the lowest ones first.
    """

    tenant: Tenant | None
    name: str
    namespaces: dict[str, Namespace]
    levels: list[list[Subnamespace]]


async def undoable(client: Client, tool: ImportTool, roots: Sequence[str]) -> list[UndoneTree]:
    """Return the tenants that a tool's import created and did not commit.

    Args:
        client: The client of an administrator.
        tool: The other tool.
        roots: Their names; () for all.

    Raises:
        InputError: A requested one was not imported, or was committed.
    """
    namespaces: defaultdict[str, dict[str, Namespace]] = defaultdict(dict)
    for namespace in await client.list(Namespace):
        record = record_of(namespace)
        if record is not None and record.source == tool.name:
            namespaces[record.tenant][namespace.metadata.name] = namespace
    tenants = {each.metadata.name: each for each in await client.list(Tenant) if source_of(each) == tool.name}
    known = sorted({*namespaces, *tenants})
    unknown = sorted(set(roots) - set(known))
    if unknown:
        raise InputError(
            f"the tenant {unknown[0]!r} was not imported from {tool.title}, or its import was committed; there are"
            f" {shortened(map(repr, known)) or 'none'}"
        )
    subnamespaces = await client.list(Subnamespace)
    chosen = [name for name in known if not roots or name in roots]
    return [_tree(name, tenants.get(name), namespaces.get(name, {}), subnamespaces) for name in chosen]


def _tree(
    name: str, tenant: Tenant | None, namespaces: dict[str, Namespace], subnamespaces: Sequence[Subnamespace]
) -> UndoneTree:
    """Return a tree with the levels of its Subnamespaces.

    Raises:
        InputError: It has a Subnamespace that the import did not create.
    """
    by_parent: defaultdict[str, list[Subnamespace]] = defaultdict(list)
    for each in subnamespaces:
        by_parent[each.metadata.namespace].append(each)
    levels: list[list[Subnamespace]] = []
    above = [name]
    while above:
        level = [each for parent in above for each in by_parent.pop(parent, [])]
        others = [each.key for each in level if each.spec.adopt.namespace not in namespaces]
        if others:
            raise InputError(
                f"the tenant {name!r} has namespaces that the import did not adopt: {shortened(others)}; delete these"
                " Subnamespaces first, or commit the import"
            )
        above = [each.spec.adopt.namespace for each in level]
        if level:
            levels.append(level)
    return UndoneTree(tenant=tenant, name=name, namespaces=namespaces, levels=levels[::-1])


async def commit(client: Client, trees: Sequence[UndoneTree]) -> None:
    """Remove the records: the imports cannot be undone any more."""
    for tree in trees:
        for namespace in tree.namespaces.values():
            await _annotate(client, Namespace.resource, namespace.metadata)
        if tree.tenant is not None:
            # Last: an interrupted commit continues.
            await _annotate(client, Tenant.resource, tree.tenant.metadata)
        output.talk(f"tenant {tree.name!r}: its import is committed")


async def _annotate(client: Client, resource: Resource, meta: ObjectMeta) -> None:
    patch = {"metadata": {"uid": meta.uid, "annotations": {marks.IMPORTED: None}}}
    await client.merge_patch(resource, "", meta.name, patch)


# -- undo -----------------------------------------------------------------------------------------


async def undo(client: Client, source: ImportTool, trees: Sequence[UndoneTree], *, seconds: float) -> None:
    """Give the namespaces of tenants back, and delete the tenants.

    Args:
        client: The client of an administrator.
        source: The other tool.
        trees: The tenants.
        seconds: How long to wait for the operator at each level.

    Raises:
        InputError: The core namespace did not exist before the import, and is in use.
        TenantryError: The operator did not let go of a namespace in time.
    """
    kinds = await _kinds(client)
    for tree in trees:
        await _check_core(client, tree, kinds)
    for tree in trees:
        for level in tree.levels:
            await _release_level(client, level, seconds=seconds)
        await _release_core(client, tree, seconds=seconds)
        await _clean(client, tree, kinds)
        for name in tree.namespaces:
            await _return(client, source, name)
        output.talk(f"tenant {tree.name!r}: its import is undone")


async def _kinds(client: Client) -> list[Resource]:
    found = await Reader(client).kinds()
    return [kind for kind in found if kind.namespaced]


async def _check_core(client: Client, tree: UndoneTree, kinds: Sequence[Resource]) -> None:
    """Check that the deletion of the Tenant deletes nothing of its users with a core namespace that is new."""
    if tree.tenant is None or tree.name in tree.namespaces:
        return
    for kind in kinds:
        if kind.full_name in _NOT_THEIRS:
            continue
        for found in await _listed(client, kind, tree.name):
            if marks.IMPORTED in found.metadata.labels or _is_ours(found.metadata, tree.name):
                continue
            if found.metadata.name in _MADE_EVERYWHERE or found.metadata.owner_references:
                continue
            raise InputError(
                f"the core namespace {tree.name!r}, which the import created, has the {kind.kind}"
                f" {found.metadata.name!r}, and would be deleted with it: move or delete it first, or commit the import"
            )


_NOT_THEIRS = frozenset(
    {
        "events",
        "events.events.k8s.io",
        "endpoints",
        "endpointslices.discovery.k8s.io",
        # The undo itself ends them.
        Subnamespace.resource.full_name,
    }
)
_MADE_EVERYWHERE = frozenset({"kube-root-ca.crt", "default"})
"""The ConfigMap and the ServiceAccount that Kubernetes creates in each namespace."""


async def _release_level(client: Client, level: Sequence[Subnamespace], *, seconds: float) -> None:
    for _ in range(ATTEMPTS):
        names = {each.spec.adopt.namespace for each in level}
        for name in sorted(names):
            await _strip(client, name)
        await _wait_until_released(client, level, seconds=seconds)
        level = [each for each in level if not await _ended(client, each)]
        if not level:
            return
    raise TenantryError(
        f"the Subnamespaces {shortened(each.key for each in level)} change all the time: repeat the command when no"
        " other client writes them"
    )


async def _ended(client: Client, value: Subnamespace) -> bool:
    """Return whether a Subnamespace is gone, and no write came in between."""
    meta = value.metadata
    try:
        # At its present version, and with the same uid: another of its name is not ours.
        patch = {"metadata": {"uid": meta.uid, "finalizers": None}}
        data = await client.merge_patch(Subnamespace.resource, meta.namespace, meta.name, patch)
        found = msgspec.json.decode(data, type=Subnamespace)
        if _released(found):
            await client.delete(Subnamespace.resource, meta.namespace, meta.name, uid=meta.uid, version=found.version)
            output.talk(f"subnamespace {value.key!r}: deleted; the namespace {value.spec.adopt.namespace!r} stays")
            return True
    except NotFound:
        return True
    except Conflict:
        return False
    return False


def _released(value: Subnamespace) -> bool:
    found = find(value.status.conditions, reasons.READY)
    return found is not None and found.reason == reasons.CANNOT_ADOPT


async def _wait_until_released(client: Client, level: Sequence[Subnamespace], *, seconds: float) -> None:
    by_parent: defaultdict[str, set[str]] = defaultdict(set)
    for each in level:
        by_parent[each.metadata.namespace].add(each.key)
    for parent, keys in by_parent.items():
        await _wait(client, Subnamespace, parent, keys, _released, seconds=seconds)


async def _wait(
    client: Client,
    kind: type[K],
    namespace: str,
    keys: Iterable[str],
    is_met: Callable[[K], bool],
    *,
    seconds: float,
) -> None:
    """Wait until objects meet a condition, or are gone."""
    left = set(keys)
    names = tuple(key.rpartition("/")[2] for key in left)
    try:
        async with (
            asyncio.timeout(seconds),
            aclosing(follow(client, kind, selectors=only(names), namespace=namespace)) as changes,
        ):
            async for found in changes:
                left = {key for key in left if key in found and not is_met(found[key])}
                if not left:
                    return
    except TimeoutError:
        told = shortened(f"{kind.resource.kind} {key}" for key in left)
        raise TenantryError(
            f"the operator did not let go of {told} in time: check that it runs with `tenantry status`, and repeat the"
            " command, which continues"
        ) from None


async def _release_core(client: Client, tree: UndoneTree, *, seconds: float) -> None:
    if tree.tenant is None:
        return
    if tree.name in tree.namespaces:
        await _strip(client, tree.name)
        await _wait(client, Tenant, "", {tree.name}, _has_no_core, seconds=seconds)
    # The Tenant keeps nothing from here on. The garbage collector deletes what it owns, and its core namespace only if
    # the operator created that.
    await remove(client, [tree.tenant], seconds=seconds)


def _has_no_core(value: Tenant) -> bool:
    found = find(conditions_of(value), reasons.READY)
    return found is not None and found.reason == reasons.NAMESPACE_EXISTS


async def _strip(client: Client, name: str) -> None:
    """Take Tenantry's marks and its owner reference off a namespace, in one write; its record stays."""
    while True:
        try:
            namespace = await client.get(Namespace, name)
        except NotFound:
            return
        meta = namespace.metadata
        owners = [each for each in meta.owner_references if not is_tenant(each)]
        change: Json = {"labels": _none_of(meta.labels), "annotations": _none_of(meta.annotations)}
        if len(owners) < len(meta.owner_references):
            change["ownerReferences"] = owners
        if not any(change.values()) and "ownerReferences" not in change:
            return
        try:
            await _write(client, meta, change)
        except Conflict:
            continue
        return


def _none_of(given: dict[str, str]) -> dict[str, None]:
    return {key: None for key in given if is_ours(key)}


async def _write(client: Client, meta: ObjectMeta, change: Json) -> None:
    guarded = {"metadata": {**change, "uid": meta.uid, "resourceVersion": meta.resource_version}}
    await client.merge_patch(Namespace.resource, "", meta.name, guarded)


async def _clean(client: Client, tree: UndoneTree, kinds: Sequence[Resource]) -> None:
    """Delete what Tenantry and the import created in the namespaces."""
    for kind in kinds:
        for selector in (f"{marks.MANAGED_BY}={marks.MANAGER}", marks.INHERITED_FROM, marks.IMPORTED):
            for found in await _listed(client, kind, "", selector):
                meta = found.metadata
                is_made = not selector.startswith(marks.MANAGED_BY) or _is_ours(meta, tree.name)
                if meta.namespace not in tree.namespaces or not is_made:
                    continue
                try:
                    await client.delete(kind, meta.namespace, meta.name, uid=meta.uid)
                except (NotFound, Conflict):
                    continue


def _is_ours(meta: ObjectMeta, tenant: str) -> bool:
    """Return whether the operator created an object: users may set the label of the manager, but not these marks."""
    return meta.labels.get(marks.TENANT) == tenant or meta.name == RULES or meta.name.startswith("tenantry-")


async def _listed(client: Client, kind: Resource, namespace: str, selector: str = "") -> list[_Listed]:
    """Return the objects of a kind; none of one that is not served any more."""
    selectors = {"labelSelector": selector} if selector else {}
    try:
        return [each async for each in client.items(kind, _Listed, namespace=namespace, selectors=selectors)]
    except NotFound:
        return []


async def _return(client: Client, source: ImportTool, name: str) -> None:
    """Give a namespace its owner references back, and remove the record."""
    await _strip(client, name)  # a write of the operator that was under way
    try:
        namespace = await client.get(Namespace, name)
    except NotFound:
        return
    record = record_of(namespace)
    if record is None:
        return
    returned = [each for each in record.owner_references if await _is_there(client, source, each)]
    for lost in record.owner_references:
        if lost not in returned:
            output.talk(f"namespace {name!r}: its owner {lost.kind} {lost.name!r} is gone, and is not set again")
    meta = namespace.metadata
    owners = [*meta.owner_references, *(each for each in returned if each not in meta.owner_references)]
    await _write(client, meta, {"annotations": {marks.IMPORTED: None}, "ownerReferences": owners})


async def _is_there(client: Client, source: ImportTool, owner: OwnerReference) -> bool:
    """Return whether an owner exists, with this uid."""
    group = owner.api_version.rpartition("/")[0]
    kinds = (*(source.kinds if isinstance(source, ImportSource) else ()), Namespace.resource)
    kind = next((each for each in kinds if (each.group, each.kind) == (group, owner.kind)), None)
    if kind is None or kind.namespaced:
        return False
    selectors = {"fieldSelector": f"metadata.name={owner.name}"}
    try:
        found = [each async for each in client.items(kind, _Listed, selectors=selectors)]
    except NotFound:
        return False
    return any(each.metadata.uid == owner.uid for each in found)
