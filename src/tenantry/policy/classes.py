"""Which classes the rules of a namespace let its users name: pure.

    StorageClass "fast" ─► a claim of that class ─► the checks of the rules about classes ─► allowed or not

The checks are those of `policy/rules`, asked about the smallest object that names the class.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenantry.api.tenancyrules import Section
from tenantry.policy.catalog import CHECKS, TARGETS
from tenantry.policy.request import Request, Review
from tenantry.policy.rules import hostnames, priorityclasses, runtimeclasses, storageclasses
from tenantry.world.rules import DEFAULT_CLASS, RUNTIME_CLASS

STORAGE_CLASS, INGRESS_CLASS, PRIORITY_CLASS, RUNTIME = "StorageClass", "IngressClass", "PriorityClass", "RuntimeClass"

_RULES = {
    STORAGE_CLASS: {storageclasses.ALLOWED},
    INGRESS_CLASS: {hostnames.INGRESS_CLASSES},
    PRIORITY_CLASS: {check.rule for check in priorityclasses.CHECKS},
    RUNTIME: {check.rule for check in runtimeclasses.CHECKS},
}
"""The kind of a class to the rules about its name."""

_CHECKS = {kind: [check for check in CHECKS if check.rule in rules] for kind, rules in _RULES.items()}
_FORMS = {
    "refused": {check.rule for checks in _CHECKS.values() for check in checks if check.form == "refused"},
    "allowed": {storageclasses.RECLAIM_POLICIES, *(rule for rules in _RULES.values() for rule in rules)},
    "chosen": {DEFAULT_CLASS, RUNTIME_CLASS},
}
DELETE = "Delete"
"""The reclaim policy of a StorageClass that names none. Source: Kubernetes, "Storage Classes" (reclaim policy)."""


def about_classes(rules: Section) -> Section:
    """Return the rules of a section that decide here."""
    return msgspec.structs.replace(
        Section(),
        refused={path: value for path, value in rules.refused.items() if path in _FORMS["refused"]},
        allowed={path: value for path, value in rules.allowed.items() if path in _FORMS["allowed"]},
        chosen={path: value for path, value in rules.chosen.items() if path in _FORMS["chosen"]},
    )


def is_allowed(
    kind: str, name: str, rules: Section, namespace_labels: Mapping[str, str], *, reclaim_policy: str = DELETE
) -> bool:
    """Return whether users of a namespace may name a class.

    Args:
        kind: The kind of the class.
        name: Its name.
        rules: The section of the namespace's rules that is enforced; `about_classes` of it is enough.
        namespace_labels: The labels of the namespace.
        reclaim_policy: That of a StorageClass.
    """
    request = _naming(kind, name, namespace_labels, reclaim_policy)
    review = Review(request, rules)
    targets = {target.name for target in TARGETS if target.matches(request)}
    asked = [check for check in _CHECKS[kind] if check.scope.target in targets]
    return not any(check.violations(review) for check in asked) and not any(storageclasses.kept(review))


def default_class(kind: str, rules: Section) -> str:
    """Return the class that rules give to objects that name none; "" if they leave it to the cluster."""
    chosen = rules.chosen.get(DEFAULT_CLASS) if kind == STORAGE_CLASS else None
    return chosen.value if chosen is not None else ""


def _naming(kind: str, name: str, labels: Mapping[str, str], reclaim_policy: str) -> Request:
    """Return the request to create the smallest object that names a class."""
    match kind:
        case "StorageClass":
            policies = {name: reclaim_policy}
            value = {"spec": {"storageClassName": name}}
            return Request(
                resource="persistentvolumeclaims", object=value, namespace_labels=labels, reclaim_policies=policies
            )
        case "IngressClass":
            value = {"spec": {"ingressClassName": name}}
            return Request(group="networking.k8s.io", resource="ingresses", object=value, namespace_labels=labels)
        case _:
            field = "priorityClassName" if kind == PRIORITY_CLASS else "runtimeClassName"
            return Request(resource="pods", object={"spec": {field: name}}, namespace_labels=labels)
