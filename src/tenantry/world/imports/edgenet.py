"""Reads the tenants and SubNamespaces of EdgeNet: pure.

Source: EdgeNet's documentation, and its kinds core.edgenet.io/v1alpha1 and registration.edgenet.io/v1alpha1. A tenant
has a core namespace of its name. The namespace of a SubNamespace is in its status.child, and has the labels
edge-net.io/parent-namespace and edge-net.io/owner. A subtenant is a Tenant of EdgeNet, too, with the name of its
namespace: the import leaves it to the SubNamespace.

EdgeNet divides its quota as Tenantry does: a SubNamespace has a part of what is above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import (
    Adoption,
    Inheritance,
    InheritanceMode,
    Mode,
    Subnamespace,
    SubnamespaceSpec,
)
from tenantry.api.tenant import Isolation, Tenant, TenantQuota, TenantSpec
from tenantry.world import quantity
from tenantry.world.imports import carried, flat
from tenantry.world.imports.claims import Claims, check_name
from tenantry.world.imports.fields import Fields
from tenantry.world.imports.findings import FindingWeight, ImportFindings
from tenantry.world.imports.flat import Quantities
from tenantry.world.imports.form import (
    ImportedChild,
    ImportedObject,
    ImportedTree,
    ImportOptions,
    ImportPlan,
    short_name,
)
from tenantry.world.imports.objects import Controllers, ImportSource, ReadObject, SourceObjects
from tenantry.world.validation import validate_subnamespace, validate_tenant

GROUP = "core.edgenet.io"
TENANT = "edge-net.io/tenant"
PARENT = "edge-net.io/parent-namespace"
OWNER = "edge-net.io/owner"
INHERITED = {
    "rbac": ("roles", "role_bindings"),
    "networkpolicy": ("network_policies",),
    "limitrange": ("limit_ranges",),
    "secret": ("secrets",),
    "configmap": ("config_maps",),
    "serviceaccount": ("service_accounts",),
}
"""The key of an inheritance to the fields of ours."""

_PERSON = "not carried over: a Tenant has no address book; keep it in annotations"
LOST = {
    "spec.fullname": _PERSON,
    "spec.shortname": _PERSON,
    "spec.url": _PERSON,
    "spec.address": _PERSON,
    "spec.contact": _PERSON,
    "spec.clusternetworkpolicy": "not carried over: see --network, and spec.clusterNetworkPolicy of the Tenant",
}
LOST_BELOW = {
    "spec.workspace.owner": _PERSON,
    "spec.subtenant.owner": _PERSON,
    "spec.workspace.scope": "not carried over: the namespace keeps its name; see spec.scope",
    "spec.workspace.sync": "not carried over: nothing is inherited here",
    "spec.workspace.sliceclaim": "not carried over: create a SliceClaim, and name it in spec.sliceClaimName",
    "spec.subtenant.sliceclaim": "not carried over: create a SliceClaim, and name it in spec.sliceClaimName",
}
_AGAIN = "request it again, as in `tenantry request`"
_REQUEST = f"not carried over: {_AGAIN}"
KINDS = {
    "SliceClaim": "not carried over: create a SliceClaim of Tenantry",
    "Slice": "not carried over: a SliceClaim of Tenantry creates it",
    "NodeContribution": "not carried over: contribute the node with `tenantry node`",
    "TenantRequest": _REQUEST,
    "ClusterRoleRequest": _REQUEST,
}


def plan(world: SourceObjects, options: ImportOptions) -> ImportPlan:
    """Return the planned import.

    Raises:
        InputError: The input is incomplete, or claims what it must not have.
    """
    findings = ImportFindings()
    tenants = {each.name: each for each in world.of("Tenant")}
    children = _children(world)
    roots = {name: name for name in tenants if name not in children}
    claims = Claims("EdgeNet", world)
    for name, namespace in world.namespaces.items():
        if namespace.metadata.labels.get(TENANT) and name not in children:
            claims.add(name, namespace.metadata.labels[TENANT])
    known = {**tenants, **dict.fromkeys(children)}
    claims.check_known(known, "Tenant")
    quotas = _quotas(world, findings)
    trees: list[ImportedTree] = []
    for name in flat.chosen(roots, options, "EdgeNet Tenant"):
        claims.add(name, name)
        reader = _Reader(children, claims, world, options, findings)
        trees.append(_tree(tenants[name], quotas.get(name, {}), reader))
    carried.without_counterpart(world, KINDS, findings)
    return ImportPlan(trees, [], findings.all())


def _children(world: SourceObjects) -> dict[str, ReadObject]:
    """Return the SubNamespace of each child namespace.

    Raises:
        InputError: Two SubNamespaces have one namespace, or one has none yet.
    """
    by_label = {
        (meta.labels[PARENT], meta.labels[OWNER]): name
        for name, meta in ((name, found.metadata) for name, found in world.namespaces.items())
        if PARENT in meta.labels and OWNER in meta.labels
    }
    found: dict[str, ReadObject] = {}
    for each in world.of("SubNamespace"):
        child = each.fields.part("status").text("child")
        child = child or by_label.get((each.metadata.namespace, each.name), "")
        if not child:
            raise InputError(
                f"{each.told} has no namespace: wait until EdgeNet has created it, or read the Namespaces, too"
            )
        if child in found:
            raise InputError(
                f"{each.told} and {found[child].told} both claim the namespace {child!r}: delete one of the two"
            )
        found[child] = each
    return found


def _quotas(world: SourceObjects, findings: ImportFindings) -> dict[str, Quantities]:
    """Return the quota of each tenant: its claims without an end, less all that is dropped."""
    found: dict[str, Quantities] = {}
    for each in world.of("TenantResourceQuota"):
        spec = each.fields.part("spec")
        total: Quantities = {}
        claims, drops = spec.part("claim"), spec.part("drop")
        for name in claims.names():
            one = claims.part(name)
            if one.has("expiry"):
                text = f"{one.path}: not carried over: it ends at a time; adjust the quota with `tenantry quota`"
                findings.add(FindingWeight.LOST, each.told, text)
                one.any("expiry")
                one.any("resourcelist")
                continue
            for key, amount in _amounts(one, "resourcelist", each.told, findings).items():
                total[key] = _add(key, total.get(key, "0"), amount)
        for name in drops.names():
            one = drops.part(name)
            if one.text("expiry"):
                text = f"{one.path}.expiry: the quota stays lower after that time; raise spec.quota then"
                findings.add(FindingWeight.NOTE, each.told, text)
            for key, amount in _amounts(one, "resourcelist", each.told, findings).items():
                total[key] = _add(key, total.get(key, "0"), amount, -1)
        found[each.name] = total
        carried.finish(each, {}, findings)
    return found


def _amounts(fields: Fields, key: str, told: str, findings: ImportFindings) -> Quantities:
    return flat.limits(fields.amounts(key), told, f"{fields.path}.{key}", findings)


def _add(key: str, one: str, other: str, sign: int = 1) -> str:
    value = max(quantity.parse(one) + sign * quantity.parse(other), Fraction(0))
    return quantity.write(value, binary=flat.is_binary(key))


class _Reader(msgspec.Struct, frozen=True):
    """What the reading of each tenant needs.

    Args:
        children: Child namespace to its SubNamespace.
        claims: Of all namespaces.
        world: All objects.
        options: The options.
        findings: Gets the differences.
    """

    children: Mapping[str, ReadObject]
    claims: Claims
    world: SourceObjects
    options: ImportOptions
    findings: ImportFindings


def _tree(found: ReadObject, hard: Quantities, reader: _Reader) -> ImportedTree:
    children, claims, findings = reader.children, reader.claims, reader.findings
    check_name(found.name, found.told)
    below = _below(found.name, children)
    for child in below:
        claims.add(child, found.name)
    namespaces = claims.of(found.name, found.told, found.name)
    strays = sorted(set(namespaces) - {found.name, *below})
    if strays:
        raise InputError(
            f"the namespace {strays[0]!r} belongs to {found.told}, and no SubNamespace has it: read the SubNamespaces,"
            " too, or remove its labels"
        )
    spec = found.fields.part("spec")
    contact = flat.owner_of(OwnerKind.USER, spec.part("contact").text("email"))
    owners = reader.options.owners or ((contact,) if contact is not None else ())
    if not owners:
        raise InputError(f"{found.told} has no spec.contact.email that may own a Tenant: name owners with --owner")
    limits = {found.name: hard}
    made: list[ImportedChild] = []
    for name in below:
        share = _share(children[name], hard, findings)
        limits[name] = share
        made.append(_child(name, children[name], share, owners, findings))
    _check_sums(found, limits, below, children, findings)
    tenant = Tenant(
        metadata=ObjectMeta(name=found.name),
        spec=TenantSpec(
            owners=owners,
            quota=TenantQuota(hard={**hard}),
            isolation=Isolation(network=reader.options.network),
            suspended=spec.has("enabled") and not spec.flag("enabled"),
        ),
    )
    problems = [*validate_tenant(tenant)]
    problems += [each for child in made for each in validate_subnamespace(child.subnamespace)]
    if problems:
        raise InputError(f"{found.told} cannot be imported: {problems[0]}; change it in EdgeNet")
    text = "network isolation is --network, Open by default: EdgeNet's NetworkPolicies in the namespaces still apply"
    findings.add(FindingWeight.NOTE, found.told, text)
    carried.finish(found, LOST, findings)
    has_core = not claims.is_complete or found.name in reader.world.namespaces
    objects = _roles(reader.world, {found.name, *below}, findings)
    return ImportedTree(tenant, made, has_core, tuple(objects))


def _below(root: str, children: Mapping[str, ReadObject]) -> list[str]:
    """Return the namespaces below one, parents before their children."""
    found = [root]
    for parent in found:
        found += sorted(name for name, each in children.items() if each.metadata.namespace == parent)
        if len(found) > len(children) + 1:
            raise InputError(f"the SubNamespaces below {root!r} form a cycle: correct their metadata.namespace")
    return found[1:]


def _share(found: ReadObject, hard: Quantities, findings: ImportFindings) -> Quantities:
    spec = found.fields.part("spec")
    inner = spec.part("workspace" if spec.has("workspace") else "subtenant")
    share = _amounts(inner, "resourceallocation", found.told, findings)
    for key in sorted(set(share) - set(hard)):
        text = f"{inner.path}.resourceallocation[{key!r}]: not carried over: the tenant's quota has none of it"
        findings.add(FindingWeight.LOST, found.told, text)
    return {key: amount for key, amount in share.items() if key in hard}


def _check_sums(
    found: ReadObject,
    limits: Mapping[str, Quantities],
    below: list[str],
    children: Mapping[str, ReadObject],
    findings: ImportFindings,
) -> None:
    """Report where the parts exceed the whole: nothing is created then."""
    for parent in (found.name, *below):
        inner = [name for name in below if children[name].metadata.namespace == parent]
        for key, whole in limits[parent].items():
            asked = sum((quantity.parse(limits[name].get(key, "0")) for name in inner), Fraction(0))
            if asked > quantity.parse(whole):
                text = (
                    f"{key} of {parent!r} is {whole}, and the SubNamespaces in it have"
                    f" {quantity.write(asked, binary=flat.is_binary(key))}: raise it, or lower those in EdgeNet"
                )
                findings.add(FindingWeight.BLOCKS, found.told, text)


def _child(
    namespace: str, found: ReadObject, share: Quantities, above: tuple[Owner, ...], findings: ImportFindings
) -> ImportedChild:
    spec = found.fields.part("spec")
    is_workspace = spec.has("workspace")
    inner = spec.part("workspace" if is_workspace else "subtenant")
    contact = flat.owner_of(OwnerKind.USER, inner.part("owner").text("email"))
    inheritance = _inheritance(inner) if is_workspace else Inheritance()
    owners = (contact,) if contact is not None else ()
    if not owners and inheritance.role_bindings is InheritanceMode.NONE:
        if not is_workspace:
            raise InputError(f"{found.told} has no spec.subtenant.owner.email that may own it: set it in EdgeNet")
        owners = above
    expiry = spec.text("expiry")
    if expiry:
        text = f"spec.expiry: the operator deletes the namespace {namespace!r} at {expiry}, as EdgeNet would"
        findings.add(FindingWeight.NOTE, found.told, text)
    made = Subnamespace(
        metadata=ObjectMeta(name=short_name(found.name), namespace=found.metadata.namespace),
        spec=SubnamespaceSpec(
            mode=Mode.WORKSPACE if is_workspace else Mode.SUBTENANT,
            owners=owners,
            inheritance=inheritance,
            quota=Quota(hard={**share}),
            expires_at=expiry,
            adopt=Adoption(namespace=namespace),
        ),
    )
    carried.finish(found, LOST_BELOW, findings)
    return ImportedChild(namespace, made)


def _inheritance(inner: Fields) -> Inheritance:
    """Return what a workspace inherits; Copy would copy once more what EdgeNet has copied, and finds it there."""
    given = inner.part("inheritance")
    inherited = [field for key, fields in INHERITED.items() if given.flag(key) for field in fields]
    if not inherited:
        return Inheritance()
    # Read only here: without anything inherited it says nothing, and is reported.
    mode = InheritanceMode.SYNC if inner.flag("sync") else InheritanceMode.COPY
    modes = dict.fromkeys(inherited, mode)
    return msgspec.structs.replace(Inheritance(), **modes)


def _roles(world: SourceObjects, namespaces: set[str], findings: ImportFindings) -> list[ImportedObject]:
    """Return the bindings of approved RoleRequests; EdgeNet's own end with the request."""
    found: list[ImportedObject] = []
    for each in world.of("RoleRequest"):
        if each.metadata.namespace not in namespaces:
            continue
        if each.fields.part("spec").peek("approved") is not True:
            carried.tell(each, f"not carried over: it is not approved; {_AGAIN}", findings)
            continue
        spec = each.fields.part("spec")
        spec.flag("approved")
        ref = spec.part("roleref")
        kind, role, email = ref.text("kind"), ref.text("name"), spec.text("email")
        owner = flat.owner_of(OwnerKind.USER, email)
        if owner is None or kind != "ClusterRole" or not role:
            text = f"spec: {kind} {role!r} for {email!r} is not carried over: create the RoleBinding yourself"
            findings.add(FindingWeight.LOST, each.told, text)
        else:
            found.append(carried.binding(each.metadata.namespace, role, [owner]))
        carried.finish(each, {"spec.firstname": _PERSON, "spec.lastname": _PERSON}, findings)
    return found


