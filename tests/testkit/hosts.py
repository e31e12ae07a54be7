"""Ingresses, Gateways and routes with hosts, and the kinds of the Gateway API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tenantry.api.errors import ApiError
from tenantry.api.hostregister import HOSTS_MARK
from tenantry.api.kubernetes import RBAC_GROUP, ResourceQuota
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.controllers.tenantnamespace import COUNTS
from tenantry.world.hosts import zones_in
from testkit.api import CRDS, Api, until
from testkit.refusals import refusal

Json = dict[str, Any]

TAKEN = "is taken: another tenant or Subtenant, or the cluster itself, has it, or one that overlaps it"
GATEWAY_GROUP = "gateway.networking.k8s.io"
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
ROUTES = Resource(GATEWAY_GROUP, "v1", "httproutes", "HTTPRoute")
TCP_ROUTES = Resource(GATEWAY_GROUP, "v1alpha2", "tcproutes", "TCPRoute")
GATEWAYS = Resource(GATEWAY_GROUP, "v1", "gateways", "Gateway")
GATEWAY_KINDS = (ROUTES, TCP_ROUTES, GATEWAYS)
CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)


def path(host: str) -> Json:
    """Return a rule of an Ingress."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    return {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}


def ingress(*hosts: str, name: str = "i", cls: str = "", annotations: Mapping[str, str] | None = None) -> Json:
    """Return an Ingress of hosts; without any, of one rule without a host."""
    spec: Json = {"rules": [path(host) for host in hosts or ("",)], **({"ingressClassName": cls} if cls else {})}
    return {"metadata": {"name": name, "annotations": dict(annotations or {})}, "spec": spec}


def gateway(*hosts: str, cls: str = "public", offered: str = "") -> Json:
    """Return a Gateway with a listener for each host.

    Args:
        hosts: "" for a listener without one.
        cls: Its GatewayClass.
        offered: From which namespaces routes may have them, as in All; "" says nothing of it.
    """
    allowed = {"allowedRoutes": {"namespaces": {"from": offered}}} if offered else {}
    listeners = [
        {"name": f"l{number}", "port": 80, "protocol": "HTTP", **({"hostname": host} if host else {}), **allowed}
        for number, host in enumerate(hosts)
    ]
    return {"metadata": {"name": "g"}, "spec": {"gatewayClassName": cls, "listeners": listeners}}


def route(*hosts: str, at: str = "") -> Json:
    """Return a route of hosts.

    Args:
        hosts: None for those of the Gateway.
        at: The Gateway's namespace; "" for the route's own.
    """
    parent = {"name": "g", **({"namespace": at} if at else {})}
    return {
        "metadata": {"name": "r"},
        "spec": {"parentRefs": [parent], **({"hostnames": list(hosts)} if hosts else {})},
    }


async def register(api: Api) -> dict[str, str]:
    """Return the register: host to the tenant's uid."""
    found: dict[str, str] = {}
    for each in await api.list(PolicyParameters.resource, SYSTEM_NAMESPACE):
        if each["metadata"].get("labels", {}).get(OWN_MARK) == HOSTS_MARK:
            found |= zones_in(texts_of(each["metadata"]["annotations"]))
    return found


async def known(api: Api, *hosts: str) -> None:
    """Wait until a tenant has hosts."""

    async def so() -> bool:
        return (await register(api)).keys() >= set(hosts)

    await until(so, f"{hosts} are in the register")


async def taken(person: Api, namespace: str, *hosts: str) -> list[str]:
    """Return those hosts that are refused as taken."""
    return [host for host in hosts if TAKEN in await refusal(person, INGRESSES, ingress(host, name="try"), namespace)]


@asynccontextmanager
async def gateway_api(api: Api) -> AsyncGenerator[None]:
    """Make a cluster serve the kinds of the Gateway API, without their schemas, and allow admins to use them."""
    async with custom_kinds(api, GATEWAY_KINDS):
        yield


@asynccontextmanager
async def custom_kinds(api: Api, resources: Sequence[Resource]) -> AsyncGenerator[None]:
    """Make a cluster serve kinds without their schemas, and allow admins to use them."""
    groups = sorted({each.group for each in resources})
    role = {
        "metadata": {"name": "gateways", "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
        "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}],
    }
    await api.create(CLUSTER_ROLES, role)
    try:
        for resource in resources:
            await api.create(CRDS, _definition(resource))
        for resource in resources:

            async def served(resource: Resource = resource) -> bool:
                try:
                    await api.list(resource, "default")
                except ApiError:
                    return False
                return True

            await until(served, f"{resource.kind} is served")
        yield
    finally:
        for resource in resources:
            await api.delete(CRDS, resource.full_name)
        for resource in resources:
            # A test that creates them next would get an error while they are being deleted.
            await api.gone(CRDS, resource.full_name)
        await api.delete(CLUSTER_ROLES, "gateways")


async def may_have_gateways(api: Api, user: str, namespace: str) -> None:
    """Wait until an owner may create objects of the Gateway API.

    The controller-manager aggregates admins' rights, and Kubernetes refuses objects that a quota does not count yet.
    """
    subject = {"kind": "User", "name": user}
    await until(
        lambda: api.may(subject, "create", GATEWAY_GROUP, GATEWAYS.plural, namespace),
        f"{user} may make Gateways in {namespace}",
    )
    keys = {f"count/{resource.full_name}" for resource in GATEWAY_KINDS}

    async def counted() -> bool:
        status = (await api.get(ResourceQuota.resource, COUNTS, namespace)).get("status", {})
        return keys <= status.get("hard", {}).keys() & status.get("used", {}).keys()

    await until(counted, f"Gateways are counted in {namespace}")


def _definition(resource: Resource) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    version: Json = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"status": {}}
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return {
        "metadata": {
            "name": resource.full_name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": resource.group, "scope": scope, "names": names, "versions": [version]},
    }
