"""Reads the tenants of Capsule: pure.

Source: Capsule, API reference of capsule.clastix.io/v1beta2, and "Tenants" of its documentation. Capsule labels each
namespace with the name of its tenant, and makes the tenant its owner.
"""

from __future__ import annotations

from typing import cast

from msgspec import UNSET, UnsetType

from tenantry.api.errors import InputError
from tenantry.api.exposure import Hostnames, Services
from tenantry.api.model import Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.ruledeclarations import Permission, PullPolicy, ServiceType
from tenantry.api.rules import Images, PriorityClasses, Rules, RuntimeClasses, StorageClasses
from tenantry.world import quantity
from tenantry.world.imports import carried, flat
from tenantry.world.imports.claims import Claims, check_keys
from tenantry.world.imports.fields import Fields
from tenantry.world.imports.findings import FindingWeight, ImportFindings
from tenantry.world.imports.flat import FlatTenant, Quantities
from tenantry.world.imports.form import ImportedObject, ImportOptions, ImportPlan
from tenantry.world.imports.objects import Controllers, ImportSource, ReadObject, SourceObjects

GROUP = "capsule.clastix.io"
LABEL = "capsule.clastix.io/tenant"
DELETER = "capsule-namespace-deleter"
"""The ClusterRole by which owners delete namespaces, which Capsule grants beside admin."""

_NAMES_ONLY = "not carried over: the rule has names only; add the names that it selects to"
_COPIES = "not carried over: namespaces of Tenantry get labels and annotations, their objects get none"
_ALLOWED_ONLY = "not carried over: Tenantry allows keys instead of forbidding them; see spec.rules.namespaces"

LOST = {
    "spec.nodeSelector": "not carried over: existing namespaces keep their annotation; for nodes of its own, create a"
    " SliceClaim",
    "spec.storageClasses.allowedRegex": f"{_NAMES_ONLY} spec.rules.storageClasses.allowed",
    "spec.storageClasses.matchLabels": f"{_NAMES_ONLY} spec.rules.storageClasses.allowed",
    "spec.storageClasses.matchExpressions": f"{_NAMES_ONLY} spec.rules.storageClasses.allowed",
    "spec.priorityClasses.allowedRegex": f"{_NAMES_ONLY} spec.rules.priorityClasses.allowed",
    "spec.priorityClasses.matchLabels": f"{_NAMES_ONLY} spec.rules.priorityClasses.allowed",
    "spec.priorityClasses.matchExpressions": f"{_NAMES_ONLY} spec.rules.priorityClasses.allowed",
    "spec.priorityClasses.default": "not carried over: pods name their PriorityClass, or have the cluster's default",
    "spec.runtimeClasses.allowedRegex": f"{_NAMES_ONLY} spec.rules.runtimeClasses.allowed",
    "spec.runtimeClasses.matchLabels": f"{_NAMES_ONLY} spec.rules.runtimeClasses.allowed",
    "spec.runtimeClasses.matchExpressions": f"{_NAMES_ONLY} spec.rules.runtimeClasses.allowed",
    "spec.runtimeClasses.default": "not carried over: see spec.isolation.runtime",
    "spec.ingressOptions.allowedClasses.allowedRegex": f"{_NAMES_ONLY} spec.rules.hostnames.ingressClasses",
    "spec.ingressOptions.allowedClasses.matchLabels": f"{_NAMES_ONLY} spec.rules.hostnames.ingressClasses",
    "spec.ingressOptions.allowedClasses.matchExpressions": f"{_NAMES_ONLY} spec.rules.hostnames.ingressClasses",
    "spec.ingressOptions.allowedClasses.default": "not carried over: an Ingress names its class",
    "spec.ingressOptions.hostnameCollisionScope": "not carried over: a host belongs to the tenant that used it"
    " first, in the whole cluster",
    "spec.ingressOptions.allowWildcardHostnames": "not carried over: add the wildcard hosts to"
    " spec.rules.hostnames.allowed",
    "spec.gatewayOptions.allowedClasses.matchLabels": f"{_NAMES_ONLY} spec.rules.hostnames.gatewayClasses",
    "spec.gatewayOptions.allowedClasses.matchExpressions": f"{_NAMES_ONLY} spec.rules.hostnames.gatewayClasses",
    "spec.gatewayOptions.allowedClasses.allowedRegex": f"{_NAMES_ONLY} spec.rules.hostnames.gatewayClasses",
    "spec.gatewayOptions.allowedClasses.default": "not carried over: a Gateway names its class",
    "spec.serviceOptions.externalIPs": "not carried over: Tenantry refuses external IPs, or allows all of them with"
    " spec.rules.services.externalIPs",
    "spec.serviceOptions.additionalMetadata": _COPIES,
    "spec.serviceOptions.forbiddenLabels": _ALLOWED_ONLY,
    "spec.serviceOptions.forbiddenAnnotations": f"{_ALLOWED_ONLY}; of Services, spec.rules.annotations",
    "spec.podOptions": _COPIES,
    "spec.namespaceOptions.additionalMetadataList": "not carried over: give the labels in spec.labels of the"
    " Subnamespaces; existing namespaces keep them",
    "spec.namespaceOptions.forbiddenLabels": _ALLOWED_ONLY,
    "spec.namespaceOptions.forbiddenAnnotations": _ALLOWED_ONLY,
    "spec.namespaceOptions.requiredMetadata": "not carried over: see spec.namespaces.labels.required",
    "spec.namespaceOptions.managedMetadataOnly": "not carried over: Subnamespaces set only what"
    " spec.namespaces.labels allows",
    "spec.owners.proxySettings": "not carried over: there is no proxy; `tenantry get subnamespaces` lists the own ones",
    "spec.owners.labels": _COPIES,
    "spec.owners.annotations": _COPIES,
    "spec.additionalRoleBindings.labels": _COPIES,
    "spec.additionalRoleBindings.annotations": _COPIES,
    "spec.additionalRoleBindings.subjects": "not carried over: a RoleBinding binds users, groups and ServiceAccounts",
    "spec.forceTenantPrefix": "not carried over: names of new namespaces end in 16 digits, which no other tenant has",
    "spec.preventDeletion": "not carried over: only administrators delete Tenants, and `tenantry delete` asks first",
    "spec.deviceClasses": "not carried over: see spec.rules.devices",
    "spec.permissions": "not carried over: name the owners in spec.owners",
    "spec.rules": "not carried over: write them in spec.rules of the Tenant",
    "spec.data": "not carried over: Tenantry has no templates",
}

