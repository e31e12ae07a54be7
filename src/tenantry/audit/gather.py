"""Reads the surroundings of the audited namespace that the administrator may read."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
from collections.abc import Sequence

from tenantry.api import marks, reasons
from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import Json, Resource
from tenantry.api.owner import OwnerKind
from tenantry.api.ownnamespaces import OWN_NAMESPACES
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.tenancydefaults import NAME, IngressController, TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.audit import kinds
from tenantry.audit.context import AuditContext, AuditNode, ClaimedVolume, ManagedObject, OtherNamespace
from tenantry.audit.volumes import bound
from tenantry.engine.tasks import first_error
from tenantry.hosting.simulation import NO_CONTAINERS
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.policy.request import part, parts
from tenantry.world.addresses import gateways
from tenantry.world.sandbox import is_sandbox

SYSTEM = (
    *("kube-system", "default", "kube-public", "kube-node-lease"),
    *OWN_NAMESPACES,
)
"""Namespaces that every cluster has, tried even if the namespaces may not be listed."""

MAX_OTHERS = 8
"""How many namespaces of others are tried, beside the cluster's own."""

MANAGED_KINDS = (ResourceQuota, LimitRange, NetworkPolicy, RoleBinding, TenancyRules)


async def gather(
    client: Client,
    *,
    namespace: str,
    user: str,
    groups: Sequence[str] = (),
    tenant: str,
    image: str,
    installation: tuple[str, ...] | None = None,
) -> AuditContext:
    """Return the context of an audit. What the client may not read stays unknown.

    Args:
        client: The client of the person who audits, at best an administrator.
        namespace: The namespace to audit.
        user: The user who makes the attempts.
        groups: The user's groups.
        tenant: The namespace's tenant, "" for none.
        image: The image of the pods that attempts create.
        installation: See `AuditContext`.
    """
    with first_error():
        async with asyncio.TaskGroup() as group:
            found = {
                resource.plural: group.create_task(_all(client, resource))
                for resource in (
                    Namespace.resource,
                    kinds.NODES,
                    kinds.STORAGE_CLASSES,
                    kinds.RUNTIME_CLASSES,
                    kinds.PRIORITY_CLASSES,
                    kinds.VOLUMES,
                    kinds.LEVELS,
                    kinds.INGRESSES,
                    RoleBinding.resource,
                )
            }
            pods = group.create_task(_all(client, kinds.PODS, namespace))
            made = group.create_task(_managed(client, namespace))
            tenants = group.create_task(_tenants(client, tenant))
            corefile = group.create_task(_corefile(client))
            controllers = group.create_task(_controllers(client))
            control_plane = group.create_task(_control_plane(client, namespace))
            unguarded = group.create_task(_all(client, VirtualControlPlane.resource, namespace))
    read = {plural: task.result() for plural, task in found.items()}
    nodes, classes = read["nodes"], read["storageclasses"]
    priorities, runtimes, levels = read["priorityclasses"], read["runtimeclasses"], read["prioritylevelconfigurations"]
    volumes, ingresses, running = read["persistentvolumes"], read["ingresses"], pods.result()
    others = tenants.result()
    # Random: a tenant that could guess the name could create the object, and change the results.
    suffix = secrets.token_hex(4)
    return AuditContext(
        namespace=namespace,
        user=user,
        tenant=tenant,
        suffix=suffix,
        image=image,
        others=_others(read["namespaces"], read["rolebindings"] or [], namespace, {user, *groups}),
        other_tenants=others or (),
        has_tenantry=others is not None,
        nodes=None if nodes is None else tuple(_name(each) for each in nodes),
        real_nodes=tuple(_node(each) for each in nodes or () if _runs_containers(each)),
        pod_cidrs=tuple(cidr for each in nodes or () for cidr in part(each, "spec").get("podCIDRs") or ()),
        controllers=controllers.result(),
        storage_classes=None if classes is None else {_name(each): each.get("reclaimPolicy", "") for each in classes},
        runtime_classes=None if runtimes is None else {_name(each): _is_sandbox(each) for each in runtimes},
        priority_classes=None if priorities is None else _own_priorities(priorities),
        hosts=None if ingresses is None else _hosts(ingresses, _of_same_tenant(read["namespaces"] or [], namespace)),
        levels=None if levels is None else {part(each, "metadata")["uid"]: _name(each) for each in levels},
        pods=None if running is None else tuple(_name(each) for each in running),
        made=made.result(),
        volumes=None if volumes is None else tuple(_volume(each) for each in volumes),
        bindings=None if volumes is None else await bound(client, namespace, f"audit-{suffix}", volumes),
        corefile=corefile.result(),
        control_plane=control_plane.result(),
        unguarded=_unguarded(unguarded.result()),
        installation=installation,
    )


