"""Finds out where an audit is made: reads what an administrator may see around a namespace."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.owner import OwnerKind
from tenantry.api.tenancyrules import TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.audit import kinds
from tenantry.audit.attempts import rows, table
from tenantry.audit.place import Foreign, Made, Node, Place, Volume
from tenantry.kube import wire
from tenantry.kube.client import PAGE_SIZE, Client
from tenantry.world.sandbox import is_sandbox

Json = dict[str, Any]

SYSTEM = ("kube-system", "default", "kube-public", "kube-node-lease", marks.SYSTEM_NAMESPACE)
"""Namespaces that every cluster has, known also to whoever may not list them."""

MOST_OTHERS = 8
"""So many namespaces of others are tried, beside the cluster's own."""

MADE = (ResourceQuota, LimitRange, NetworkPolicy, RoleBinding, TenancyRules)
FAKE_NODE = "kwok.x-k8s.io/node"


async def gather(
    client: Client, *, namespace: str, user: str, groups: Sequence[str] = (), tenant: str, image: str
) -> Place:
    """Return the place of an audit. What the client may not read is left unknown.

    Args:
        client: Of whoever asked, at best an administrator.
        namespace: To audit.
        user: As whom.
        groups: In which groups that is.
        tenant: Whose it is, "" for nobody's.
        image: Of pods that are tried.
    """
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
        made = group.create_task(_made(client, namespace))
        tenants = group.create_task(_tenants(client, tenant))
        corefile = group.create_task(_corefile(client))
    read = {plural: task.result() for plural, task in found.items()}
    nodes, classes = read["nodes"], read["storageclasses"]
    priorities, runtimes, levels = read["priorityclasses"], read["runtimeclasses"], read["prioritylevelconfigurations"]
    volumes, ingresses, running = read["persistentvolumes"], read["ingresses"], pods.result()
    others = tenants.result()
    return Place(
        namespace=namespace,
        user=user,
        tenant=tenant,
        suffix=secrets.token_hex(4),
        image=image,
        others=_others(read["namespaces"], read["rolebindings"] or [], namespace, {user, *groups}),
        other_tenants=others or (),
        has_tenantry=others is not None,
        nodes=None if nodes is None else tuple(_name(each) for each in nodes),
        real_nodes=tuple(
            _node(each) for each in nodes or () if FAKE_NODE not in table(each, "metadata", "annotations")
        ),
        pod_cidrs=tuple(cidr for each in nodes or () for cidr in table(each, "spec").get("podCIDRs") or ()),
        storage_classes=None if classes is None else {_name(each): each.get("reclaimPolicy", "") for each in classes},
        runtime_classes=None if runtimes is None else {_name(each): _is_sandbox(each) for each in runtimes},
        priority_classes=None if priorities is None else _own_priorities(priorities),
        hosts=None if ingresses is None else _hosts(ingresses, _at_home(read["namespaces"] or [], namespace)),
        levels=None if levels is None else {table(each, "metadata")["uid"]: _name(each) for each in levels},
        pods=None if running is None else tuple(_name(each) for each in running),
        made=made.result(),
        volumes=None if volumes is None else tuple(_volume(each) for each in volumes),
        corefile=corefile.result(),
    )


def _name(value: Json) -> str:
    return str(table(value, "metadata").get("name", ""))


def _node(value: Json) -> Node:
    found = [str(each["address"]) for each in rows(value, "status", "addresses") if each.get("type") == "InternalIP"]
    ready = [each.get("status") for each in rows(value, "status", "conditions") if each.get("type") == "Ready"]
    keeps_off = [each for each in rows(value, "spec", "taints") if each.get("effect") != "PreferNoSchedule"]
    return Node(
        name=_name(value),
        addresses=tuple(found),
        boot_id=str(table(value, "status", "nodeInfo").get("bootID", "")),
        kubelet_port=int(table(value, "status", "daemonEndpoints", "kubeletEndpoint").get("Port") or 10250),
        is_open=ready == ["True"] and not keeps_off and not table(value, "spec").get("unschedulable"),
    )


def _is_sandbox(value: Json) -> bool:
    return is_sandbox(str(value.get("handler", "")), table(value, "metadata", "labels"))


