"""Reads the projects of Rancher: pure.

Source: Rancher, "Projects and Kubernetes Namespaces with Rancher", "Resource Quotas", and its kinds
management.cattle.io/v3. A namespace names its project in the annotation field.cattle.io/projectId, as CLUSTER:PROJECT.
The users and groups of a binding are those by which Rancher acts in the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import ContainerDefaults
from tenantry.world import quantity
from tenantry.world.imports import carried, flat
from tenantry.world.imports.claims import Claims
from tenantry.world.imports.fields import Fields
from tenantry.world.imports.findings import FindingWeight, ImportFindings
from tenantry.world.imports.flat import FlatTenant, Quantities
from tenantry.world.imports.form import ImportedObject, ImportedTree, ImportOptions, ImportPlan
from tenantry.world.imports.objects import ImportSource, ReadObject, SourceObjects

GROUP = "management.cattle.io"
PROJECT = "field.cattle.io/projectId"
QUOTA = "field.cattle.io/resourceQuota"
SYSTEM = "authz.management.cattle.io/system-project"
OWNER = "project-owner"
ROLES = {"project-member": "edit", "read-only": "view"}
"""Rancher's role of a project to the ClusterRole of Kubernetes that gives no more."""

KEYS = {
    "pods": "pods",
    "services": "services",
    "replicationControllers": "replicationcontrollers",
    "secrets": "secrets",
    "configMaps": "configmaps",
    "persistentVolumeClaims": "persistentvolumeclaims",
    "servicesNodePorts": "services.nodeports",
    "servicesLoadBalancers": "services.loadbalancers",
    "requestsCpu": "requests.cpu",
    "requestsMemory": "requests.memory",
    "requestsStorage": "requests.storage",
    "limitsCpu": "limits.cpu",
    "limitsMemory": "limits.memory",
}
"""The field of a limit to the key of a quota."""

LOST = {
    "spec.clusterName": "not carried over: the Tenant is in the cluster in which it is created",
    "spec.description": "not carried over: a Tenant has no description; annotate it",
    "spec.resourceQuota.usedLimit": "not carried over: Tenantry counts the shares itself",
}
_ONE_NAME = "not carried over: it is not the name by which Rancher acts for the subject in the cluster"
LOST_OF_BINDINGS = {
    "serviceAccount": "not carried over: create a RoleBinding for it",
    "userName": _ONE_NAME,
    "userPrincipalName": _ONE_NAME,
    "groupName": _ONE_NAME,
    "groupPrincipalName": _ONE_NAME,
}
_LABEL = re.compile(r"[^a-z0-9]+")


def plan(world: SourceObjects, options: ImportOptions) -> ImportPlan:
    """Return the planned import.

    Raises:
        InputError: The input is incomplete, or claims what it must not have.
    """
    findings = ImportFindings()
    projects = {f"{each.metadata.namespace}:{each.name}": each for each in world.of("Project")}
    claims = Claims("Rancher", world)
    for name, namespace in world.namespaces.items():
        project = namespace.metadata.annotations.get(PROJECT)
        if project:
            claims.add(name, project)
    claims.check_known(projects, "Project")
    names = _names(projects, claims, findings)
    bindings = _bindings(world)
    for unknown in sorted(set(bindings) - set(projects)):
        for each in bindings[unknown]:
            text = f"projectName: {unknown!r} was not read, and the binding is not carried over: read the Project, too"
            findings.add(FindingWeight.LOST, each.told, text)
    trees: list[ImportedTree] = []
    for project in flat.chosen(names, options, "Rancher Project"):
        name = names[project]
        read = _tenant(projects[project], (project, name), claims, world.namespaces, findings)
        owners, objects = _members(bindings.get(project, []), name, findings)
        read = msgspec.structs.replace(read, owners=owners, objects=tuple(objects))
        trees.append(flat.tree(read, world, options, findings))
    return ImportPlan(trees, [], findings.all())


def _names(projects: Mapping[str, ReadObject], claims: Claims, findings: ImportFindings) -> dict[str, str]:
    """Return the Tenant's name for each project: its displayed name as a DNS label, or else its own name."""
    shown: dict[str, str] = {}
    for key, project in projects.items():
        if project.metadata.labels.get(SYSTEM) == "true":
            text = "left out: it has the namespaces of the cluster and of Rancher, which no tenant must have"
            findings.add(FindingWeight.NOTE, project.told, text)
            continue
        name = project.fields.part("spec").text("displayName")
        shown[key] = _LABEL.sub("-", name.lower()).strip("-")[:63].strip("-")
    found: dict[str, str] = {}
    for key, name in shown.items():
        is_free = list(shown.values()).count(name) == 1 and claims.may_be_core(name, key)
        found[key] = name if name and is_free and not marks.is_reserved(name) else projects[key].name
    twice = sorted(name for name in found.values() if list(found.values()).count(name) > 1)
    if twice:
        raise InputError(
            f"two Rancher Projects would become the Tenant {twice[0]!r}: give one of them another name in Rancher"
        )
    return found


def _bindings(world: SourceObjects) -> dict[str, list[ReadObject]]:
    found: dict[str, list[ReadObject]] = {}
    for each in world.of("ProjectRoleTemplateBinding"):
        found.setdefault(each.fields.text("projectName"), []).append(each)
    return found


