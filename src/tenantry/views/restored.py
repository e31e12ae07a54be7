"""Which namespaces of a restored cluster belong to which Tenants and Subnamespaces again. Pure.

A restore gives every object another uid, and drops owner references and statuses. The labels of namespaces still have
the earlier uids, so that the operator leaves these namespaces as they are:

    Namespace acme    tenantry.dev/tenant: acme                           ─► Tenant acme
    Namespace web-1   tenantry.dev/parent: acme, …/subnamespace: web      ─► Subnamespace acme/web

The namespaces of a tenant are adopted from the bottom to the top. As soon as the core namespace belongs to its Tenant,
the operator divides the quota over the tree, so that every share that is in force must be a part of it by then. So a
tenant is adopted whole, or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import object_key
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened, visible
from tenantry.controllers.tenantnamespace import owners_mark

_KINDS = {Mode.WORKSPACE: marks.KIND_WORKSPACE, Mode.SUBTENANT: marks.KIND_SUBTENANT}


class NamespaceAdoption(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace that is bound to a Tenant or a Subnamespace.

    Args:
        namespace: Its name.
        kind: Tenant or Subnamespace.
        key: The key of that object.
        uid: The uid of that object.
    """

    namespace: str
    kind: str
    key: str
    uid: str


class TenantAdoption(msgspec.Struct, frozen=True, kw_only=True):
    """What is adopted of one tenant.

    Args:
        tenant: Its name.
        namespaces: In the order in which they are adopted: the core namespace is the last.
        blocks: What must be decided first; then no namespace of the tenant is adopted.
    """

    tenant: str
    namespaces: tuple[NamespaceAdoption, ...]
    blocks: tuple[str, ...] = ()


def plan(
    tenants: Sequence[Tenant], subnamespaces: Sequence[Subnamespace], namespaces: Sequence[Namespace]
) -> list[TenantAdoption]:
    """Return what is to be adopted, by the names of tenants; nothing of those whose namespaces are all bound.

    Args:
        tenants: All tenants, or those to look at.
        subnamespaces: All Subnamespaces.
        namespaces: All namespaces.
    """
    by_tenant: dict[str, list[Namespace]] = defaultdict(list)
    for each in namespaces:
        labels = each.metadata.labels
        if labels.get(marks.MANAGED_BY) == marks.MANAGER and labels.get(marks.KIND):
            by_tenant[labels.get(marks.TENANT, "")].append(each)
    by_key = {each.key: each for each in subnamespaces}
    found = [_of_tenant(each, by_tenant[each.metadata.name], by_key) for each in tenants]
    return sorted((each for each in found if each.namespaces or each.blocks), key=lambda each: each.tenant)


def lost(tenants: Sequence[Tenant], namespaces: Sequence[Namespace]) -> list[str]:
    """Return the namespaces of tenants that are not there, sorted: their Tenants must be restored first."""
    names = {each.metadata.name for each in tenants}
    labels = {each.metadata.name: each.metadata.labels for each in namespaces}
    ours = {name for name, its in labels.items() if its.get(marks.MANAGED_BY) == marks.MANAGER and its.get(marks.KIND)}
    return sorted(name for name in ours if labels[name].get(marks.TENANT, "") not in names)


def _of_tenant(tenant: Tenant, namespaces: Sequence[Namespace], by_key: Mapping[str, Subnamespace]) -> TenantAdoption:
    uids = {each.metadata.uid for each in by_key.values()}
    bound = {each.metadata.labels.get(marks.SUBNAMESPACE_UID, ""): each.metadata.name for each in namespaces}
    adoptions: list[tuple[int, NamespaceAdoption]] = []
    blocks: list[str] = []
    taken: dict[str, str] = {}
    for each in sorted(namespaces, key=lambda found: found.metadata.name):
        labels, name = each.metadata.labels, each.metadata.name
        depth = int(labels.get(f"{tenant.metadata.name}{marks.TREE_SUFFIX}", "0") or 0)
        if labels[marks.KIND] == marks.KIND_CORE:
            problem, adoption = _core(tenant, each)
        else:
            key = object_key(labels.get(marks.PARENT, ""), labels.get(marks.SUBNAMESPACE, ""))
            wanted = by_key.get(key)
            uid = labels.get(marks.SUBNAMESPACE_UID, "")
            if uid in uids and (wanted is None or wanted.metadata.uid != uid):
                continue  # it moves to another Subnamespace
            problem, adoption = _child(tenant, each, key, wanted, bound.get(wanted.metadata.uid if wanted else "", ""))
            if adoption is not None and wanted is not None and wanted.spec.mode is Mode.SUBTENANT:
                problem = _foreign_owners(each, wanted)
            if adoption is not None and key in taken:
                problem = f"namespaces {taken[key]!r} and {name!r} both belonged to Subnamespace {key!r}: delete one"
            taken[key] = name
        if problem:
            blocks.append(problem)
        elif adoption is not None:
            adoptions.append((depth, adoption))
    ordered = sorted(adoptions, key=lambda found: (-found[0], found[1].namespace))
    return TenantAdoption(
        tenant=tenant.metadata.name, namespaces=tuple(each for _, each in ordered), blocks=tuple(blocks)
    )


