"""What the operator may repair of an installation, and the rights for that: pure.

The rights name each object. The API server cannot limit a POST to names, but a server-side apply of a missing object:
it asks for `create` with the name. `escalate` is limited to the roles of users: the operator's own roles are repaired
only if it already has every right in them.

Source: k8s.io/apiserver, pkg/endpoints/handlers/patch.go, `createAuthorizerAttributes`; k8s.io/kubernetes,
pkg/registry/rbac/escalation_check.go, `RoleEscalationAuthorized`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry import __version__
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.marks import BUILD, INSTALLED_VERSION, MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.controllers.installation.comparison import stored
from tenantry.controllers.installation.release import KEEP, PART_OF
from tenantry.controllers.installation.shipment import Shipment, ShippedObject, build_of
from tenantry.install.rights import allow, cluster_role, given
from tenantry.install.waves import resource_of

REPAIRS = "tenantry-repairs"
"""The ClusterRole and its binding. Without the binding the operator repairs nothing."""

_KEPT = ("LimitRange", "FlowSchema", "PriorityLevelConfiguration")
"""Kinds that other controllers keep, or that TenancyDefaults changes."""

_HOLDS = ("CustomResourceDefinition", "Namespace")
"""Kinds whose objects hold those of users."""

_WRITES = ("create", "update", "patch")


def with_repairs(objects: Sequence[Json], subject: Json) -> list[Json]:
    """Return everything that is installed, with the version of each object that is repaired, and the rights for it.

    Args:
        objects: Everything else.
        subject: The operator, as RBAC names it.
    """
    binding = given(REPAIRS, subject)
    whole = [_versioned(each) for each in (*objects, cluster_role(REPAIRS, rules=[]), binding)]
    operators = {each["roleRef"]["name"] for each in whole if subject in each.get("subjects", ())}
    rules = _rules([each for each in whole if is_repaired(each)], operators)
    whole[-2] = {**whole[-2], "rules": rules}
    build = build_of(whole)
    return [_built(each, build) for each in whole]


def is_repaired(value: Json) -> bool:
    """Return whether the operator repairs an object."""
    return value["kind"] not in _KEPT


def shipment(objects: Sequence[Json]) -> Shipment:
    """Return what the operator repairs.

    Args:
        objects: Everything that is installed.
    """
    namespaces = (each for each in objects if _is_own_namespace(each))
    build: str = next(namespaces)["metadata"]["annotations"][BUILD]
    kept = tuple(_shipped(each) for each in objects if is_repaired(each))
    return Shipment(version=__version__, build=build, switch=REPAIRS, objects=kept)


def _shipped(value: Json) -> ShippedObject:
    meta = value["metadata"]
    # A cache of its own: other controllers watch more objects of some of these kinds, or other fields.
    resource = msgspec.structs.replace(resource_of(value), selected=INSTALLED_VERSION)
    body = msgspec.json.encode(stored(value))
    return ShippedObject(resource=resource, namespace=meta.get("namespace", ""), name=meta["name"], body=body)


def _versioned(value: Json) -> Json:
    if not is_repaired(value):
        return value
    meta = value["metadata"]
    labels = {MANAGED_BY: MANAGER, **meta.get("labels", {}), PART_OF: MANAGER, INSTALLED_VERSION: __version__}
    kept = {"annotations": {**meta.get("annotations", {}), **KEEP}} if value["kind"] in _HOLDS else {}
    return {**value, "metadata": {**meta, "labels": labels, **kept}}


def _built(value: Json, build: str) -> Json:
    """Return Tenantry's namespace with the build: an installation writes it before what differs between builds."""
    if not _is_own_namespace(value):
        return value
    meta = value["metadata"]
    return {**value, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), BUILD: build}}}


def _is_own_namespace(value: Json) -> bool:
    return value["kind"] == "Namespace" and value["metadata"]["name"] == SYSTEM_NAMESPACE


def _rules(objects: Sequence[Json], operators: set[str]) -> list[Json]:
    """Return the rights to write each object; the right to watch its kind does not depend on the switch.

    Args:
        objects: Those that are repaired.
        operators: The names of the operator's own roles.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for each in objects:
        resource = resource_of(each)
        if resource.namespaced:
            continue  # the operator keeps Roles and their bindings in every namespace; see `inherited`
        named = names.setdefault((resource.group, resource.plural), [])
        named += [each["metadata"]["name"]] if each["metadata"]["name"] not in named else []
    rules: list[Json] = []
    for (group, plural), found in names.items():
        rules.append({**allow([group], [plural], _WRITES), "resourceNames": found})
    roles = [name for name in names[RBAC_GROUP, "clusterroles"] if name not in operators]
    rules.append({**allow([RBAC_GROUP], ["clusterroles"], ["escalate"]), "resourceNames": roles})
    return rules
