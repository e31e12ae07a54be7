"""Services. Pure.

The lower Service is made first: the upper one gets the addresses and ports that the lower API server has chosen, so
that they work for the pods, which run on the lower side.

If the lower side is another cluster, each Service has an address of its own there, and leads pods there to pods there:

    upper  web  LoadBalancer, 10.96.0.7, selector app: web    ─►   lower  web  ClusterIP, any address, selector app: web

Source: Kubernetes, "Service"; k8s.io/api/core/v1.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.model import Json, Resource
from tenantry.mirror import endpoints
from tenantry.mirror.kinds import serviceaddresses
from tenantry.mirror.kinds.kind import MirroredKind, Origin, Readdressing
from tenantry.mirror.shapes import (
    NotTranslated,
    boolean,
    fields,
    integer,
    items,
    listed,
    mapped,
    number_or_text,
    part,
    text,
)
from tenantry.mirror.things import Thing

RESOURCE = Resource("", "v1", "services", "Service")

API_SERVER = ("default", "kubernetes")
"""Namespace and name of the Service of an API server, which that API server writes itself."""

CHOSEN = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
"""The fields that the lower API server fills in, and that the upper Service gets; and nodePort of each port."""

_BY_NAME = "ExternalName"

_TRAVELLING = (
    *("ports", "selector", "sessionAffinity", "sessionAffinityConfig"),
    *("internalTrafficPolicy", "publishNotReadyAddresses"),
)
"""The fields of a Service that have a meaning in another cluster."""

_SPEC = fields(
    {
        "type": text,
        "ports": listed(
            fields(
                {
                    "name": text,
                    "protocol": text,
                    "appProtocol": text,
                    "port": integer,
                    "targetPort": number_or_text,
                    "nodePort": integer,
                }
            )
        ),
        "selector": mapped(text),
        "clusterIP": text,
        "clusterIPs": listed(text),
        "externalIPs": listed(text),
        "externalName": text,
        "sessionAffinity": text,
        "sessionAffinityConfig": fields({"clientIP": fields({"timeoutSeconds": integer})}),
        "loadBalancerIP": text,
        "loadBalancerSourceRanges": listed(text),
        "loadBalancerClass": text,
        "allocateLoadBalancerNodePorts": boolean,
        "externalTrafficPolicy": text,
        "internalTrafficPolicy": text,
        "healthCheckNodePort": integer,
        "publishNotReadyAddresses": boolean,
        "ipFamilies": listed(text),
        "ipFamilyPolicy": text,
        "trafficDistribution": text,
    }
)

_balancer = fields(
    {
        "ingress": listed(
            fields(
                {
                    "ip": text,
                    "hostname": text,
                    "ipMode": text,
                    "ports": listed(fields({"port": integer, "protocol": text, "error": text})),
                }
            )
        )
    }
)


def load_balancer(lower: Json) -> Json:
    """Return the status of a Service or of an Ingress: where it is reached from outside."""
    return {"loadBalancer": _balancer(part(part(lower, "status"), "loadBalancer"), "status.loadBalancer")}


def translate(spec: Json, origin: Origin) -> None:
    """Have a Service select lower pods, and keep what the lower API server has chosen.

    Args:
        spec: As the allow-list builds it; it is changed.
        origin: Where it comes from.
    """
    if origin.profile.is_apart:
        _confine(spec)
    elif endpoints.is_written(spec):
        mark = endpoints.label(origin.profile, origin.namespace, part(origin.upper, "metadata").get("name", ""))
        endpoints.lead(spec, origin.slices(), mark, origin.profile)
    elif spec.get("selector"):
        spec["selector"] = {**spec["selector"], **origin.profile.labels(origin.namespace)}
    if not origin.lower or spec.get("type") != origin.lower.get("type"):
        return
    for field in CHOSEN:
        if field in origin.lower:
            spec.setdefault(field, origin.lower[field])
    ports = {_identified(port): port["nodePort"] for port in items(origin.lower, "ports") if port.get("nodePort")}
    for port in items(spec, "ports"):
        if not port.get("nodePort") and _identified(port) in ports:
            port["nodePort"] = ports[_identified(port)]


def _confine(spec: Json) -> None:
    """Leave of a spec what has a meaning in another cluster.

    Raises:
        NotTranslated: Nothing has: its endpoints are in this one.
    """
    if spec.get("type") == _BY_NAME:
        raise NotTranslated(f"spec.type may not be {_BY_NAME}: a Service at another cluster leads to pods there")
    if not spec.get("selector"):
        raise NotTranslated("spec.selector must not be empty: a Service at another cluster leads to pods there")
    is_headless = spec.get("clusterIP") == serviceaddresses.HEADLESS
    for field in [each for each in spec if each not in _TRAVELLING]:
        del spec[field]
    for port in items(spec, "ports"):
        port.pop("nodePort", None)
    spec["type"] = "ClusterIP"
    if is_headless:
        spec["clusterIP"] = serviceaddresses.HEADLESS


def _identified(port: Json) -> tuple[object, object]:
    return port.get("port"), port.get("protocol", "TCP")


def chosen(upper: Json, lower: Json) -> Json:
    """Return an upper Service with what the lower API server has chosen.

    Args:
        upper: The upper Service as its user wants it.
        lower: Its lower Service, as it was stored.
    """
    found, spec = part(lower, "spec"), part(upper, "spec")
    wanted: Json = {**spec, **{field: found[field] for field in CHOSEN if field in found}}
    ports = {_identified(port): port.get("nodePort") for port in items(found, "ports")}
    if items(spec, "ports"):
        wanted["ports"] = [
            {**port, "nodePort": ports[_identified(port)]} if ports.get(_identified(port)) else port
            for port in items(spec, "ports")
        ]
    return {**upper, "spec": wanted}


def addresses(service: Thing) -> Iterable[str]:
    """Return the addresses that a Service has inside the cluster; a headless one has none."""
    return [each for each in service.spec.get("clusterIPs") or () if each and each != "None"]


def is_api_server(namespace: str, name: str) -> bool:
    """Return whether a Service is that of the upper API server, by any writer."""
    return (namespace, name) == API_SERVER


_READDRESSING = Readdressing(
    mark=serviceaddresses.MARK,
    freed=serviceaddresses.freed,
    differs=serviceaddresses.differs,
    is_replaceable=serviceaddresses.is_replaceable,
    emptied=serviceaddresses.emptied,
    is_emptied=serviceaddresses.is_emptied,
    filled=serviceaddresses.filled,
)

KIND = MirroredKind(
    resource=RESOURCE,
    spec=_SPEC,
    translate=translate,
    status=load_balancer,
    is_left=is_api_server,
    chosen=chosen,
    readdressing=_READDRESSING,
    reads_slices=True,
)
