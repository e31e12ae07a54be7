"""What the cache keeps of an object: its metadata's part that is ours, and a digest of the fields that we decide.

10,000 tenants are 70,000 objects: the whole text of each would not fit in the memory that is promised.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import msgspec

from tenantry.api import policyparameters
from tenantry.api.contribution import REGISTER_MARK
from tenantry.api.hostregister import HOSTS_MARK
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.marks import (
    BY_OTHERS,
    GIVEN_ANNOTATIONS,
    GIVEN_LABELS,
    GROUP,
    INHERITED_FROM,
    MANAGED_BY,
    MANAGER,
)
from tenantry.api.model import Json, KubernetesObject, Resource, object_key
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.world import inheritance

_canonical = msgspec.json.Encoder(order="sorted")
_any = msgspec.json.Decoder()
_text = msgspec.json.Decoder(str)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Owner(msgspec.Struct, frozen=True, gc=False):
    uid: str
    controller: bool = False


class _Manager(msgspec.Struct, frozen=True, gc=False):
    manager: str = ""
    subresource: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] = ()
    deletion_timestamp: str = ""
    managed_fields: tuple[_Manager, ...] = ()


class _Live(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An object as it comes, with the fields that a digest may cover left undecoded."""

    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw()
    role_ref: msgspec.Raw = msgspec.Raw()
    subjects: msgspec.Raw = msgspec.Raw()
    rules: msgspec.Raw = msgspec.Raw()


_live = msgspec.json.Decoder(_Live)
_ATTRIBUTES = {"spec": "spec", "roleRef": "role_ref", "subjects": "subjects", "rules": "rules"}


class Observed(msgspec.Struct, frozen=True, gc=False):
    """An object as it was last seen.

    Args:
        key: `namespace/name`, or the name of a cluster-scoped object.
        version: The resourceVersion.
        labels: The labels that are ours to set; all of a namespace.
        annotations: The annotations that are ours to set; all of a namespace. See also `remembered`.
        owner_uid: The uid of its controlling owner, "" for none.
        deleting: It has a deletionTimestamp.
        digest: Of the fields in `Resource.owned`.
        has_subjects: It is a binding with subjects.
    """

    key: str
    namespace: str
    name: str
    uid: str
    version: int
    labels: dict[str, str]
    annotations: dict[str, str]
    owner_uid: str
    deleting: bool
    digest: bytes
    has_subjects: bool


class ObservedQuota(Observed, frozen=True, gc=False):
    """A ResourceQuota as it was last seen; the maps are quota key to quantity, as the server writes them.

    Args:
        hard: `spec.hard`.
        in_force: `status.hard`, what admission counts against; a key that it lacks is not counted.
        used: `status.used`.
        is_scoped: It counts only some pods; the API server never changes the scopes of a ResourceQuota.
        is_tracked: The API server records who sets its fields.
    """

    hard: dict[str, str]
    in_force: dict[str, str]
    used: dict[str, str]
    is_scoped: bool = False
    is_tracked: bool = False


class ObservedRegister(Observed, frozen=True, gc=False):
    """A part of the register of hosts, or the register of contributed nodes, as it was last seen.

    Args:
        entries: Its texts.
    """

    entries: dict[str, str]


class Inheritable(Observed, frozen=True, gc=False):
    """An object that children may inherit, or a copy of one.

    Args:
        likeness: A digest of everything that source and copy have in common.
        writer: The one field manager that ever wrote it, its status apart; "" if there are several.
    """

    likeness: bytes
    writer: str = ""


class _QuotaSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    hard: dict[str, str] = {}
    scopes: tuple[str, ...] | None = None
    scope_selector: msgspec.Raw = msgspec.Raw()


class _QuotaStatus(msgspec.Struct, frozen=True, gc=False):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class _LiveQuota(msgspec.Struct, frozen=True, gc=False):
    spec: _QuotaSpec = _QuotaSpec()
    status: _QuotaStatus = _QuotaStatus()


_live_quota = msgspec.json.Decoder(_LiveQuota)

_NO_SUBJECTS = (b"", b"null", b"[]")
_NOTHING: dict[str, str] = {}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Another copy of the whole object, which is as long, and which only kubectl uses."""


@lru_cache(maxsize=4096)
def is_ours(key: str) -> bool:
    """Return whether a label or annotation key is one that only what makes an object writes on it."""
    prefix, slash, _ = key.partition("/")
    if key in BY_OTHERS:
        return False
    return key == MANAGED_BY or bool(slash and (prefix == GROUP or prefix.endswith(f".{GROUP}")))


def given(annotations: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
    """Return the keys of others that we put on an object, and take away again, by `labels` and `annotations`."""
    said = annotations or _NOTHING
    where = (("labels", GIVEN_LABELS), ("annotations", GIVEN_ANNOTATIONS))
    return {marks: frozenset(said[mark].split(",")) if mark in said else frozenset() for marks, mark in where}


def _kept(resource: Resource, marks: dict[str, str] | None) -> dict[str, str]:
    """Return the marks that matter: all of a namespace, which selectors and its tenant's own marks are about."""
    if not marks:
        return _NOTHING
    if resource.plural == "namespaces":
        return {key: value for key, value in marks.items() if key != _LAST_APPLIED} or _NOTHING
    return {key: remembered(key, value) for key, value in marks.items() if is_ours(key)} or _NOTHING


