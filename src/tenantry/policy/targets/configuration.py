"""ConfigMaps and Secrets: the bytes that etcd stores for one object, in CEL and in Python.

The API server stores the keys of an object again for each field manager (`metadata.managedFields`), and bounds only the
number of managers that do not use server-side apply. So each key counts once more for each manager.
Source: Kubernetes, "Server-Side Apply" (managers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

MANAGER_BYTES = 256
"""The bytes of a field manager without the keys: its name has at most 128 characters."""

MOST_ENTRIES = 2000
"""The most entries that are looked at: an expression that costs too much would refuse every request, also the one that
makes a long object shorter."""

MANY_ENTRIES_BYTES = 1572864
"""The bytes of an object with more entries: the most that etcd stores. Source: etcd, "System limits"."""

_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_NOUN = f"(request.resource.resource == '{SECRETS}' ? 'secret' : 'configmap')"


def _map_bytes(of: str, field: str, size: Callable[[str], str]) -> str:
    """Return CEL: the bytes of a map of texts; `copies` in the expression is how often each key is stored.

    Args:
        of: The object.
        field: The path of the map.
        size: From CEL for a value to CEL for its bytes.
    """
    entry = f"size(bytes(string(k))) * copies + {size(f'{of}.{field}[k]')} + {ENTRY_BYTES}"
    return f"(has({of}.{field}) ? {of}.{field}.map(k, {entry}).sum() : 0)"


def _text(value: str) -> str:
    return f"size(bytes(string({value})))"


def _base64(value: str) -> str:
    # The API server accepts null for "".
    return f"(dyn({value}) == null ? 0 : size(string({value})) * 3 / 4)"


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
    values = f"(request.resource.resource == '{SECRETS}' ? {_map_bytes(of, 'data', _base64)}"
    values += f" : {_map_bytes(of, 'data', _text)})"
    owner = " + ".join(_text(f"o.{field}") for field in _OWNER_FIELDS)
    owner += f" + {_text('o.uid')} * (copies - 1) + {ENTRY_BYTES}"
    managers = f"(has({of}.metadata.managedFields) ? size({of}.metadata.managedFields) : 0)"
    total = " + ".join(
        (
            values,
            # A Secret has no such field, which its schema would report, and a ConfigMap has no type.
            f"(request.resource.resource == '{CONFIG_MAPS}' ? {_map_bytes(of, 'binaryData', _base64)} : 0)",
            f"(request.resource.resource == '{SECRETS}' ? size(bytes({of}.?type.orValue(''))) : 0)",
            _map_bytes(of, "metadata.annotations", _text),
            _map_bytes(of, "metadata.labels", _text),
            f"(has({of}.metadata.ownerReferences) ? {of}.metadata.ownerReferences.map(o, {owner}).sum() : 0)",
            f"(has({of}.metadata.finalizers) ? {of}.metadata.finalizers.map(f, size(f) * copies).sum() : 0)",
            f"(copies - 1) * {MANAGER_BYTES}",
        )
    )
    return f"[{managers} + 1].map(copies, {total})[0]"


def _texts_of(entries: Mapping[str, Any], copies: int, *, is_base64: bool = False) -> int:
    return sum(
        len(key.encode()) * copies + (len(value or "") * 3 // 4 if is_base64 else len(value.encode())) + ENTRY_BYTES
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
    copies = len(parts(meta, "managedFields")) + 1
    return (
        _texts_of(part(value, "data"), copies, is_base64=resource == SECRETS)
        + (_texts_of(part(value, "binaryData"), copies, is_base64=True) if resource == CONFIG_MAPS else 0)
        + (len(value.get("type", "").encode()) if resource == SECRETS else 0)
        + _texts_of(part(meta, "annotations"), copies)
        + _texts_of(part(meta, "labels"), copies)
        + sum(_owner_bytes(owner, copies) for owner in parts(meta, "ownerReferences"))
        + sum(len(each) * copies for each in texts(meta, "finalizers"))
        + (copies - 1) * MANAGER_BYTES
    )


def _owner_bytes(owner: Json, copies: int) -> int:
    fields = sum(len(str(owner.get(field, "")).encode()) for field in _OWNER_FIELDS)
    # A manager's entry names the owner by its uid.
    return fields + len(str(owner.get("uid", "")).encode()) * (copies - 1) + ENTRY_BYTES


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