async def _control_plane(client: Client, namespace: str) -> str:
    """Return the control plane that owners of a namespace work with; "" for none, or if it may not be read."""
    try:
        found = await client.get(Namespace, namespace)
    except (Forbidden, NotFound):
        return ""
    return found.metadata.labels.get(marks.CONTROL_PLANE, "")


def _unguarded(found: Sequence[Json] | None) -> tuple[str, ...] | None:
    """Return the control planes whose guards are not in force; None if they may not be read, or if none has guards."""
    guarded = [each for each in found or () if part(each, "spec").get("guards")]
    return tuple(_guards_of(each) for each in guarded if not _is_guarded(each)) if guarded else None


def _is_guarded(value: Json) -> bool:
    conditions = parts(value, "status", "conditions")
    return any(each.get("type") == reasons.GUARDS_ENFORCED and each.get("status") == "True" for each in conditions)


def _guards_of(value: Json) -> str:
    told = [each for each in parts(value, "status", "conditions") if each.get("type") == reasons.GUARDS_ENFORCED]
    why = told[0].get("message", "") if told else "it has no version of Kubernetes yet"
    return f"VirtualControlPlane {_name(value)!r}: {why}"


def _name(value: Json) -> str:
    return str(part(value, "metadata").get("name", ""))


def _runs_containers(node: Json) -> bool:
    return not NO_CONTAINERS & {*part(node, "metadata", "annotations")}


def _node(value: Json) -> AuditNode:
    reported = parts(value, "status", "addresses")
    found = [str(each["address"]) for each in reported if each.get("type") in {"InternalIP", "ExternalIP"}]
    ranges = [gateways(cidr) for cidr in part(value, "spec").get("podCIDRs") or ()]
    found += [str(ipaddress.ip_network(each)[-1]) for each in ranges if each]
    ready = [each.get("status") for each in parts(value, "status", "conditions") if each.get("type") == "Ready"]
    # The scheduler may ignore PreferNoSchedule.
    blocking = [each for each in parts(value, "spec", "taints") if each.get("effect") != "PreferNoSchedule"]
    return AuditNode(
        name=_name(value),
        addresses=tuple(dict.fromkeys(found)),
        boot_id=str(part(value, "status", "nodeInfo").get("bootID", "")),
        kubelet_port=int(part(value, "status", "daemonEndpoints", "kubeletEndpoint").get("Port") or 10250),
        is_open=ready == ["True"] and not blocking and not part(value, "spec").get("unschedulable"),
    )


def _is_sandbox(value: Json) -> bool:
    return is_sandbox(str(value.get("handler", "")), part(value, "metadata", "labels"))


async def _all(
    client: Client, resource: Resource, namespace: str = "", selectors: dict[str, str] | None = None
) -> list[Json] | None:
    """Return all objects of a kind; None if they may not be read."""
    try:
        pages = client.pages(resource, Json, namespace=namespace, selectors=selectors)
        return [item async for page in pages for item in page.items]
    except (Forbidden, NotFound):
        return None


async def _tenants(client: Client, own: str) -> tuple[str, ...] | None:
    """Return the names of other tenants; None if the cluster does not have the kind."""
    try:
        found = await client.list(Tenant)
    except NotFound:
        return None
    except Forbidden:
        return ()
    return tuple(sorted(each.metadata.name for each in found if each.metadata.name != own))


async def _controllers(client: Client) -> tuple[IngressController, ...]:
    """Return the ingress controllers of TenancyDefaults; none if they may not be read."""
    try:
        found = await client.get(TenancyDefaults, NAME)
    except (NotFound, Forbidden):
        return ()
    return found.spec.network.ingress_controllers


async def _corefile(client: Client) -> str | None:
    """Return the Corefile of CoreDNS; None if it may not be read."""
    try:
        data = await client.request("GET", wire.path(kinds.CONFIG_MAPS, "kube-system", "coredns"))
    except NotFound:
        return ""
    except Forbidden:
        return None
    return str(part(client.decode(Json, data), "data").get("Corefile", ""))


