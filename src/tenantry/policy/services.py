"""How Services may be reached, and where they may lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tenantry.policy.check import Check, Subject, told_one_of
from tenantry.policy.objects import KUBERNETES, ONE_OF, allows, by_kubernetes, call, called, must_be, refuses
from tenantry.policy.request import Finding, Json, Judged, Request, parts, texts
from tenantry.world.addresses import is_within

NOUN = "service"
TYPES = "services.types"
EXTERNAL_IPS = "services.externalIPs"
EXTERNAL_NAME = "services.externalName"
SOURCE_RANGES = "services.loadBalancerSourceRanges"
ENDPOINTS = "services.endpoints"

BY_NAME = "ExternalName"
BALANCED = "LoadBalancer"

_OLD_SPEC = "has(oldObject.spec) && object.spec == oldObject.spec"
_LISTED = f"variables.allowed['{SOURCE_RANGES}']"
WITHIN = "loadBalancerSourceRanges must be within"


def _type(judged: Judged) -> str:
    return judged.spec.get("type") or "ClusterIP"


def _types(judged: Judged) -> list[str]:
    return [_type(judged)] if _type(judged) != BY_NAME else []


def _ranges(judged: Judged) -> list[str]:
    return texts(judged.spec, "loadBalancerSourceRanges") if _type(judged) == BALANCED else []


def _is_within(value: str, values: Sequence[str]) -> bool:
    return any(is_within(value, each) for each in values)


def _open_to_all() -> Check:
    """Return the check of a load balancer that lets everybody in, because it names no ranges."""

    def find(judged: Judged) -> Iterator[Finding]:
        if _type(judged) == BALANCED and not _ranges(judged):
            listed = judged.rules.allowed[SOURCE_RANGES]
            fix = told_one_of(listed.values).replace(ONE_OF, WITHIN, 1)
            what = "lets every address in"
            yield Finding(rule=SOURCE_RANGES, source=listed.source, path=call(NOUN, judged), what=what, fix=fix)

    return Check(
        rule=SOURCE_RANGES,
        form="allowed",
        # An annotation of old counts only where the field is empty.
        bad=f"object.spec.type == '{BALANCED}' && size(variables.ranges) == 0",
        path=called(NOUN),
        what="'lets every address in'",
        source=f"{_LISTED}.source",
        fix=must_be(f"{_LISTED}.values", WITHIN),
        find=find,
    )


SERVICES = Subject(
    name="services",
    group="",
    resources=("services",),
    conditions={"spec-is-new": f"request.operation == 'CREATE' || !({_OLD_SPEC})"},
    variables={
        # Whether one leads to another DNS name has a rule of its own.
        "types": f"has(object.spec.type) && object.spec.type != '{BY_NAME}' ? [object.spec.type] : []",
        "ranges": f"object.spec.type == '{BALANCED}' && has(object.spec.loadBalancerSourceRanges)"
        " ? object.spec.loadBalancerSourceRanges : []",
    },
    checks=(
        allows(NOUN, TYPES, among="variables.types", what="has the type", of=_types),
        refuses(
            NOUN,
            EXTERNAL_NAME,
            bad=f"object.spec.type == '{BY_NAME}'",
            what="leads to another DNS name",
            fix="leave out the type ExternalName, and select pods",
            is_bad=lambda judged: _type(judged) == BY_NAME,
        ),
        refuses(
            NOUN,
            EXTERNAL_IPS,
            bad="has(object.spec.externalIPs) && size(object.spec.externalIPs) > 0",
            what="takes over what is sent to addresses of its choice",
            fix="leave out externalIPs",
            is_bad=lambda judged: bool(texts(judged.spec, "externalIPs")),
        ),
        _open_to_all(),
        allows(
            NOUN,
            SOURCE_RANGES,
            among="variables.ranges",
            what="lets in",
            of=_ranges,
            inside="isCIDR(c) && {}.exists(p, isCIDR(p) && cidr(p).containsCIDR(c))",
            is_inside=_is_within,
            must=WITHIN,
        ),
    ),
    concerns=lambda request: (
        request.operation == "CREATE" or request.object.get("spec") != request.old_object.get("spec")
    ),
)


# -- where they lead ------------------------------------------------------------------------------


def _written(name: str, group: str, noun: str, bad: str, has_any: Callable[[Json], bool]) -> Subject:
    """Return endpoints of one kind, as written by people.

    Kubernetes' own roles give them to nobody since 1.22 (CVE-2021-25740); a role of the cluster's may.

    Args:
        name: The plural.
        group: The API group.
        noun: What one is called.
        bad: CEL: whether it leads anywhere.
        has_any: The same in Python.
    """
    field = "subsets" if name == "endpoints" else "endpoints"
    changed = f"oldObject.?{field} != object.?{field}"
    # Whoever may write them everywhere is of the cluster's machinery: load balancers, service meshes.
    everywhere = f"authorizer.group('{group}').resource('{name}').namespace('kube-system').check('create').allowed()"

    def concerns(request: Request) -> bool:
        is_new = request.operation == "CREATE" or request.object.get(field) != request.old_object.get(field)
        return is_new and not by_kubernetes(request.user)

    return Subject(
        name=name,
        group=group,
        resources=(name,),
        conditions={
            "led-elsewhere-by-people": f"(request.operation == 'CREATE' || {changed}) && !{KUBERNETES} && !{everywhere}"
        },
        variables={},
        checks=(
            refuses(
                noun,
                ENDPOINTS,
                bad=bad,
                what="leads to addresses of its choice",
                fix="give the Service a selector, and leave endpoints to Kubernetes",
                is_bad=lambda judged: has_any(judged.request.object),
            ),
        ),
        concerns=concerns,
    )


WRITTEN = (
    _written(
        *("endpoints", "", "endpoints"),
        bad="has(object.subsets) && object.subsets.exists(s, has(s.addresses) && size(s.addresses) > 0"
        " || has(s.notReadyAddresses) && size(s.notReadyAddresses) > 0)",
        has_any=lambda value: any(
            parts(each, "addresses") or parts(each, "notReadyAddresses") for each in parts(value, "subsets")
        ),
    ),
    _written(
        *("endpointslices", "discovery.k8s.io", "endpoint slice"),
        bad="has(object.endpoints) && size(object.endpoints) > 0",
        has_any=lambda value: bool(parts(value, "endpoints")),
    ),
)
