"""Plans the import of HNC's forest: a Tenant for each tree, a Subnamespace for each descendant. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import (
    MAX_NAME,
    Adoption,
    Inheritance,
    InheritanceMode,
    Mode,
    OtherInheritance,
    Subnamespace,
    SubnamespaceSpec,
)
from tenantry.api.tenant import (
    Isolation,
    MarkRules,
    NamespaceRules,
    NetworkIsolation,
    Tenant,
    TenantQuota,
    TenantSpec,
)
from tenantry.api.wording import shortened
from tenantry.world.hnc import quota as hnc_quota
from tenantry.world.hnc.exceptions import RBAC, exceptions
from tenantry.world.hnc.forest import HncForest, grow
from tenantry.world.hnc.objects import (
    INHERITED_FROM,
    HncConfiguration,
    HncObjects,
    Pair,
)
from tenantry.world.hnc.quota import QuotaImport
from tenantry.world.imports.findings import FindingWeight, ImportFinding, ImportFindings
from tenantry.world.imports.form import ImportedChild, ImportedTree, ImportOptions, ImportPlan, short_name
from tenantry.world.inheritance import may_be_allowed

OWNING_ROLES = ("admin", "cluster-admin")
MOST_OTHERS = 16
MOST_KEYS = 16
_FIELDS = {
    ("", "secrets"): "secrets",
    ("", "configmaps"): "config_maps",
    ("", "serviceaccounts"): "service_accounts",
    ("", "limitranges"): "limit_ranges",
    ("networking.k8s.io", "networkpolicies"): "network_policies",
}


def plan(world: HncObjects, wishes: ImportOptions) -> ImportPlan:
    """Return the planned import.

    Raises:
        InputError: A requested root is not one, there is no tree, or a root has no owner.
    """
    findings = ImportFindings()
    forest = grow(world, findings)
    roots = _roots(forest, wishes)
    owners = _owners(world, roots, wishes)
    inheritance = _inheritance(world.configuration, findings)
    shared = _Shared(world, forest, inheritance, hnc_quota.limits(world.quotas, findings), findings)
    trees = [_tree(shared, root, owners[root], wishes) for root in roots]
    chosen = {name for root in roots for name in [root, *forest.below(root)]}
    exempt = exceptions(world, forest, chosen, findings)
    kept = [_within(finding, chosen, {*forest.roots, *forest.parent}) for finding in findings.all()]
    return ImportPlan(trees, exempt, [finding for finding in kept if finding is not None])


class _Shared(msgspec.Struct, frozen=True):
    world: HncObjects
    forest: HncForest
    inheritance: Inheritance
    limits: dict[str, dict[str, str]]
    findings: ImportFindings


def _within(finding: ImportFinding, chosen: set[str], all_: set[str]) -> ImportFinding | None:
    """Return a finding without the namespaces of other trees."""
    where = tuple(name for name in finding.where if name in chosen or name not in all_)
    return ImportFinding(finding.weight, where, finding.text) if where else None


def _roots(forest: HncForest, wishes: ImportOptions) -> list[str]:
    unknown = sorted(set(wishes.roots) - set(forest.roots))
    if unknown:
        known = shortened(map(repr, forest.roots))
        known = f"roots are {known}" if forest.roots else "there are none that can be imported"
        raise InputError(f"{unknown[0]!r} is not the root of an HNC tree; {known}")
    if not forest.roots:
        raise InputError(
            "no HNC tree found: no namespace has a child or a HierarchicalResourceQuota; is HNC installed?"
        )
    return [root for root in forest.roots if not wishes.roots or root in wishes.roots]


# -- tenants --------------------------------------------------------------------------------------


def _owners(world: HncObjects, roots: Sequence[str], wishes: ImportOptions) -> dict[str, tuple[Owner, ...]]:
    found: dict[str, dict[Owner, None]] = {root: dict.fromkeys(wishes.owners) for root in roots}
    for binding in world.bindings:
        here = found.get(binding.metadata.namespace)
        role = binding.role_ref
        owning = role.kind == "ClusterRole" and role.name in OWNING_ROLES
        if here is None or wishes.owners or not owning or INHERITED_FROM in binding.metadata.labels:
            continue
        for subject in binding.subjects:
            # The names of Kubernetes' own users and groups may not own a tenant.
            if subject.kind in set(OwnerKind) and not subject.name.startswith(("system:", "tenantry:")):
                is_account = subject.kind == OwnerKind.SERVICE_ACCOUNT
                place = subject.namespace if is_account and isinstance(subject.namespace, str) else ""
                here[Owner(kind=OwnerKind(subject.kind), name=subject.name, namespace=place)] = None
    missing = [root for root in roots if not found[root]]
    if missing:
        raise InputError(
            f"no owner found for {shortened(map(repr, missing))}: no RoleBinding there binds the ClusterRole admin to a"
            " subject that may own a tenant; name owners with --owner, one tree at a time if they differ"
        )
    return {root: tuple(owners) for root, owners in found.items()}


def _tree(shared: _Shared, root: str, owners: tuple[Owner, ...], wishes: ImportOptions) -> ImportedTree:
    division = QuotaImport(shared.forest, root, shared.limits, hnc_quota.used(shared.world.usage))
    shares = hnc_quota.divide(division, shared.findings, fit=wishes.fit)
    allowed: dict[str, set[str]] = {"labels": set(), "annotations": set()}
    children: list[ImportedChild] = []
    for name in shared.forest.below(root):
        spec = SubnamespaceSpec(
            mode=Mode.WORKSPACE,
            inheritance=shared.inheritance,
            quota=Quota(hard={**shares[name]}),
            labels=_marks(shared, name, "labels", allowed["labels"]),
            annotations=_marks(shared, name, "annotations", allowed["annotations"]),
            allow_cascading_deletion=_cascades(shared, name),
            adopt=Adoption(namespace=name),
        )
        metadata = ObjectMeta(name=short_name(name), namespace=shared.forest.parent[name])
        children.append(ImportedChild(name, Subnamespace(metadata=metadata, spec=spec)))
        if len(name) > MAX_NAME:
            text = f"the Subnamespace has a shorter name, of at most {MAX_NAME} characters; the namespace keeps its own"
            shared.findings.add(FindingWeight.NOTE, name, text)
        if name in shared.forest.full:
            text = "not created by an anchor: HNC keeps it when its parent is deleted, Tenantry deletes it then"
            shared.findings.add(FindingWeight.NOTE, name, text)
    tenant = Tenant(
        metadata=ObjectMeta(name=root),
        spec=TenantSpec(
            owners=owners,
            quota=TenantQuota(hard={**shared.limits.get(root, {})}),
            isolation=Isolation(network=wishes.network),
            namespaces=NamespaceRules(
                labels=_allowing(allowed["labels"], NamespaceRules().labels),
                annotations=_allowing(allowed["annotations"], NamespaceRules().annotations),
            ),
        ),
    )
    if wishes.network is NetworkIsolation.OPEN:
        text = "network isolation is Open, as in HNC: pods can connect to and from everywhere; see --network"
        shared.findings.add(FindingWeight.NOTE, root, text)
    return ImportedTree(tenant, children)


def _allowing(keys: set[str], none: MarkRules) -> MarkRules:
    # An empty one has to be the model's own, or it would be written out.
    return MarkRules(allowed=tuple(sorted(keys))) if keys else none


def _cascades(shared: _Shared, name: str) -> bool:
    """Return whether HNC deletes the descendants of a namespace with it: it, or an ancestor, allows that."""
    hierarchies = shared.world.hierarchies
    return any(
        hierarchies[each].spec.allow_cascading_deletion for each in shared.forest.line(name) if each in hierarchies
    )


def _marks(shared: _Shared, name: str, what: str, allowed: set[str]) -> dict[str, str]:
    """Return the labels or annotations that HNC sets on a namespace because of it or its ancestors.

    Args:
        shared: The input.
        name: The namespace.
        what: "labels" or "annotations".
        allowed: The keys that the tenant's rules allow; extended by this function.
    """
    found: dict[str, str] = {}
    for each in shared.forest.line(name):
        hierarchy = shared.world.hierarchies.get(each)
        asked = [hierarchy.spec] if hierarchy is not None else []
        asked += [anchor.spec for anchor in shared.world.anchors if anchor.metadata.name == each]
        for marks_of in asked:
            pairs: tuple[Pair, ...] = marks_of.labels if what == "labels" else marks_of.annotations
            found |= {pair.key: pair.value for pair in pairs}
    kept: dict[str, str] = {}
    for key, value in sorted(found.items()):
        if marks.is_protected(key):
            text = f"{what[:-1]} {key} not carried over: only administrators set it; the namespace keeps its own"
            shared.findings.add(FindingWeight.LOST, name, text)
        elif key not in allowed and len(allowed) == MOST_KEYS:
            text = f"{what[:-1]} {key} not carried over: a tenant's rules name at most {MOST_KEYS} keys; it stays"
            shared.findings.add(FindingWeight.LOST, name, text)
        else:
            allowed.add(key)
            kept[key] = value
    return kept


# -- inheritance ----------------------------------------------------------------------------------


def _inheritance(configuration: HncConfiguration | None, findings: ImportFindings) -> Inheritance:
    """Return what children inherit: Roles and RoleBindings always, and the kinds that HNC propagates."""
    fields: dict[str, InheritanceMode] = {}
    others: dict[str, OtherInheritance] = {}
    if configuration is None:
        text = "not found: only Roles and RoleBindings are propagated"
        findings.add(FindingWeight.NOTE, "HNCConfiguration", text)
    for each in configuration.spec.resources if configuration is not None else ():
        name = f"{each.resource}.{each.group}" if each.group else each.resource
        field = _FIELDS.get((each.group, each.resource))
        if each.group == RBAC and each.resource in {"roles", "rolebindings"}:
            continue  # HNC always propagates them, whatever their mode
        if each.mode == "AllowPropagate":
            text = f"{name}: propagated only if an object is annotated for it, as in HNC: spec.inheritance is None"
            findings.add(FindingWeight.NOTE, "HNCConfiguration", text)
        elif each.mode not in {"", "Propagate"}:
            continue
        elif field is not None:
            fields[field] = InheritanceMode.SYNC
        elif (each.group, each.resource) == ("", "resourcequotas"):
            text = "resourcequotas: not propagated; a share of the tenant's quota replaces them"
            findings.add(FindingWeight.LOST, "HNCConfiguration", text)
        elif not may_be_allowed(name) or len(others) == MOST_OTHERS:
            why = (
                "controllers create such objects" if not may_be_allowed(name) else f"at most {MOST_OTHERS} kinds can be"
            )
            findings.add(FindingWeight.LOST, "HNCConfiguration", f"{name}: not propagated; {why}")
        else:
            others[name] = OtherInheritance(resource=name, mode=InheritanceMode.SYNC)
            text = f"{name}: an administrator must allow this kind in TenancyDefaults before it is propagated"
            findings.add(FindingWeight.NOTE, "HNCConfiguration", text)
    return Inheritance(
        roles=InheritanceMode.SYNC,
        role_bindings=InheritanceMode.SYNC,
        network_policies=fields.get("network_policies", InheritanceMode.NONE),
        limit_ranges=fields.get("limit_ranges", InheritanceMode.NONE),
        secrets=fields.get("secrets", InheritanceMode.NONE),
        config_maps=fields.get("config_maps", InheritanceMode.NONE),
        service_accounts=fields.get("service_accounts", InheritanceMode.NONE),
        others=tuple(others.values()),
    )
