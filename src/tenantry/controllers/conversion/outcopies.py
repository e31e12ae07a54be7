"""What reaches the host when a tenant leaves its control plane: copies by an allow-list of fields. Pure.

inside  Deployment web: uid, ownerReferences, finalizers, marks …   host  Deployment web: labels, annotations, spec

Administrators inside write every field of what is copied. A copy never has an owner, a finalizer or a mark. Claims keep
the names that they have on the host, so templates of pods name them so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from tenantry.api.model import Json, Resource
from tenantry.controllers.conversion.objects import (
    AUTOSCALERS,
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    REPLICA_SETS,
    REVISIONS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
)
from tenantry.mirror.kinds import budgets, ingresses, networkpolicies, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part

MOST_OWNERS = 1000
"""How many pods an object of the host has as its owners, with the last of which it ends; with more, it stays."""

_SPEC = ("spec",)
_FIELDS: dict[Resource, tuple[str, ...]] = {
    SERVICE_ACCOUNTS: ("automountServiceAccountToken", "imagePullSecrets"),
    CONFIG_MAPS: ("data", "binaryData", "immutable"),
    SECRETS: ("type", "data", "immutable"),
    ROLES: ("rules",),
    ROLE_BINDINGS: ("roleRef", "subjects"),
    REVISIONS: ("data", "revision"),
    **dict.fromkeys((networkpolicies.RESOURCE, ingresses.RESOURCE, budgets.RESOURCE, services.RESOURCE), _SPEC),
    **dict.fromkeys((REPLICA_SETS, STATEFUL_SETS, DEPLOYMENTS, CRON_JOBS, AUTOSCALERS), _SPEC),
}
_TEMPLATES: dict[Resource, tuple[str, ...]] = {
    **dict.fromkeys((REPLICA_SETS, STATEFUL_SETS, DEPLOYMENTS), ("template",)),
    CRON_JOBS: ("jobTemplate", "spec", "template"),
}
_OF_SERVICES = (*services.CHOSEN, "externalIPs", "loadBalancerIP", "loadBalancerClass", "loadBalancerSourceRanges")
_OUTWARD = ("externalTrafficPolicy", "allocateLoadBalancerNodePorts")


def _same(namespace: str) -> str | None:
    return namespace


def lower(
    resource: Resource,
    found: Json,
    profile: Profile,
    claims: Mapping[str, str] | None = None,
    place: Callable[[str], str | None] = _same,
) -> Json:
    """Return the copy of an object for the host.

    Args:
        resource: The kind; see `is_copied`.
        found: The object inside; it is not changed.
        profile: The configuration of the mirror.
        claims: The names of claims on the host, by those inside.
        place: Returns the namespace of the host for one inside; None for one that does not move.
    """
    value: Json = copy.deepcopy({key: found[key] for key in _FIELDS[resource] if key in found})
    spec = part(value, "spec")
    for path in (_TEMPLATES.get(resource), ("jobTemplate",) if resource == CRON_JOBS else None):
        if path is not None:
            template = at(spec, path)
            template["metadata"] = _labelled(part(template, "metadata"), profile)
            rename(part(template, "spec"), claims or {})
    for each in items(spec, "volumeClaimTemplates"):
        meta = part(each, "metadata")
        each["metadata"] = {"name": meta.get("name"), **_labelled(meta, profile)}
    for each in items(value, "subjects"):
        if each.get("kind") == "ServiceAccount":
            each["namespace"] = place(str(each.get("namespace", ""))) or each.get("namespace")
    meta = found["metadata"]
    named = {"name": meta["name"], "namespace": profile.namespace}
    head: Json = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": {**named, **_labelled(meta, profile)}, **value}


def alias(found: Json, profile: Profile) -> Json:
    """Return the Service that gives pods the name of one which keeps another name on the host.

    It has a clusterIP of its own, or none if that is so inside, and it is not reached from outside.

    Args:
        found: The Service inside.
        profile: The configuration of the mirror.
    """
    value = lower(services.RESOURCE, found, profile)
    spec = value["spec"]
    is_headless = spec.get("clusterIP") == "None"
    for field in (*_OF_SERVICES, *_OUTWARD):
        spec.pop(field, None)
    for port in items(spec, "ports"):
        port.pop("nodePort", None)
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        spec["type"] = "ClusterIP"
    if is_headless:
        spec["clusterIP"] = "None"
    return value


def at(spec: Json, path: tuple[str, ...]) -> Json:
    """Return what is at a path of fields; {} if nothing is."""
    for field in path:
        spec = part(spec, field)
    return spec


def template_of(resource: Resource, found: Json) -> Json:
    """Return the template of the pods of a workload; {} for another kind."""
    path = _TEMPLATES.get(resource)
    return at(part(found, "spec"), path) if path is not None else {}


def claimed(spec: Json) -> list[str]:
    """Return the names of the claims that the spec of a pod names."""
    named = (part(volume, "persistentVolumeClaim").get("claimName") for volume in items(spec, "volumes"))
    return [str(each) for each in named if each]


def rename(spec: Json, claims: Mapping[str, str]) -> None:
    """Give the claims in the spec of a pod the names that they have on the host; it is changed."""
    for volume in items(spec, "volumes"):
        source = part(volume, "persistentVolumeClaim")
        if source.get("claimName") in claims:
            source["claimName"] = claims[source["claimName"]]


def _labelled(meta: Json, profile: Profile) -> Json:
    """Return the labels and annotations of users."""
    found: Json = {}
    for field in ("labels", "annotations"):
        kept = {key: text for key, text in part(meta, field).items() if not profile.is_reserved(key)}
        if kept:
            found[field] = kept
    return found


# -- what stays on the host ------------------------------------------------------------------------


def freed(found: Json, profile: Profile, owners: list[Json], keeps: tuple[str, ...] = ()) -> Json:
    """Return the merge patch by which an object of the host is no longer one of the mirror.

    Args:
        found: The object on the host.
        profile: The configuration of the mirror.
        owners: Its owners from now on.
        keeps: Marks that stay, as annotations.
    """
    meta = found["metadata"]
    removed: Json = {}
    for field, kept in (("labels", ()), ("annotations", [profile.mark(each) for each in keeps])):
        # Others are Tenantry's on this side, such as who has made an object.
        ours = {key: None for key in part(meta, field) if key.startswith(f"{profile.prefix}/") and key not in kept}
        if ours:
            removed[field] = ours
    return {"metadata": {**removed, "uid": meta["uid"], "ownerReferences": owners}}


def is_marked(found: Json, profile: Profile) -> bool:
    """Return whether an object of the host is one of the mirror."""
    meta = found["metadata"]
    is_owned = any(each.get("uid") == profile.owner_uid for each in items(meta, "ownerReferences"))
    return part(meta, "labels").get(profile.mark("owner")) == profile.owner_uid or is_owned


def stands_for(found: Json, profile: Profile, name: str) -> bool:
    """Return whether an object of the host is the mirror's, and stands for the object of a name inside.

    Users inside may give an object the name that another has on the host. What the control plane itself needs, such as
    the Secret with its kubeconfig, has an owner, but no mark.
    """
    meta = found["metadata"]
    is_ours = part(meta, "labels").get(profile.mark("owner")) == profile.owner_uid
    return is_ours and part(meta, "annotations").get(profile.mark("name")) == name