async def _all(client: Client, resource: Resource, namespace: str = "") -> list[Json] | None:
    """Return all objects of a kind; None where they may not be read."""
    found: list[Json] = []
    query = {"limit": str(PAGE_SIZE)}
    try:
        while True:
            page = msgspec.json.decode(
                await client.request("GET", wire.path(resource, namespace), query=query), type=dict[str, Any]
            )
            found += rows(page, "items")
            query["continue"] = str(table(page, "metadata").get("continue", ""))
            if not query["continue"]:
                return found
    except (Forbidden, NotFound):
        return None


async def _tenants(client: Client, own: str) -> tuple[str, ...] | None:
    """Return the names of other tenants; None where the cluster does not have the kind."""
    try:
        found = await client.list(Tenant)
    except NotFound:
        return None
    except Forbidden:
        return ()
    return tuple(sorted(each.metadata.name for each in found if each.metadata.name != own))


async def _corefile(client: Client) -> str | None:
    """Return what CoreDNS goes by; None where it may not be read."""
    try:
        data = await client.request("GET", wire.path(kinds.CONFIG_MAPS, "kube-system", "coredns"))
    except NotFound:
        return ""
    except Forbidden:
        return None
    return str(table(msgspec.json.decode(data, type=dict[str, Any]), "data").get("Corefile", ""))


async def _made(client: Client, namespace: str) -> tuple[Made, ...] | None:
    """Return what Tenantry made in a namespace; None where it may not be read.

    Who manages an object, anybody may write on their own; whose tenant it is, Tenantry alone.
    """
    selector = f"{marks.MANAGED_BY}={marks.MANAGER},{marks.TENANT}"
    found: list[Made] = []
    for kind in MADE:
        try:
            page = await client.request(
                "GET",
                wire.path(kind.resource, namespace),
                query={"labelSelector": selector},
            )
        except NotFound:
            continue
        except ApiError:
            return None
        for each in rows(msgspec.json.decode(page, type=dict[str, Any]), "items"):
            path = wire.path(kind.resource, namespace, _name(each))
            found.append(Made(path=path, told=f"{kind.resource.kind} {_name(each)!r}"))
    return tuple(found)


def _others(found: Sequence[Json] | None, bindings: Sequence[Json], own: str, people: set[str]) -> tuple[Foreign, ...]:
    """Return namespaces that are not the tenant's, and first those of which most is to be feared.

    These are the cluster's, then those where somebody gave these people rights, then those of the same tenant that are
    another zone, then those of other tenants.
    """
    if found is None:
        return tuple(Foreign(name=name, is_system=True) for name in SYSTEM)
    named = {_name(each): {**table(each, "metadata", "labels")} for each in found}
    zone = named.get(own, {}).get(marks.ZONE, "")
    system = [Foreign(name=name, labels=named[name], is_system=True) for name in SYSTEM if name in named]
    about = [each for each in bindings if any(_called(subject) in people for subject in rows(each, "subjects"))]
    given = {str(table(each, "metadata")["namespace"]) for each in about}
    # Who owns several tenants is at home in each.
    owned = {str(table(each, "metadata")["namespace"]) for each in about if _name(each) == marks.OWNER_ROLE}
    # Workspaces of the same people are theirs to see: a zone ends where somebody else's rights begin.
    others = [
        Foreign(name=name, labels=labels)
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
    return (*system, *others[:MOST_OTHERS])


def _called(subject: Json) -> str:
    """Return the subject of a binding as the API server calls whoever comes."""
    if subject.get("kind") == OwnerKind.SERVICE_ACCOUNT:
        return f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
    return str(subject.get("name"))


def _own_priorities(found: Sequence[Json]) -> tuple[str, ...]:
    return tuple(sorted(_name(each) for each in found if not _name(each).startswith("system-")))[:8]


def _at_home(namespaces: Sequence[Json], own: str) -> set[str]:
    """Return the namespaces of the same tenant: of a whole tree a host is one tenant's."""
    uids = {_name(each): table(each, "metadata", "labels").get(marks.TENANT_UID) for each in namespaces}
    uid = uids.get(own)
    return {own, *(name for name, other in uids.items() if uid and other == uid)}


def _hosts(found: Sequence[Json], at_home: set[str]) -> tuple[str, ...]:
    hosts = {
        str(rule["host"])
        for each in found
        if table(each, "metadata").get("namespace") not in at_home
        for rule in rows(each, "spec", "rules")
        if rule.get("host")
    }
    return tuple(sorted(hosts))


def _volume(value: Json) -> Volume:
    claim = table(value, "spec", "claimRef")
    return Volume(
        name=_name(value),
        reclaim_policy=str(table(value, "spec").get("persistentVolumeReclaimPolicy", "")),
        claim=f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
    )