SOURCE = ImportSource(
    name="edgenet",
    title="EdgeNet",
    help="""Turn the tenants of EdgeNet into Tenants.

    Each Tenant of EdgeNet becomes a Tenant of its name with the same core namespace, and each SubNamespace a
    Subnamespace that adopts its namespace unchanged: pods keep running.
    """,
    kinds=(
        Resource(GROUP, "v1alpha1", "tenants", "Tenant", namespaced=False),
        Resource(GROUP, "v1alpha1", "tenantresourcequotas", "TenantResourceQuota", namespaced=False),
        Resource(GROUP, "v1alpha1", "subnamespaces", "SubNamespace"),
        Resource(GROUP, "v1alpha1", "sliceclaims", "SliceClaim"),
        Resource(GROUP, "v1alpha1", "slices", "Slice", namespaced=False),
        Resource(GROUP, "v1alpha1", "nodecontributions", "NodeContribution", namespaced=False),
        Resource("registration.edgenet.io", "v1alpha1", "rolerequests", "RoleRequest"),
        Resource("registration.edgenet.io", "v1alpha1", "tenantrequests", "TenantRequest", namespaced=False),
        Resource("registration.edgenet.io", "v1alpha1", "clusterrolerequests", "ClusterRoleRequest", namespaced=False),
    ),
    listing="kubectl get tenants.core.edgenet.io,tenantresourcequotas.core.edgenet.io,subnamespaces.core.edgenet.io,"
    "rolerequests.registration.edgenet.io,ns -A -o yaml",
    plan=plan,
    controllers=Controllers(namespace="edgenet", webhooks=("edgenet-admission-control",)),
    owners=frozenset({(GROUP, "Tenant"), (GROUP, "SubNamespace"), ("", "Namespace")}),
    next=(
        "EdgeNet's objects, quotas and policies are as they were. After --commit, remove them:",
        "  kubectl delete resourcequota -A -l edge-net.io/generated=true   # likewise rolebindings, networkpolicies",
        "  kubectl delete subnamespaces.core.edgenet.io -A --all && kubectl delete tenants.core.edgenet.io --all",
    ),
)
