"""Reads the accounts of kiosk: pure.

Source: kiosk's README, and its kinds config.kiosk.sh/v1alpha1 and tenancy.kiosk.sh/v1alpha1. A Space is a namespace
with the label kiosk.sh/account (older: the annotation) and an owner reference to the Account; its API server only shows
it under another kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.api.errors import InputError
from tenantry.api.model import Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.world import quantity
from tenantry.world.imports import carried, flat
from tenantry.world.imports.claims import Claims, check_keys
from tenantry.world.imports.fields import Fields
from tenantry.world.imports.findings import FindingWeight, ImportFindings
from tenantry.world.imports.flat import FlatTenant, Quantities
from tenantry.world.imports.form import ImportedObject, ImportOptions, ImportPlan
from tenantry.world.imports.objects import Controllers, ImportSource, ReadObject, SourceObjects

GROUP = "config.kiosk.sh"
ACCOUNT = "kiosk.sh/account"
OWNING = frozenset({*carried.OWNING, "kiosk-space-admin"})
"""ClusterRoles of which users of an account have one in its Spaces, the last by default."""

_TEMPLATES = (
    "not carried over: put the objects of the template into the core namespace; see spec.inheritance of its"
    " Subnamespaces"
)
LOST = {
    "spec.space.templateInstances": _TEMPLATES,
    "spec.space.spaceTemplate": "not carried over: Subnamespaces get labels and annotations only",
    "spec.quota.scopes": "not carried over: a Tenant's quota counts all pods",
    "spec.quota.scopeSelector": "not carried over: a Tenant's quota counts all pods",
}
KINDS = {
    "Template": _TEMPLATES,
    "TemplateInstance": "not carried over: its objects stay in the namespace as they are, and follow no template",
}


def plan(world: SourceObjects, options: ImportOptions) -> ImportPlan:
    """Return the planned import.

    Raises:
        InputError: The input is incomplete, or claims what it must not have.
    """
    findings = ImportFindings()
    accounts = {each.name: each for each in world.of("Account")}
    claims = Claims("kiosk", world)
    for name, namespace in world.namespaces.items():
        meta = namespace.metadata
        for account in (meta.labels.get(ACCOUNT), meta.annotations.get(ACCOUNT)):
            if account:
                claims.add(name, account)
        for owner in meta.owner_references:
            if owner.kind == "Account" and owner.api_version.startswith(f"{GROUP}/"):
                claims.add(name, owner.name)
    for space in world.of("Space"):
        account = space.fields.part("spec").text("account")
        if account:
            claims.add(space.name, account)
        carried.finish(space, {"spec.finalizers": "not carried over: they are those of the namespace"}, findings)
    claims.check_known(accounts, "Account")
    chosen = flat.chosen({name: name for name in accounts}, options, "kiosk Account")
    quotas = _quotas(world, accounts, set(chosen), findings)
    trees = [
        flat.tree(_tenant(accounts[name], claims, quotas.get(name, {}), findings), world, options, findings)
        for name in chosen
    ]
    carried.without_counterpart(world, KINDS, findings)
    return ImportPlan(trees, [], findings.all())


def _quotas(
    world: SourceObjects, accounts: Mapping[str, ReadObject], chosen: set[str], findings: ImportFindings
) -> dict[str, Quantities]:
    """Return the quota of each chosen account: the least of its AccountQuotas, which all apply.

    Raises:
        InputError: A quota is for an account that was not read.
    """
    found: dict[str, Quantities] = {}
    for each in world.of("AccountQuota"):
        spec = each.fields.part("spec")
        account, inner = spec.text("account"), spec.part("quota")
        if account not in accounts:
            raise InputError(
                f"{each.told} is for the Account {account!r}, which was not read: add it, or leave both out"
            )
        if account not in chosen:
            continue
        if inner.has("scopes") or inner.has("scopeSelector"):
            text = (
                "spec.quota.hard: not carried over: it counts some pods only, and Tenantry divides quotas of all pods"
            )
            findings.add(FindingWeight.LOST, each.told, text)
            inner.any("hard")
        else:
            here = found.setdefault(account, {})
            for key, amount in flat.limits(inner.amounts("hard"), each.told, "spec.quota.hard", findings).items():
                here[key] = quantity.least(here[key], amount) if key in here else amount
        carried.finish(each, LOST, findings)
    return found


def _tenant(found: ReadObject, claims: Claims, hard: Quantities, findings: ImportFindings) -> FlatTenant:
    spec = found.fields.part("spec")
    space = spec.part("space")
    owners, bindings = _subjects(spec, space.text("clusterRole"), found, findings)
    metadata = space.part("spaceTemplate").part("metadata")
    labels, annotations = metadata.amounts("labels"), metadata.amounts("annotations")
    check_keys([*labels, *annotations], f"{found.told}: {metadata.path}")
    read = FlatTenant(
        name=found.name,
        told=found.told,
        namespaces=claims.of(found.name, found.told, found.name),
        owners=owners,
        hard=hard,
        max_count=space.number("limit"),
        labels=labels,
        annotations=annotations,
        objects=tuple(bindings),
    )
    carried.finish(found, LOST, findings)
    return read


def _subjects(
    spec: Fields, cluster_role: str, found: ReadObject, findings: ImportFindings
) -> tuple[tuple[Owner, ...], list[ImportedObject]]:
    """Return the owners, and a binding of them instead if the account gives its users less than an owner has."""
    subjects: list[Owner] = []
    for each in spec.parts("subjects"):
        each.text("apiGroup")
        kind, name = each.text("kind"), each.text("name")
        owner = flat.owner_of(kind, name, each.text("namespace") if kind == OwnerKind.SERVICE_ACCOUNT else "")
        if owner is None:
            text = f"{each.path}: {kind} {name!r} is not carried over: a Tenant's owner must not be one of Kubernetes"
            findings.add(FindingWeight.LOST, found.told, text)
        else:
            subjects.append(owner)
    if not cluster_role or cluster_role in OWNING or not subjects:
        return tuple(subjects), []
    text = (
        f"spec.space.clusterRole: {cluster_role!r} may be less than an owner has: a RoleBinding of the core namespace"
        " gives it to the subjects, and they become no owners; name owners with --owner"
    )
    findings.add(FindingWeight.NOTE, found.told, text)
    return (), [carried.binding(found.name, cluster_role, subjects)]


SOURCE = ImportSource(
    name="kiosk",
    title="kiosk",
    help="""Turn the accounts of kiosk into Tenants.

    Each Account becomes a Tenant of its name, and each of its Spaces a Subnamespace that adopts the namespace
    unchanged: pods keep running.
    """,
    kinds=(
        Resource(GROUP, "v1alpha1", "accounts", "Account", namespaced=False),
        Resource(GROUP, "v1alpha1", "accountquotas", "AccountQuota", namespaced=False),
        Resource(GROUP, "v1alpha1", "templates", "Template", namespaced=False),
        Resource(GROUP, "v1alpha1", "templateinstances", "TemplateInstance"),
        Resource("tenancy.kiosk.sh", "v1alpha1", "spaces", "Space", namespaced=False),
    ),
    listing="kubectl get accounts.config.kiosk.sh,accountquotas.config.kiosk.sh,ns,quota -A -o yaml",
    plan=plan,
    controllers=Controllers(namespace="kiosk", webhooks=("kiosk",)),
    owners=frozenset({(GROUP, "Account")}),
    next=(
        "kiosk's objects are as they were. After --commit, remove them:",
        "  kubectl delete accountquotas.config.kiosk.sh,accounts.config.kiosk.sh --all",
        "  helm uninstall -n kiosk kiosk",
    ),
)