KINDS = {
    "GlobalTenantResource": "not carried over: put the objects into the core namespaces, whose Subnamespaces inherit"
    " them",
    "TenantResource": "not carried over: put the objects into the core namespace; see spec.inheritance of its"
    " Subnamespaces",
    "CapsuleConfiguration": "not carried over: limits of all tenants are in TenancyDefaults",
    "ResourcePool": "not carried over: put its quota into spec.quota of the Tenant",
    "ResourcePoolClaim": "not carried over: give its amounts to spec.quota of the Subnamespace",
    "TenantOwner": "not carried over: add the owner to spec.owners of its Tenants",
}


def plan(world: SourceObjects, options: ImportOptions) -> ImportPlan:
    """Return the planned import.

    Raises:
        InputError: The input is incomplete, or claims what it must not have.
    """
    findings = ImportFindings()
    tenants = {each.name: each for each in world.of("Tenant")}
    claims = Claims("Capsule", world)
    for name, namespace in world.namespaces.items():
        meta = namespace.metadata
        if meta.labels.get(LABEL):
            claims.add(name, meta.labels[LABEL])
        for owner in meta.owner_references:
            if owner.kind == "Tenant" and owner.api_version.startswith(f"{GROUP}/"):
                claims.add(name, owner.name)
    for name, tenant in tenants.items():
        for namespace in tenant.fields.part("status").texts("namespaces"):
            claims.add(namespace, name)
    claims.check_known(tenants, "Tenant")
    trees = [
        flat.tree(_tenant(tenants[name], claims, findings), world, options, findings)
        for name in flat.chosen({name: name for name in tenants}, options, "Capsule Tenant")
    ]
    carried.without_counterpart(world, KINDS, findings)
    return ImportPlan(trees, [], findings.all())


def _tenant(found: ReadObject, claims: Claims, findings: ImportFindings) -> FlatTenant:
    spec = found.fields.part("spec")
    namespaces = claims.of(found.name, found.told, found.name)
    owners, bindings = _owners(spec, found.name, findings)
    hard, shares = _quota(spec, namespaces, found.told, findings)
    options = spec.part("namespaceOptions")
    extra = options.part("additionalMetadata")
    labels, annotations = extra.amounts("labels"), extra.amounts("annotations")
    check_keys([*labels, *annotations], f"{found.told}: {extra.path}")
    read = FlatTenant(
        name=found.name,
        told=found.told,
        namespaces=namespaces,
        owners=owners,
        hard=hard,
        shares=shares,
        max_count=options.number("quota"),
        labels=labels,
        annotations=annotations,
        rules=_rules(spec, findings),
        suspended=spec.flag("cordoned"),
        objects=(
            *bindings,
            *_additional(spec, found.name, findings),
            *(carried.network_policy(found.name, each) for each in _items(spec, "networkPolicies")),
            *(carried.limit_range(found.name, each) for each in _items(spec, "limitRanges")),
        ),
    )
    if read.suspended:
        text = "spec.cordoned: its users are locked out in Tenantry, too (spec.suspended), and cannot read any more"
        findings.add(FindingWeight.NOTE, found.told, text)
    carried.finish(found, LOST, findings)
    return read


