"""Checks of quotas: a tenant has a share, and cannot make it larger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api.kubernetes import LimitRange, ResourceQuota
from tenantry.audit import kinds
from tenantry.audit.attempts import create, delete, get, may, patch, pod, rows, table
from tenantry.audit.check import Alone, Answer, Area, Attempt, Attempts, Check, Severity
from tenantry.audit.checks.api import RBAC_FIX
from tenantry.audit.checks.pods import honest
from tenantry.audit.place import Place

Json = dict[str, Any]

COUNTED = ("pods", "services", "secrets", "configmaps", "persistentvolumeclaims")
"""What kubectl-mtb wants to be limited in number, as far as it is what fills the API server's storage."""

HUGE = {"cpu": "100000", "memory": "1Pi", "ephemeral-storage": "1Pi"}


def _quotas(place: Place) -> str:
    return f"/api/v1/namespaces/{place.namespace}/resourcequotas"


def _huge(resource: str) -> Attempts:
    amount = {resource: HUGE[resource]}
    change = {"resources": {"requests": amount, "limits": amount}}
    return lambda place: [
        create(kinds.PODS, pod(place, container=change), place.namespace, what=f"of {HUGE[resource]} {resource}")
    ]


def _keys(answer: Answer) -> set[str]:
    return {key for quota in rows(answer.body, "items") for key in table(quota, "spec", "hard")}


def _uncounted(answer: Answer) -> str:
    keys = _keys(answer)
    missing = [kind for kind in COUNTED if kind not in keys and f"count/{kind}" not in keys]
    return f"no ResourceQuota limits the number of {', '.join(missing)}" if missing else ""


def _changed(place: Place) -> list[Attempt]:
    quotas = [each for each in place.made or () if "/resourcequotas/" in each.path]
    name = quotas[0].path.rpartition("/")[2] if quotas else place.name
    return [
        patch(ResourceQuota.resource, name, {"spec": {"hard": {"pods": "1000000"}}}, place.namespace),
        patch(ResourceQuota.resource, name, {"status": {"hard": {}}}, place.namespace, subresource="status"),
        delete(ResourceQuota.resource, name, place.namespace),
        may("deletecollection", "resourcequotas", namespace=place.namespace),
    ]


def _limits(place: Place) -> list[Attempt]:
    ranges = [each for each in place.made or () if "/limitranges/" in each.path]
    name = ranges[0].path.rpartition("/")[2] if ranges else place.name
    return [
        patch(LimitRange.resource, name, {"spec": {"limits": []}}, place.namespace),
        delete(LimitRange.resource, name, place.namespace),
    ]


def _unlimited(answer: Answer) -> str:
    (container, *_) = rows(answer.body, "spec", "containers")
    limits = table(container, "resources", "limits")
    missing = [resource for resource in ("cpu", "memory") if resource not in limits]
    return f"a container that names no limits gets none of {', '.join(missing)}" if missing else ""


def _without(place: Place) -> list[Attempt]:
    bare = pod(place, container={"resources": None})
    return [create(kinds.PODS, bare, place.namespace, what="that names no limits", judge=_unlimited)]


FIX = "Give the Tenant a quota of {}, as in `tenantry tenant create --quota`, or change spec.quota.hard."


def _compute(id_: str, title: str, resource: str, severity: Severity) -> Check:
    return Check(
        id=f"TNT-QTA-{id_}",
        title=title,
        area=Area.QUOTA,
        severity=severity,
        tries=f"Creates a restricted pod that asks for {HUGE[resource]} of {resource} (dry run).",
        proves="The tenant does not take the nodes from others.",
        fix=FIX.format(resource),
        attempts=_huge(resource),
        control=honest,
        by_quota=True,
        alone=Alone.OPEN,
        benchmark="configure_ns_quotas",
    )


CHECKS: Sequence[Check] = (
    _compute("001", "Processors without end", "cpu", Severity.HIGH),
    _compute("002", "Memory without end", "memory", Severity.HIGH),
    _compute("003", "Disks of nodes without end", "ephemeral-storage", Severity.MEDIUM),
    Check(
        id="TNT-QTA-004",
        title="Objects without number",
        area=Area.QUOTA,
        severity=Severity.MEDIUM,
        tries="Reads its quotas and looks whether pods, Services, Secrets, ConfigMaps and claims are counted.",
        proves="The tenant does not fill the API server's storage.",
        fix=FIX.format("pods, count/services, count/secrets, count/configmaps and persistentvolumeclaims"),
        attempts=lambda place: [get(_quotas(place), "read its own ResourceQuotas", judge=_uncounted)],
        alone=Alone.OPEN,
        benchmark="configure_ns_object_quota",
    ),
    Check(
        id="TNT-QTA-005",
        title="Changes its own quota",
        area=Area.QUOTA,
        severity=Severity.CRITICAL,
        tries="Raises and deletes a ResourceQuota, and writes what is in use into its status (dry runs).",
        proves="The share is what the administrators gave.",
        fix=RBAC_FIX,
        attempts=_changed,
        benchmark="block_ns_quota",
    ),
    Check(
        id="TNT-QTA-006",
        title="Changes its own limits",
        area=Area.QUOTA,
        severity=Severity.MEDIUM,
        tries="Empties and deletes a LimitRange (dry runs).",
        proves="Containers have the limits that the administrators gave.",
        fix=RBAC_FIX,
        attempts=_limits,
    ),
    Check(
        id="TNT-QTA-007",
        title="Containers without limits",
        area=Area.QUOTA,
        severity=Severity.MEDIUM,
        tries="Creates a restricted pod that names no limits, and looks which it gets (dry run).",
        proves="No container takes its whole node.",
        fix="Give the Tenant a quota of limits.cpu and limits.memory, or set spec.containerDefaults.limits.",
        attempts=_without,
        control=honest,
        alone=Alone.OPEN,
    ),
)