def _core(tenant: Tenant, found: Namespace) -> tuple[str, NamespaceAdoption | None]:
    """Return what keeps a core namespace from its Tenant, and its adoption; neither if it is bound."""
    meta = found.metadata
    if meta.name != tenant.metadata.name:
        return f"namespace {meta.name!r} has the labels of the core namespace of tenant {tenant.metadata.name!r}", None
    if meta.deletion_timestamp:
        return f"namespace {meta.name!r} is being deleted", None
    owner = next((each for each in meta.owner_references if each.controller), None)
    if owner is not None and owner.kind != Tenant.resource.kind:
        return f"namespace {meta.name!r} is controlled by {owner.kind} {owner.name!r}", None
    if owner is not None and owner.uid == tenant.metadata.uid:
        return "", None
    kind = Tenant.resource.kind
    return "", NamespaceAdoption(namespace=meta.name, kind=kind, key=tenant.key, uid=tenant.metadata.uid)


def _child(
    tenant: Tenant, found: Namespace, key: str, wanted: Subnamespace | None, has: str
) -> tuple[str, NamespaceAdoption | None]:
    """Return what keeps a child from its Subnamespace, and its adoption; neither if it is bound.

    Args:
        tenant: The tenant.
        found: The namespace.
        key: The key of its Subnamespace.
        wanted: That Subnamespace; None if it does not exist.
        has: The namespace that is bound to it; "" for none.
    """
    meta = found.metadata
    if wanted is None:
        told = (
            f"restore it with the finalizer {marks.FINALIZER} that the backup has, or delete the namespace or take off"
            f" its label {marks.KIND}"
        )
        return f"namespace {meta.name!r} has no Subnamespace {key!r}: {told}", None
    if meta.deletion_timestamp:
        return f"namespace {meta.name!r} is being deleted", None
    uids = meta.labels.get(marks.SUBNAMESPACE_UID), meta.labels.get(marks.TENANT_UID)
    if uids == (wanted.metadata.uid, tenant.metadata.uid):
        return "", None
    if has and has != meta.name:
        told = f"Subnamespace {key!r} has namespace {has!r} already: delete one of the two"
        return f"namespace {meta.name!r}: {told}", None
    # A Workspace is open to the owners above, and a Subtenant is not.
    kind = _KINDS[wanted.spec.mode]
    if meta.labels[marks.KIND] != kind:
        told = f"is a {meta.labels[marks.KIND]}, and Subnamespace {key!r} a {kind}: correct spec.mode"
        return f"namespace {meta.name!r} {told}", None
    return "", NamespaceAdoption(
        namespace=meta.name, kind=wanted.resource.kind, key=wanted.key, uid=wanted.metadata.uid
    )


def _lines(annotations: Mapping[str, str]) -> frozenset[str]:
    return frozenset(each for each in annotations.get(marks.OWNERS, "").split("\n") if each)


def _foreign_owners(found: Namespace, wanted: Subnamespace) -> str:
    """Return how the owners of a Subtenant differ from those that its namespace had; "" if they do not.

    The owners above a Subtenant do not see into it. They may create a Subnamespace that the backup lacks, and name
    owners of their choice in it. A Subtenant has no owners but those of its spec.
    """
    before, owners = _lines(found.metadata.annotations), _lines(owners_mark(wanted.spec.owners))
    if before == owners:
        return ""
    had, has = (shortened(map(visible, each)) or "none" for each in (before, owners))
    return (
        f"namespace {found.metadata.name!r} had the owners {had}, and Subnamespace {wanted.key!r} gives it {has}:"
        f" correct spec.owners, or the annotation {marks.OWNERS} of the namespace if that is what you want"
    )