def _items(spec: Fields, key: str) -> list[object]:
    """Take the specs of a list that Capsule copies into each namespace."""
    inner = spec.part(key)
    found = inner.any("items")
    if found is None:
        return []
    if not isinstance(found, list):
        raise InputError(f"{spec.told}: {inner.path}.items must be a list")
    return [each for each in cast("list[object]", found) if each]


def _owners(spec: Fields, core: str, findings: ImportFindings) -> tuple[tuple[Owner, ...], list[ImportedObject]]:
    """Return the owners, and the bindings of those whose ClusterRoles give them less, or more."""
    owners: dict[Owner, None] = {}
    bindings: list[ImportedObject] = []
    for each in spec.parts("owners"):
        kind, name, roles = each.text("kind"), each.text("name"), each.texts("clusterRoles")
        owner = flat.owner_of(kind, name)
        if owner is None:
            text = f"{each.path}: {kind} {name!r} is not carried over: a Tenant's owner must not be one of Kubernetes"
            findings.add(FindingWeight.LOST, spec.told, text)
            continue
        if not roles or carried.OWNING & set(roles):
            owners[owner] = None
        else:
            text = (
                f"{each.path}.clusterRoles: {kind} {name!r} has less than the ClusterRole admin, and becomes no owner;"
                " RoleBindings of the core namespace give the same ClusterRoles"
            )
            findings.add(FindingWeight.NOTE, spec.told, text)
        bindings += [carried.binding(core, role, [owner]) for role in roles if role not in {*carried.OWNING, DELETER}]
    return tuple(owners), bindings


def _additional(spec: Fields, core: str, findings: ImportFindings) -> list[ImportedObject]:
    found: list[ImportedObject] = []
    for each in spec.parts("additionalRoleBindings"):
        role = each.text("clusterRoleName")
        subjects: list[Owner] = []
        for subject in each.parts("subjects"):
            subject.text("apiGroup")
            kind, name = subject.text("kind"), subject.text("name")
            owner = flat.owner_of(kind, name, subject.text("namespace") if kind == OwnerKind.SERVICE_ACCOUNT else "")
            if owner is None:
                text = f"{subject.path}: {kind} {name!r} is not carried over: create the RoleBinding yourself"
                findings.add(FindingWeight.LOST, spec.told, text)
            else:
                subjects.append(owner)
        if role and subjects:
            found.append(carried.binding(core, role, subjects))
        else:
            text = f"{each.path}: not carried over: it has no subject that a RoleBinding of the import can have"
            findings.add(FindingWeight.LOST, spec.told, text)
    return found


def _quota(
    spec: Fields, namespaces: list[str], told: str, findings: ImportFindings
) -> tuple[Quantities, dict[str, Quantities]]:
    """Return the quota of the tenant, and of single namespaces."""
    quotas = spec.part("resourceQuotas")
    scope = quotas.text("scope") or "Tenant"
    if scope not in {"Tenant", "Namespace"}:
        raise InputError(f"{told}: {quotas.path}.scope is {scope!r}; it must be Tenant or Namespace")
    found: Quantities = {}
    for each in quotas.parts("items"):
        if each.has("scopes") or each.has("scopeSelector"):
            text = f"{each.path}: not carried over: it counts some pods only, and Tenantry divides quotas of all pods"
            findings.add(FindingWeight.LOST, told, text)
            for key in each.names():
                each.any(key)
            continue
        for key, amount in flat.limits(each.amounts("hard"), told, f"{each.path}.hard", findings).items():
            found[key] = quantity.least(found[key], amount) if key in found else amount
    if scope == "Tenant" or not found:
        return found, {}
    text = (
        f"{quotas.path}.scope: Namespace: the Tenant gets the sum for its {len(namespaces)} namespaces; a new one gets"
        " its share from them, or from a higher spec.quota"
    )
    findings.add(FindingWeight.NOTE, told, text)
    many = max(len(namespaces), 1)
    whole = {
        key: quantity.write(quantity.parse(amount) * many, binary=flat.is_binary(key)) for key, amount in found.items()
    }
    return whole, dict.fromkeys(namespaces, found)


# -- rules ----------------------------------------------------------------------------------------


def _rules(spec: Fields, findings: ImportFindings) -> Rules:
    """Return the rules that the allow-lists say."""
    priority = carried.allowed_names(spec, "priorityClasses", findings)
    runtime = carried.allowed_names(spec, "runtimeClasses", findings)
    return Rules(
        images=_images(spec, findings),
        storage_classes=_storage(spec, findings),
        hostnames=_hostnames(spec, findings),
        services=_services(spec),
        priority_classes=PriorityClasses(allowed=priority) if priority is not UNSET else UNSET,
        runtime_classes=RuntimeClasses(allowed=runtime) if runtime is not UNSET else UNSET,
    )


