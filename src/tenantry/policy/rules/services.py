"""How Services are reached, and where they lead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tenantry.api.tenancyrules import Section
from tenantry.policy.check import CheckScope, RuleCheck, RuleTarget
from tenantry.policy.forms import LIST, allow, match, refuse
from tenantry.policy.mend import drops, into
from tenantry.policy.request import Item, Json, Review, is_new, part, parts, texts
from tenantry.policy.targets.hosts import IS_WRITTEN, is_written
from tenantry.policy.targets.objects import strings, whole
from tenantry.policy.users import CONTROL_PLANE, is_control_plane
from tenantry.world.addresses import is_within
from tenantry.world.rules import covers

TYPES = "services.types"
SOURCE_RANGES = "services.loadBalancerSourceRanges"

BY_NAME = "ExternalName"
BALANCED = "LoadBalancer"


def _type(service: Json) -> str:
    return part(service, "spec").get("type") or "ClusterIP"


def _ranges(service: Json) -> list[str]:
    return texts(service, "spec", "loadBalancerSourceRanges") if _type(service) == BALANCED else []


def _names(service: Json) -> list[str]:
    named: str = part(service, "spec").get("externalName") or ""
    return [named] if named and _type(service) == BY_NAME else []


def _types_in(review: Review) -> list[str]:
    found = _type(review.request.object)
    return [found] if found != BY_NAME else []


SERVICES = RuleTarget(
    name="services",
    group="",
    resources=("services",),
    # Labels of a Service that was allowed earlier may change, and finalizers go, whatever the rules are now.
    conditions={"is-written": IS_WRITTEN},
    variables={
        # The type ExternalName has a rule of its own.
        "types": f"has(object.spec.type) && object.spec.type != '{BY_NAME}' ? [object.spec.type] : []",
        "ranges": f"object.spec.type == '{BALANCED}' && has(object.spec.loadBalancerSourceRanges)"
        " ? object.spec.loadBalancerSourceRanges : []",
        "names": f"has(object.spec.type) && object.spec.type == '{BY_NAME}' && has(object.spec.externalName)"
        " ? [object.spec.externalName] : []",
    },
    concerns=is_written,
)

SERVICE = whole(SERVICES, "service", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
_TYPE = strings(SERVICE, "variables.types", _types_in)
_NAME = strings(SERVICE, "variables.names", lambda review: _names(review.request.object))
_RANGE = strings(SERVICE, "variables.ranges", lambda review: _ranges(review.request.object))


def _type_as_allowed(service: Item, rules: Section) -> None:
    spec, values = into(service, "spec"), rules.allowed[TYPES].values
    if not values:
        return
    spec["type"] = values[0]
    if values[0] != BALANCED:
        drops("loadBalancerIP", "loadBalancerClass", "loadBalancerSourceRanges")(spec, rules)
    if values[0] == "ClusterIP":
        drops("externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort")(spec, rules)
        for port in parts(spec, "ports"):
            port.pop("nodePort", None)


def _narrow(service: Item, rules: Section) -> None:
    spec, allowed = into(service, "spec"), rules.allowed[SOURCE_RANGES].values
    kept = [each for each in texts(spec, "loadBalancerSourceRanges") if covers(allowed, each)]
    spec["loadBalancerSourceRanges"] = kept or list(allowed)


_ranged = partial(
    allow, SOURCE_RANGES, must="loadBalancerSourceRanges must be within", mend=_narrow, given=["10.0.0.0/8"]
)


# -- endpoints ------------------------------------------------------------------------------------


def _written(name: str, group: str, field: str) -> RuleTarget:
    """Return endpoints of one kind as people write them.

    Kubernetes' own roles allow that to no person since 1.22 (CVE-2021-25740); a role of the cluster may.

    Args:
        name: The plural.
        group: The API group.
        field: The field with the endpoints.
    """
    changed = f"oldObject.?{field} != object.?{field}"
    # A user that may write them everywhere is part of the cluster: load balancers, service meshes.
    everywhere = f"authorizer.group('{group}').resource('{name}').namespace('kube-system').check('create').allowed()"
    return RuleTarget(
        name=name,
        group=group,
        resources=(name,),
        conditions={
            "led-elsewhere-by-people": f"(request.operation == 'CREATE' || {changed}) && !{CONTROL_PLANE}"
            f" && !{everywhere}"
        },
        variables={},
        concerns=lambda request: is_new(request, field) and not is_control_plane(request.user),
    )


ENDPOINTS = _written("endpoints", "", "subsets")
ENDPOINT_SLICES = _written("endpointslices", "discovery.k8s.io", "endpoints")


def _leads(scope: CheckScope, *, bad: str, is_bad: Callable[[Any, Review], bool], example: Json) -> RuleCheck:
    return refuse(
        "services.endpoints",
        scope,
        bad=bad,
        is_bad=is_bad,
        what="leads to addresses of its choice",
        fix="give the Service a selector, and leave endpoints to Kubernetes",
        example=example,
        note="Users that may write endpoints in kube-system, as load balancers do, are not checked.",
    )


def _has_addresses(endpoints: Json, _: Review) -> bool:
    return any(parts(each, "addresses") or parts(each, "notReadyAddresses") for each in parts(endpoints, "subsets"))


_METADATA = {"metadata": {"name": "s"}}

CHECKS = (
    allow(
        TYPES,
        _TYPE,
        find=lambda type_, allowed, _: None if type_ in allowed else type_,
        what="has the type",
        mend=_type_as_allowed,
        example={"spec": {"type": "NodePort"}},
        given=["ClusterIP"],
        note="A load balancer opens ports of nodes, too, unless it sets `allocateLoadBalancerNodePorts: false`.",
    ),
    refuse(
        "services.externalName",
        SERVICE,
        bad=f"object.spec.type == '{BY_NAME}'",
        is_bad=lambda service, _: _type(service) == BY_NAME,
        what="leads to another DNS name",
        fix="leave out the type ExternalName, and select pods; an administrator may allow some names by"
        " services.externalName: Allow and services.externalNames",
        example={"spec": {"type": BY_NAME, "externalName": "example.com"}},
    ),
    match(
        "services.externalNames",
        _NAME,
        what="leads to the name",
        example={"spec": {"type": BY_NAME, "externalName": "example.com"}},
        given=["db[.]example[.]com"],
        note="Clients in the cluster, ingress controllers among them, resolve the name with their own rights: allow no"
        " names of other tenants' Services.",
    ),
    refuse(
        "services.externalIPs",
        SERVICE,
        bad="has(object.spec.externalIPs) && size(object.spec.externalIPs) > 0",
        is_bad=lambda service, _: bool(texts(service, "spec", "externalIPs")),
        what="takes over what is sent to addresses of its choice",
        fix="leave out externalIPs",
        mend=drops("spec.externalIPs"),
        example={"spec": {"externalIPs": ["192.0.2.1"]}},
    ),
    _ranged(
        SERVICE,
        # Kubernetes reads the older annotation only if the field is empty.
        bad=f"object.spec.type == '{BALANCED}' && size(variables.ranges) == 0",
        find=lambda service, _allowed, _: "" if _type(service) == BALANCED and not _ranges(service) else None,
        what="lets every address in",
        value="",
        usual=False,
        example={"spec": {"type": BALANCED}},
    ),
    _ranged(
        _RANGE,
        bad=f"!(isCIDR(c) && {LIST}.exists(p, isCIDR(p) && cidr(p).containsCIDR(c)))",
        find=lambda cidr, allowed, _: None if any(is_within(cidr, each) for each in allowed) else cidr,
        what="lets in",
        example={"spec": {"type": BALANCED, "loadBalancerSourceRanges": ["0.0.0.0/0"]}},
    ),
    _leads(
        whole(ENDPOINTS, "endpoints", _METADATA),
        bad="has(object.subsets) && object.subsets.exists(s, has(s.addresses) && size(s.addresses) > 0"
        " || has(s.notReadyAddresses) && size(s.notReadyAddresses) > 0)",
        is_bad=_has_addresses,
        example={"subsets": [{"addresses": [{"ip": "192.0.2.1"}]}]},
    ),
    _leads(
        whole(ENDPOINT_SLICES, "endpoint slice", {**_METADATA, "addressType": "IPv4", "endpoints": []}),
        bad="has(object.endpoints) && dyn(object.endpoints) != null && size(object.endpoints) > 0",
        is_bad=lambda slice_, _: bool(parts(slice_, "endpoints")),
        example={"endpoints": [{"addresses": ["192.0.2.1"]}]},
    ),
)
