"""All other kinds that tenants create: the bytes of one object, in CEL and in Python.

CEL has no size of an object, but it formats an object as text, in which every field and every entry of
`metadata.managedFields` stands. Strings are quoted as in Go. The text has about as many bytes as the object in JSON.
Custom kinds are left out: their schemas bound them, and a deeply nested object would cost too much.

Only writes of people are measured. Kubernetes' controllers and the operator copy what people wrote: a pod is not larger
than the template that its author wrote.

Source: Kubernetes, "Common Expression Language in Kubernetes" (strings); cel-go, ext/formatting.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tenantry.api.marks import GROUP
from tenantry.policy.check import CheckScope, RuleTarget
from tenantry.policy.mend import merged
from tenantry.policy.request import Json, Request, Review
from tenantry.policy.targets.objects import name_of
from tenantry.policy.users import CONTROL_PLANE, NOT_MIRRORED, is_control_plane, is_mirrored

OTHERS = "others"
"""The key of `objects.maxSizes` that decides about these kinds."""

_CORE = (
    "pods",
    "pods/ephemeralcontainers",
    "replicationcontrollers",
    "services",
    "serviceaccounts",
    "persistentvolumeclaims",
    "events",
)
_MORE = (
    ("apps", ("daemonsets", "deployments", "replicasets", "statefulsets")),
    ("autoscaling", ("horizontalpodautoscalers",)),
    ("batch", ("cronjobs", "jobs")),
    ("coordination.k8s.io", ("leases",)),
    ("events.k8s.io", ("events",)),
    ("networking.k8s.io", ("ingresses", "networkpolicies")),
    ("policy", ("poddisruptionbudgets",)),
    ("rbac.authorization.k8s.io", ("rolebindings", "roles")),
    ("resource.k8s.io", ("resourceclaims", "resourceclaimtemplates")),
    (GROUP, ("rolerequests", "sliceclaims", "subnamespaces")),
)


def _bytes(of: str) -> str:
    """Return CEL: the bytes of an object."""
    return f"size(bytes('%s'.format([{of}])))"


_ESCAPED = {'"': 2, "\\": 2, "\a": 2, "\b": 2, "\f": 2, "\n": 2, "\r": 2, "\t": 2, "\v": 2}
_ASCII, _BASIC_PLANE = 0x7F, 0xFFFF


def _quoted_bytes(text: str) -> int:
    """Return the bytes of a string that Go quotes. Source: Go, strconv.Quote."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return len(text) + 2
    return 2 + sum(_character_bytes(each) for each in text)


def _character_bytes(character: str) -> int:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return len(character.encode())
    code = ord(character)
    return 4 if code <= _ASCII else 6 if code <= _BASIC_PLANE else 10


def bytes_of(value: Any) -> int:  # noqa: ANN401 - the object, or any part of one
    """Return the bytes of an object, or of a part of one, as the policy counts them."""
    if isinstance(value, str):
        return _quoted_bytes(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value)
        return sum(_quoted_bytes(key) + 1 + bytes_of(entries[key]) for key in entries) + 2 * max(len(entries), 1)
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return sum(map(bytes_of, items)) + 2 * max(len(items), 1)
    if value is None or isinstance(value, bool):
        return len("false" if value is False else "true")
    return len(f"{value:.6f}" if isinstance(value, float) else str(value))


def _is_written_by_a_person(request: Request) -> bool:
    return not is_control_plane(request.user) and not is_mirrored(request)


SIZES = RuleTarget(
    name="sizes",
    group="",
    resources=_CORE,
    more=_MORE,
    conditions={"written-by-a-person": f"!{CONTROL_PLANE} && {NOT_MIRRORED}"},
    variables={"bytes": _bytes("object")},
    concerns=_is_written_by_a_person,
    # Kubernetes writes a ServiceAccount into every new namespace, whose rules are not there yet.
    missing="Allow",
    many=True,
    spared=True,
    is_rarely_reported=True,
)
IS_LARGER = f"request.operation == 'CREATE' || variables.bytes > {_bytes('oldObject')}"
"""CEL: an object that was allowed once may be changed as long as it does not grow."""


def is_larger(request: Request) -> bool:
    """Return `IS_LARGER` in Python."""
    return request.operation == "CREATE" or bytes_of(request.object) > bytes_of(request.old_object)


def _noun(review: Review) -> str:
    return str(review.request.object.get("kind", "object")).lower()


_PLAIN: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
ANY_OBJECT = CheckScope(
    target=SIZES.name,
    path="request.kind.kind.lowerAscii() + ' \\'' + object.metadata.?name.orValue('') + '\\''",
    values=lambda review: [(name_of(_noun(review), review.request.object), review.request.object)],
    held=lambda value: [(name_of(str(value.get("kind", "object")).lower(), value), value)],
    sample=lambda fragment: merged(_PLAIN, fragment),
)
