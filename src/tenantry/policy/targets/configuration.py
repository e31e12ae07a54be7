"""ConfigMaps and Secrets, which hold what their author likes: the rules see how many bytes one has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenantry.policy.check import CheckScope, RuleTarget, quoted
from tenantry.policy.mend import merged
from tenantry.policy.request import Json, Request, Review, part, parts, texts
from tenantry.policy.targets.objects import name_of

HELM_RELEASE = "helm.sh/release.v1"
"""The type of the Secrets in which Helm keeps its releases. Source: Helm, "Advanced Techniques" (storage backends)."""

CONFIG_MAPS, SECRETS, HELM_RELEASES = "configmaps", "secrets", "helmReleases"

ENTRY_BYTES = 64
"""What the API server needs for an entry of a map beside its text: many short entries cost more than one long one."""

MOST_ENTRIES = 2000
"""The most entries that are looked at: an expression that costs too much would refuse every request, also the one that
makes a long object shorter."""

MANY_ENTRIES_BYTES = 1572864
"""The bytes of an object with more entries: the most that etcd stores. Source: etcd, "System limits"."""

_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_NOUN = f"(request.resource.resource == '{SECRETS}' ? 'secret' : 'configmap')"


def _map_bytes(of: str, field: str, value: str) -> str:
    """Return CEL: the bytes of a map of texts; `value` is CEL for the bytes of the value `v`."""
    entry = f"size(bytes(string(k))) + {value.replace('v', f'{of}.{field}[k]')} + {ENTRY_BYTES}"
    return f"(has({of}.{field}) ? {of}.{field}.map(k, {entry}).sum() : 0)"


_TEXT, _BASE64 = "size(bytes(string(v)))", "size(string(v)) * 3 / 4"


def _entries(of: str) -> str:
    """Return CEL: how many entries the maps and lists of an object have."""
    fields = ("data", "metadata.annotations", "metadata.labels", "metadata.ownerReferences", "metadata.finalizers")
    found = [f"(has({of}.{field}) ? size({of}.{field}) : 0)" for field in fields]
    binary = f"has({of}.binaryData) ? size({of}.binaryData) : 0"
    return " + ".join((*found, f"(request.resource.resource == '{CONFIG_MAPS}' ? ({binary}) : 0)"))


def _bytes(of: str) -> str:
    """Return CEL: the bytes of an object."""
    return f"({_entries(of)} > {MOST_ENTRIES} ? {MANY_ENTRIES_BYTES} : {_summed(of)})"


def _summed(of: str) -> str:
    """Return CEL: the sum over an object. The values of Secrets and of binaryData are base64 here."""
    values = f"(request.resource.resource == '{SECRETS}' ? {_map_bytes(of, 'data', _BASE64)}"
    values += f" : {_map_bytes(of, 'data', _TEXT)})"
    owner = " + ".join(f"size(bytes(string(o.{field})))" for field in _OWNER_FIELDS)
    owners = f"{of}.metadata.ownerReferences.map(o, {owner} + {ENTRY_BYTES}).sum()"
    return " + ".join(
        (
            values,
            # A Secret has no such field, which its schema would report.
            f"(request.resource.resource == '{CONFIG_MAPS}' ? {_map_bytes(of, 'binaryData', _BASE64)} : 0)",
            _map_bytes(of, "metadata.annotations", _TEXT),
            _map_bytes(of, "metadata.labels", _TEXT),
            f"(has({of}.metadata.ownerReferences) ? {owners} : 0)",
            f"(has({of}.metadata.finalizers) ? {of}.metadata.finalizers.map(f, size(f)).sum() : 0)",
        )
    )


def _texts_of(entries: Mapping[str, Any], *, is_base64: bool = False) -> int:
    return sum(
        len(key.encode()) + (len(value) * 3 // 4 if is_base64 else len(value.encode())) + ENTRY_BYTES
        for key, value in entries.items()
    )


def entries_of(value: Json, resource: str) -> int:
    """Return how many entries the maps and lists of a ConfigMap or Secret have."""
    meta = part(value, "metadata")
    maps = [part(value, "data"), part(meta, "annotations"), part(meta, "labels")]
    maps += [part(value, "binaryData")] if resource == CONFIG_MAPS else []
    lists = [parts(meta, "ownerReferences"), texts(meta, "finalizers")]
    return sum(map(len, maps)) + sum(map(len, lists))


def bytes_of(value: Json, resource: str) -> int:
    """Return the bytes of a ConfigMap or Secret, as the policy counts them."""
    if entries_of(value, resource) > MOST_ENTRIES:
        return MANY_ENTRIES_BYTES
    meta = part(value, "metadata")
    return (
        _texts_of(part(value, "data"), is_base64=resource == SECRETS)
        + (_texts_of(part(value, "binaryData"), is_base64=True) if resource == CONFIG_MAPS else 0)
        + _texts_of(part(meta, "annotations"))
        + _texts_of(part(meta, "labels"))
        + sum(
            sum(len(str(owner.get(field, "")).encode()) for field in _OWNER_FIELDS) + ENTRY_BYTES
            for owner in parts(meta, "ownerReferences")
        )
        + sum(len(each) for each in texts(meta, "finalizers"))
    )


def kind_of(request: Request) -> str:
    """Return the key of `objects.maxSizes` that decides about an object."""
    if request.resource == CONFIG_MAPS:
        return CONFIG_MAPS
    return HELM_RELEASES if request.object.get("type") == HELM_RELEASE else SECRETS


def _is_checked(_: Request) -> bool:
    return True


CONFIGURATION = RuleTarget(
    name="configuration",
    group="",
    resources=(SECRETS, CONFIG_MAPS),
    conditions={},
    variables={
        "entries": _entries("object"),
        "bytes": _bytes("object"),
        "kind": f"request.resource.resource == '{CONFIG_MAPS}' ? '{CONFIG_MAPS}'"
        f" : object.?type.orValue('') == {quoted(HELM_RELEASE)} ? '{HELM_RELEASES}' : '{SECRETS}'",
    },
    concerns=_is_checked,
    # Kubernetes writes a ConfigMap into every new namespace, whose rules are not there yet.
    missing="Allow",
    many=True,
)
IS_LARGER = f"request.operation == 'CREATE' || variables.bytes > {_bytes('oldObject')}"
"""CEL: an object that was allowed once may be changed as long as it does not grow."""


def is_larger(request: Request) -> bool:
    """Return `IS_LARGER` in Python."""
    before = bytes_of(request.old_object, request.resource)
    return request.operation == "CREATE" or bytes_of(request.object, request.resource) > before


def _noun(review: Review) -> str:
    return "secret" if review.request.resource == SECRETS else "configmap"


_PLAIN: Json = {"metadata": {"name": "c"}, "data": {"key": "dmFsdWU="}}
OBJECT = CheckScope(
    target=CONFIGURATION.name,
    path=f"{_NOUN} + ' \\'' + object.metadata.name + '\\''",
    values=lambda review: [(name_of(_noun(review), review.request.object), review.request.object)],
    held=lambda value: [(name_of("secret", value), value)],
    sample=lambda fragment: merged(_PLAIN, fragment),
)