async def _managed(client: Client, namespace: str) -> tuple[ManagedObject, ...] | None:
    """Return what Tenantry created in a namespace; None if it may not be read.

    A tenant may set the label app.kubernetes.io/managed-by itself, but not the label of the tenant.
    """
    selectors = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER},{marks.TENANT}"}
    found: list[ManagedObject] = []
    for kind in MANAGED_KINDS:
        try:
            page = await client.request("GET", wire.path(kind.resource, namespace), query=selectors)
        except NotFound:
            continue
        except ApiError:
            return None
        for each in parts(client.decode(Json, page), "items"):
            path = wire.path(kind.resource, namespace, _name(each))
            found.append(ManagedObject(path=path, told=f"{kind.resource.kind} {_name(each)!r}"))
    return tuple(found)


def _others(
    found: Sequence[Json] | None, bindings: Sequence[Json], own: str, people: set[str]
) -> tuple[OtherNamespace, ...]:
    """Return namespaces that do not belong to the tenant, those with the highest risk first.

    The order is: the cluster's, those with a binding of the user or its groups, other zones of the same tenant, those
    of other tenants, and the rest.
    """

    def system(name: str, labels: dict[str, str], secrets: frozenset[str]) -> OtherNamespace:
        own_secrets = secrets if name == KUBECONFIGS_NAMESPACE else frozenset[str]()
        return OtherNamespace(name=name, labels=labels, is_system=True, own_secrets=own_secrets)

    if found is None:
        return tuple(system(name, {}, frozenset({own})) for name in SYSTEM)
    named = {_name(each): {**part(each, "metadata", "labels")} for each in found}
    zone = named.get(own, {}).get(marks.ZONE, "")
    # Namespaces with a binding of the user are the likeliest to be open.
    about = [each for each in bindings if any(_username(subject) in people for subject in parts(each, "subjects"))]
    given = {str(part(each, "metadata")["namespace"]) for each in about}
    # An owner of several tenants may use the namespaces of each.
    owned = {str(part(each, "metadata")["namespace"]) for each in about if _name(each) == marks.OWNER_ROLE}
    clusters = [system(name, named[name], frozenset({own, *owned})) for name in SYSTEM if name in named]
    # Workspaces of one zone have the same owners, so they may see each other.
    others = [
        OtherNamespace(name=name, labels=labels)
        for name, labels in sorted(named.items())
        if name != own
        and name not in owned
        and not marks.is_reserved(name)
        and not (zone and labels.get(marks.ZONE) == zone)
    ]
    uid = named.get(own, {}).get(marks.TENANT_UID, "none")
    others.sort(
        key=lambda each: (
            *(each.name not in given, each.labels.get(marks.TENANT_UID) != uid),
            marks.TENANT not in each.labels,
        )
    )
    return (*clusters, *others[:MAX_OTHERS])


def _username(subject: Json) -> str:
    """Return the user name or group name of the subject of a binding."""
    if subject.get("kind") == OwnerKind.SERVICE_ACCOUNT:
        return f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
    return str(subject.get("name"))


def _own_priorities(found: Sequence[Json]) -> tuple[str, ...]:
    return tuple(sorted(_name(each) for each in found if not _name(each).startswith("system-")))[:8]


def _of_same_tenant(namespaces: Sequence[Json], own: str) -> set[str]:
    """Return the namespaces of the same tenant: all namespaces of a tenant share its hosts."""
    uids = {_name(each): part(each, "metadata", "labels").get(marks.TENANT_UID) for each in namespaces}
    uid = uids.get(own)
    return {own, *(name for name, other in uids.items() if uid and other == uid)}


def _hosts(found: Sequence[Json], own: set[str]) -> tuple[str, ...]:
    hosts = {
        str(rule["host"])
        for each in found
        if part(each, "metadata").get("namespace") not in own
        for rule in parts(each, "spec", "rules")
        if rule.get("host")
    }
    return tuple(sorted(hosts))


def _volume(value: Json) -> ClaimedVolume:
    claim = part(value, "spec", "claimRef")
    return ClaimedVolume(
        name=_name(value),
        reclaim_policy=str(part(value, "spec").get("persistentVolumeReclaimPolicy", "")),
        claim=f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
    )
