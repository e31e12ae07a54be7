"""Which devices ResourceClaims and ResourceClaimTemplates may request.

Source: Kubernetes, "Dynamic Resource Allocation"; API resource.k8s.io/v1, DeviceRequest.
"""

from __future__ import annotations

from tenantry.policy.check import RuleTarget
from tenantry.policy.forms import refuse
from tenantry.policy.request import Item, Json, Review, is_new, part, parts
from tenantry.policy.targets.objects import whole

GROUP = "resource.k8s.io"

# A template has the spec of its claims in its own. Version v1beta1 has the fields of `exactly` in the request itself.
_SPEC = "[object.spec].map(s, has(s.spec) ? s.spec : s)[0]"
# The API server accepts null for no requests.
_REQUESTS = f"[{_SPEC}.?devices.requests.orValue([])].map(l, dyn(l) != null ? l : [])[0]"
_ONE = "dyn(r).?exactly.{0}.orValue(dyn(r).?{0}.orValue({1}))"
_ALL = "'All'"
_TAKES_ALL = (
    f"variables.requested.exists(r, {_ONE.format('allocationMode', repr(''))} == {_ALL}"
    f" || dyn(r).?firstAvailable.orValue([]).exists(s, dyn(s).?allocationMode.orValue('') == {_ALL}))"
)
_ADMINISTERS = f"variables.requested.exists(r, {_ONE.format('adminAccess', 'false')})"


RESOURCE_CLAIMS = RuleTarget(
    name="resourceclaims",
    group=GROUP,
    resources=("resourceclaims", "resourceclaimtemplates"),
    conditions={"spec-is-new": "request.operation == 'CREATE' || object.spec != oldObject.spec"},
    variables={"requested": _REQUESTS},
    concerns=lambda request: is_new(request, "spec"),
)
_PLAIN: Json = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
RESOURCE_CLAIM = whole(RESOURCE_CLAIMS, "resource claim", {"metadata": {"name": "c"}, "spec": _PLAIN})


def _requests(value: Json) -> list[Item]:
    spec = part(value, "spec")
    return parts(spec.get("spec") or spec, "devices", "requests")


def _one(request: Json) -> Item:
    return {**request, **part(request, "exactly")}


def _takes_all(value: Json, _: Review) -> bool:
    tried = [each for request in _requests(value) for each in (_one(request), *parts(request, "firstAvailable"))]
    return any(each.get("allocationMode") == "All" for each in tried)


def _administers(value: Json, _: Review) -> bool:
    return any(_one(request).get("adminAccess", False) for request in _requests(value))


def _example(**fields: object) -> Json:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", **fields}}
    return {"spec": {"devices": {"requests": [request]}}}


CHECKS = (
    refuse(
        "devices.allocateAll",
        RESOURCE_CLAIM,
        bad=_TAKES_ALL,
        is_bad=_takes_all,
        what="requests all devices of a node",
        fix="set allocationMode to ExactCount, and count",
        example=_example(allocationMode="All"),
        note="Quota keys `CLASS.deviceclass.resource.k8s.io/devices` limit the number of devices.",
    ),
    refuse(
        "devices.adminAccess",
        RESOURCE_CLAIM,
        bad=_ADMINISTERS,
        is_bad=_administers,
        what="requests administrative access to devices",
        fix="leave out adminAccess",
        example=_example(adminAccess=True),
    ),
)