def _storage(spec: Fields, findings: ImportFindings) -> StorageClasses | UnsetType:
    names = carried.allowed_names(spec, "storageClasses", findings)
    if names is UNSET:
        return UNSET
    return StorageClasses(allowed=names, default=spec.part("storageClasses").text("default") or UNSET)


def _images(spec: Fields, findings: ImportFindings) -> Images | UnsetType:
    policies = spec.texts("imagePullPolicies")
    wrong = sorted(set(policies) - set(PullPolicy))
    if wrong:
        raise InputError(f"{spec.told}: spec.imagePullPolicies: {wrong[0]!r} is not a pull policy")
    found: tuple[str, ...] | UnsetType = UNSET
    if spec.has("containerRegistries"):
        registries = spec.part("containerRegistries")
        asked = [f"{carried.escaped(name)}/.*" for name in registries.texts("allowed")]
        regex = registries.text("allowedRegex")
        if regex:
            asked.append(carried.unanchored(regex, "[^/]*", "/.*"))
        found = carried.patterns(asked, spec.told, registries.path, findings)
        text = f"{registries.path}: an image must name its registry: docker.io/library/nginx instead of nginx"
        findings.add(FindingWeight.NOTE, spec.told, text)
    if found is UNSET and not policies:
        return UNSET
    return Images(
        allowed=found,
        pull_policies=tuple(dict.fromkeys(PullPolicy(each) for each in policies)) if policies else UNSET,
    )


def _hostnames(spec: Fields, findings: ImportFindings) -> Hostnames | UnsetType:
    ingress = spec.part("ingressOptions")
    classes = carried.allowed_names(ingress, "allowedClasses", findings)
    gateways = carried.allowed_names(spec.part("gatewayOptions"), "allowedClasses", findings)
    found: tuple[str, ...] | UnsetType = UNSET
    if ingress.has("allowedHostnames"):
        hosts = ingress.part("allowedHostnames")
        asked = [carried.escaped(name) for name in hosts.texts("allowed")]
        regex = hosts.text("allowedRegex")
        if regex:
            asked.append(carried.unanchored(regex, ".*"))
        found = carried.patterns(asked, spec.told, hosts.path, findings)
    if found is UNSET and classes is UNSET and gateways is UNSET:
        return UNSET
    return Hostnames(allowed=found, ingress_classes=classes, gateway_classes=gateways)


def _services(spec: Fields) -> Services | UnsetType:
    options = spec.part("serviceOptions")
    if not options.has("allowedServices"):
        return UNSET
    allowed = options.part("allowedServices")
    types = [ServiceType.CLUSTER_IP]
    if allowed.flag("nodePort", default=True):
        types.append(ServiceType.NODE_PORT)
    if allowed.flag("loadBalancer", default=True):
        types.append(ServiceType.LOAD_BALANCER)
    names = allowed.flag("externalName", default=True)
    return Services(types=tuple(types), external_name=Permission.ALLOW if names else Permission.REFUSE)


SOURCE = ImportSource(
    name="capsule",
    title="Capsule",
    help="""Turn the tenants of Capsule into Tenants.

    Each tenant of Capsule becomes a Tenant of its name, and each of its namespaces a Subnamespace that adopts the
    namespace unchanged: pods keep running.
    """,
    kinds=(
        Resource(GROUP, "v1beta2", "tenants", "Tenant", namespaced=False),
        Resource(GROUP, "v1beta2", "globaltenantresources", "GlobalTenantResource", namespaced=False),
        Resource(GROUP, "v1beta2", "tenantresources", "TenantResource"),
        Resource(GROUP, "v1beta2", "capsuleconfigurations", "CapsuleConfiguration", namespaced=False),
        Resource(GROUP, "v1beta2", "resourcepools", "ResourcePool", namespaced=False),
        Resource(GROUP, "v1beta2", "resourcepoolclaims", "ResourcePoolClaim"),
        Resource(GROUP, "v1beta2", "tenantowners", "TenantOwner", namespaced=False),
    ),
    listing="kubectl get tenants.capsule.clastix.io,globaltenantresources,tenantresources,ns,quota -A -o yaml",
    plan=plan,
    controllers=Controllers(
        namespace="capsule-system",
        webhooks=("capsule-validating-webhook-configuration", "capsule-mutating-webhook-configuration"),
    ),
    owners=frozenset({(GROUP, "Tenant")}),
    next=(
        "Capsule's objects are as they were, and its copies in the namespaces still apply. Remove them:",
        "  kubectl delete tenants.capsule.clastix.io --all   # and with them its quotas, policies and bindings",
        "  helm uninstall -n capsule-system capsule",
    ),
)