def _tenant(
    found: ReadObject,
    names: tuple[str, str],
    claims: Claims,
    namespaces_read: Mapping[str, Namespace],
    findings: ImportFindings,
) -> FlatTenant:
    """Return a project as a tenant, still without its members.

    Args:
        found: The project.
        names: What namespaces name it by, and the name of the Tenant.
        claims: Of all namespaces.
        namespaces_read: The namespaces.
        findings: Gets the differences.
    """
    project, name = names
    spec = found.fields.part("spec")
    namespaces = claims.of(project, found.told, name)
    hard = _limit(spec.part("resourceQuota").part("limit"), found.told, findings)
    default = _limit(spec.part("namespaceDefaultResourceQuota").part("limit"), found.told, findings)
    shares = {
        each: _share(namespaces_read[each], default, found.told, findings)
        for each in namespaces
        if each in namespaces_read
    }
    if default:
        text = (
            "spec.namespaceDefaultResourceQuota: the share of present namespaces without a quota of their own; a new"
            " Subnamespace gets what its spec.quota requests"
        )
        findings.add(FindingWeight.NOTE, found.told, text)
    read = FlatTenant(
        name=name,
        told=found.told,
        namespaces=namespaces,
        owners=(),
        hard=hard,
        shares=shares,
        container_defaults=_defaults(spec.part("containerDefaultResourceLimit")),
    )
    if name != found.name:
        text = f"becomes the Tenant {name!r}, by its displayed name"
        findings.add(FindingWeight.NOTE, found.told, text)
    carried.finish(found, LOST, findings)
    return read


def _limit(limit: Fields, told: str, findings: ImportFindings) -> Quantities:
    """Return a limit of Rancher as a quota."""
    given = {key: limit.text(field) for field, key in KEYS.items() if limit.text(field)}
    for key, amount in limit.amounts("extended").items():
        given.setdefault(f"requests.{key}" if "/" in key and not key.startswith("requests.") else key, amount)
    return flat.limits(given, told, limit.path, findings)


def _share(namespace: Namespace, default: Quantities, told: str, findings: ImportFindings) -> Quantities:
    """Return the quota that Rancher gives to a namespace: its annotation, or the default of the project.

    Raises:
        InputError: The annotation cannot be read.
    """
    text = namespace.metadata.annotations.get(QUOTA)
    if text is None:
        return default
    where = f"{told}: the annotation {QUOTA} of the namespace {namespace.metadata.name!r}"
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"{where} is not JSON: set the namespace's quota in Rancher again") from error
    return {**default, **_limit(Fields.of(value, where, "").part("limit"), where, findings)}


def _defaults(limits: Fields) -> ContainerDefaults:
    fields = {"cpu": "Cpu", "memory": "Memory"}
    return ContainerDefaults(
        requests={
            key: _amount(limits, f"requests{end}") for key, end in fields.items() if limits.has(f"requests{end}")
        },
        limits={key: _amount(limits, f"limits{end}") for key, end in fields.items() if limits.has(f"limits{end}")},
    )


def _amount(limits: Fields, key: str) -> str:
    text = limits.text(key)
    try:
        return quantity.canonical(text)
    except InputError as error:
        raise InputError(f"{limits.told}: {limits.path}.{key}: {error}") from error


def _members(
    bindings: list[ReadObject], core: str, findings: ImportFindings
) -> tuple[tuple[Owner, ...], list[ImportedObject]]:
    owners: dict[Owner, None] = {}
    objects: list[ImportedObject] = []
    for each in bindings:
        fields = each.fields
        fields.text("projectName")
        role = fields.text("roleTemplateName")
        subject = _subject(fields)
        if subject is None:
            text = "not carried over: it names no user or group by which Rancher acts in the cluster"
            findings.add(FindingWeight.LOST, each.told, f"roleTemplateName: {role!r} is {text}")
        elif role == OWNER:
            owners[subject] = None
        elif role in ROLES:
            objects.append(carried.binding(core, ROLES[role], [subject]))
            text = f"roleTemplateName: {role!r} becomes the ClusterRole {ROLES[role]!r} of Kubernetes"
            findings.add(FindingWeight.NOTE, each.told, text)
        else:
            text = f"roleTemplateName: {role!r} is not carried over: create a ClusterRole and a RoleBinding for it"
            findings.add(FindingWeight.LOST, each.told, text)
        carried.finish(each, LOST_OF_BINDINGS, findings)
    return tuple(owners), objects


def _subject(fields: Fields) -> Owner | None:
    """Return the subject by which Rancher acts in the cluster: a user's id, a group's principal."""
    if fields.has("userName"):
        return flat.owner_of(OwnerKind.USER, fields.text("userName"))
    principal = "groupPrincipalName" if fields.has("groupPrincipalName") else "groupName"
    return flat.owner_of(OwnerKind.GROUP, fields.text(principal))


SOURCE = ImportSource(
    name="rancher",
    title="Rancher",
    help="""Turn the projects of Rancher into Tenants.

    Each project becomes a Tenant with its displayed name as a DNS label, and each of its namespaces a Subnamespace that
    adopts the namespace unchanged: pods keep running. The projects of another cluster than Rancher's own are read from
    files, with the Namespaces of that cluster.
    """,
    kinds=(
        Resource(GROUP, "v3", "projects", "Project"),
        Resource(GROUP, "v3", "projectroletemplatebindings", "ProjectRoleTemplateBinding"),
    ),
    listing="kubectl get projects.management.cattle.io,projectroletemplatebindings.management.cattle.io,ns,quota -A -o"
    " yaml",
    plan=plan,
    next=(
        "Rancher's quotas and bindings still apply in the namespaces. After --commit, take the namespaces out of it:",
        "  kubectl annotate ns NAMESPACE field.cattle.io/projectId- field.cattle.io/resourceQuota-",
        "  kubectl label ns NAMESPACE field.cattle.io/projectId-",
    ),
)
