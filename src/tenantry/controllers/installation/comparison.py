"""How an installed object differs from the shipped one: pure. The audit, the installation and the operator use this.

    shipped ─► stored(): with the defaults of the API server ─┐
    live    ───────────────────────────────────────────────────┴► differing(): fields ─► exact(): the object to write

Helm writes its own value of `app.kubernetes.io/managed-by` on what it installs, which is no difference; see `release`.

A merge cannot remove what another client added, such as a condition that turns a policy off. So `exact` is an object
for a PUT: the live one, with every field that is compared as it is shipped.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import cast

from tenantry.api.model import Json
from tenantry.controllers.installation.release import is_helms
from tenantry.engine.plan import is_same_json

LABELS_ONLY = ("Namespace", "PriorityLevelConfiguration", "FlowSchema", "LimitRange")
"""Kinds of which only the marks are compared: other controllers of Tenantry, or Kubernetes, decide the rest."""

_NOT_COMPARED = frozenset({"apiVersion", "kind", "metadata", "status"})
_POLICIES = "AdmissionPolicy"

_AGGREGATES = re.compile(r"(.*/)?aggregate-to-.*")
"""Labels of ClusterRoles by which other roles collect their rules, of Tenantry and of Kubernetes: they give rights."""


def stored(shipped: Json) -> Json:
    """Return a shipped object as the API server stores it.

    Source: k8s.io/kubernetes, pkg/apis/admissionregistration/v1/defaults.go; k8s.io/apiextensions-apiserver,
    pkg/apis/apiextensions/v1/defaults.go.
    """
    value: Json = copy.deepcopy(shipped)
    spec: Json = value.get("spec", {})
    if value["kind"].endswith(_POLICIES):
        _match(spec["matchConstraints"])
    elif value["kind"].endswith(f"{_POLICIES}Binding") and "matchResources" in spec:
        _match(spec["matchResources"])
    elif value["kind"] == "CustomResourceDefinition":
        spec.setdefault("conversion", {"strategy": "None"})
        spec["names"] = {key: names for key, names in spec["names"].items() if names}
    return value


def _match(match: Json) -> None:
    """Add the defaults of what a policy or a binding matches."""
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for key in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(key, ()):
            rule.setdefault("scope", "*")


def differing(shipped: Json, live: Json) -> list[str]:
    """Return the fields in which a live object differs, as JSON paths.

    Marks that are not shipped are no difference, but for the labels by which other roles collect the rules of a role.

    Args:
        shipped: As it is stored; see `stored`.
        live: As the API server returned it.
    """
    found = list(_marks(shipped["metadata"], live["metadata"]))
    found += [f"metadata.labels[{name}]" for name in _added(shipped, live)]
    for part in _parts(shipped, live):
        found += fields(part, shipped.get(part), live.get(part))
    return found


def marks_of(meta: Json, key: str) -> dict[str, str]:
    """Return the labels or annotations of an object's metadata."""
    return meta.get(key) or {}


def exact(shipped: Json, live: Json) -> Json:
    """Return the live object with everything that is compared as it is shipped, at its resourceVersion."""
    compared = _parts(shipped, live)
    rest = {key: value for key, value in live.items() if key not in compared}
    meta: Json = {**live["metadata"]}
    for key in ("labels", "annotations"):
        if key in shipped["metadata"]:
            given = marks_of(meta, key)
            meta[key] = {
                **given,
                **{
                    name: value
                    for name, value in marks_of(shipped["metadata"], key).items()
                    if not is_helms(name, given.get(name, ""))
                },
            }
    for name in _added(shipped, live):
        meta["labels"] = {key: value for key, value in meta["labels"].items() if key != name}
    return {**rest, **{part: shipped[part] for part in compared if part in shipped}, "metadata": meta}


def fields(path: str, wanted: object, found: object) -> list[str]:
    """Return the first fields in which two values differ, below their last common object."""
    if is_same_json(wanted, found):
        return []
    if isinstance(wanted, dict) and isinstance(found, dict):
        one, other = cast("Json", wanted), cast("Json", found)
        return [
            field for key in sorted({*one, *other}) for field in fields(f"{path}.{key}", one.get(key), other.get(key))
        ]
    return [path]


def restricted(value: object, like: object) -> object:
    """Return the part of a value that a manifest has fields for; the rest are defaults, or fields of other writers."""
    if isinstance(value, dict) and isinstance(like, dict):
        given, wanted = cast("Json", value), cast("Json", like)
        return {key: restricted(given.get(key), inner) for key, inner in wanted.items()}
    if isinstance(value, list) and isinstance(like, list):
        items, models = cast("list[object]", value), cast("list[object]", like)
        if len(items) == len(models):
            return [restricted(item, model) for item, model in zip(items, models, strict=True)]
    return cast("object", value)


def _parts(shipped: Json, live: Json) -> Sequence[str]:
    """Return the top-level fields that are compared."""
    if shipped["kind"] in LABELS_ONLY:
        return ()
    # Kubernetes collects the rules of an aggregated role from other roles.
    collected = {"rules"} if "aggregationRule" in shipped else set[str]()
    return sorted({*shipped, *live} - _NOT_COMPARED - collected)


def _marks(shipped: Json, live: Json) -> Iterator[str]:
    for key in ("labels", "annotations"):
        wanted, there = marks_of(shipped, key), marks_of(live, key)
        yield from (
            f"metadata.{key}[{name}]"
            for name in wanted
            if there.get(name) != wanted[name] and not is_helms(name, there.get(name, ""))
        )


def _added(shipped: Json, live: Json) -> list[str]:
    """Return the labels by which other roles collect the rules of a role, and which it is not shipped with."""
    if shipped["kind"] != "ClusterRole":
        return []
    given = marks_of(shipped["metadata"], "labels")
    return [name for name in marks_of(live["metadata"], "labels") if name not in given and _AGGREGATES.fullmatch(name)]