def remembered(key: str, value: str) -> str:
    """Return the value that the cache keeps of a label or annotation: of parameters of policies only a digest."""
    if not key.startswith(policyparameters.PREFIX):
        return value
    return blake2b(value.encode(), digest_size=16).hexdigest()


def observe(resource: Resource, data: bytes | msgspec.Raw) -> Observed:
    """Return what the cache keeps of an object, which is more of quotas, registers, and what may be inherited.

    Raises:
        msgspec.MsgspecError: The data is no object.
    """
    live = _live.decode(data)
    meta = live.metadata
    is_copied = resource.owned == inheritance.WHOLE
    seen = Observed(
        key=object_key(meta.namespace, meta.name),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=int(meta.resource_version),
        labels=_kept(resource, meta.labels),
        annotations=_kept(resource, meta.annotations),
        owner_uid=next((owner.uid for owner in meta.owner_references if owner.controller), ""),
        deleting=bool(meta.deletion_timestamp),
        digest=b"" if is_copied else _digest([getattr(live, _ATTRIBUTES[field]) for field in resource.owned]),
        has_subjects=bytes(live.subjects) not in _NO_SUBJECTS,
    )
    if seen.labels.get(OWN_MARK) in (HOSTS_MARK, REGISTER_MARK) and not is_copied:
        return ObservedRegister(**msgspec.structs.asdict(seen), entries=policyparameters.texts_of(meta.annotations))
    if is_copied or resource.full_name in inheritance.SEVEN:
        return _with_likeness(resource.full_name, seen, meta, data)
    return _with_quantities(seen, meta, data) if resource == ResourceQuota.resource else seen


def _with_quantities(seen: Observed, meta: _Metadata, data: bytes | msgspec.Raw) -> ObservedQuota:
    live = _live_quota.decode(data)
    return ObservedQuota(
        **msgspec.structs.asdict(seen),
        hard=live.spec.hard,
        in_force=live.status.hard,
        used=live.status.used,
        is_scoped=bool(live.spec.scopes) or bytes(live.spec.scope_selector) not in (b"", b"null"),
        is_tracked=bool(meta.managed_fields),
    )


def _with_likeness(kind: str, seen: Observed, meta: _Metadata, data: bytes | msgspec.Raw) -> Observed:
    is_ours_alone = seen.labels.get(MANAGED_BY) == MANAGER and INHERITED_FROM not in seen.labels
    if is_ours_alone:
        return seen  # thousands of them, and none is ever inherited
    whole = _fields.decode(data)
    secret_type = _text.decode(whole["type"]) if kind == inheritance.SECRETS.full_name and "type" in whole else ""
    if not inheritance.is_heritable(kind, seen.name, secret_type, controlled=bool(seen.owner_uid)):
        return seen
    content = inheritance.content(kind, whole)
    marks = [inheritance.carried(meta.labels), inheritance.carried(meta.annotations)]
    text = _canonical.encode([*marks, {key: _any.decode(value) for key, value in content.items()}])
    writers = {each.manager for each in meta.managed_fields if not each.subresource}
    return Inheritable(
        **msgspec.structs.asdict(seen),
        likeness=blake2b(text, digest_size=16).digest(),
        writer=writers.pop() if len(writers) == 1 else "",
    )


def _digest(parts: list[msgspec.Raw]) -> bytes:
    if not parts:
        return b""
    text = b"\0".join(_canonical.encode(_any.decode(part)) if part else b"" for part in parts)
    return blake2b(text, digest_size=16).digest()


def owned_fields(value: KubernetesObject) -> Json:
    """Return the top-level fields of an object that are ours, as JSON values; those left out are absent."""
    whole: Json = msgspec.to_builtins(value)
    return {field: whole[field] for field in value.resource.owned if field in whole}


def fingerprint(value: KubernetesObject) -> bytes:
    """Return the digest that the object will have once the server stores it as it is."""
    if not value.resource.owned:
        return b""
    fields = owned_fields(value)
    text = b"\0".join(_canonical.encode(fields[f]) if f in fields else b"" for f in value.resource.owned)
    return blake2b(text, digest_size=16).digest()
