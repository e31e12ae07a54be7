"""What several tools have in common: roles, allow-lists and patterns, in Tenantry's form. Pure.

An allow-list is never loosened: a part of it that Tenantry cannot express is left out, so that less is allowed than
before, and the finding names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api.kubernetes import RBAC_GROUP, LimitRange, NetworkPolicy, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.ruledeclarations import MAX_NAMES, MAX_PATTERNS
from tenantry.world.imports.fields import Fields
from tenantry.world.imports.findings import FindingWeight, ImportFindings
from tenantry.world.imports.form import ImportedObject
from tenantry.world.imports.objects import ReadObject, SourceObjects
from tenantry.world.rulechecks import is_pattern

OWNING = frozenset({"admin", "cluster-admin"})
"""ClusterRoles of Kubernetes that an owner of a Tenant has, at least in part."""
_LONGEST_NAME, _LONGEST_PATTERN = 253, 256


def allowed_names(fields: Fields, key: str, findings: ImportFindings) -> tuple[str, ...] | UnsetType:
    """Take an allow-list of names, with its default; unset if there is none.

    Args:
        fields: The map with the list.
        key: Its field: a map with `allowed` and `default`, and perhaps with what Tenantry does not have.
        findings: Gets what is left out.
    """
    if not fields.has(key):
        return UNSET
    inner = fields.part(key)
    default = inner.peek("default")
    listed = [*inner.texts("allowed"), *([default] if isinstance(default, str) and default else [])]
    names: list[str] = list(dict.fromkeys(listed))
    kept = tuple(name for name in names if name and name.isprintable() and len(name) <= _LONGEST_NAME)[:MAX_NAMES]
    if len(kept) < len(names):
        text = f"{inner.path}.allowed: {len(names) - len(kept)} names are not carried over: at most {MAX_NAMES} fit"
        findings.add(FindingWeight.LOST, inner.told, text)
    return kept


def escaped(text: str) -> str:
    """Return a pattern of RE2 that matches only a text."""
    return re.escape(text).replace("\\.", "[.]")


def patterns(found: Iterable[str], told: str, path: str, findings: ImportFindings) -> tuple[str, ...]:
    """Return the patterns that a rule can have; the others are reported."""
    kept: list[str] = []
    for pattern in found:
        if len(pattern) > _LONGEST_PATTERN or not pattern.isprintable() or not is_pattern(pattern):
            text = f"{path}: {pattern[:64]!r} is not carried over: it is no regular expression of RE2 that fits"
            findings.add(FindingWeight.LOST, told, text)
        elif len(kept) == MAX_PATTERNS:
            text = f"{path}: {pattern[:64]!r} is not carried over: a rule has at most {MAX_PATTERNS} patterns"
            findings.add(FindingWeight.LOST, told, text)
        elif pattern not in kept:
            kept.append(pattern)
    return tuple(kept)


def unanchored(pattern: str, before: str, after: str = "") -> str:
    """Return a pattern that matches whole values, of one that matched anywhere.

    Args:
        pattern: The pattern, perhaps with ^ and $ at its ends.
        before: What may stand around the match, as a pattern: ".*", or "[^/]*" inside of a part.
        after: What follows the part.
    """
    if pattern.startswith(".*"):
        pattern = f"^{pattern}"
    start = "" if pattern.startswith("^") else before
    is_closed = pattern.endswith("$") and not pattern.endswith("\\$")
    end = "" if is_closed else before
    inner = pattern.removeprefix("^")
    return f"{start}(?:{inner[:-1] if is_closed else inner}){end}{after}"


def binding(namespace: str, cluster_role: str, subjects: Sequence[Owner]) -> ImportedObject:
    """Return a RoleBinding; its name depends on what it says, so that a repeated import finds it."""
    listed = [subject(each) for each in subjects]
    text = repr((cluster_role, sorted(map(repr, listed))))
    body: dict[str, object] = {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": cluster_role},
        "subjects": listed,
    }
    return ImportedObject(RoleBinding.resource, namespace, _named(text), body)


def subject(owner: Owner) -> dict[str, object]:
    """Return an owner as a subject of RBAC."""
    if owner.kind is OwnerKind.SERVICE_ACCOUNT:
        return {"kind": owner.kind.value, "name": owner.name, "namespace": owner.namespace}
    return {"apiGroup": RBAC_GROUP, "kind": owner.kind.value, "name": owner.name}


def network_policy(namespace: str, spec: object) -> ImportedObject:
    """Return a NetworkPolicy with a spec."""
    return _with_spec(NetworkPolicy.resource, namespace, spec)


def limit_range(namespace: str, spec: object) -> ImportedObject:
    """Return a LimitRange with a spec."""
    return _with_spec(LimitRange.resource, namespace, spec)


def _with_spec(resource: Resource, namespace: str, spec: object) -> ImportedObject:
    name = _named(msgspec.json.encode(spec, order="sorted").decode())
    return ImportedObject(resource, namespace, name, {"spec": spec})


def _named(text: str) -> str:
    return f"imported-{sha256(text.encode()).hexdigest()[:12]}"


def without_counterpart(world: SourceObjects, kinds: dict[str, str], findings: ImportFindings) -> None:
    """Report the objects of kinds that have no counterpart, with the names of the fields that they set.

    Args:
        world: The objects.
        kinds: Kind to why it is lost, and what to do.
        findings: Gets the reports.
    """
    for kind, text in kinds.items():
        for found in world.of(kind):
            tell(found, text, findings)


def tell(found: ReadObject, text: str, findings: ImportFindings) -> None:
    """Report an object that has no counterpart, field by field."""
    found.fields.settle("status")
    said = dict.fromkeys(("spec", "data"), text)
    if found.fields.has("spec"):
        found.fields.part("spec")
    left = list(found.fields.left())
    if not left:
        findings.add(FindingWeight.LOST, found.told, text)
    found.fields.report(findings, {**said, **dict.fromkeys(left, text)})


def finish(found: ReadObject, known: Mapping[str, str], findings: ImportFindings) -> None:
    """Report every field of an object that its reader did not take.

    Args:
        found: The object.
        known: JSON path to why the field is lost, and what to do.
        findings: Gets the reports.
    """
    found.fields.settle("status")
    found.fields.report(findings, known)
