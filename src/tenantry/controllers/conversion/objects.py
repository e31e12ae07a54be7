"""The objects of a tenant's namespace that a conversion looks at, and their copies inside: pure.

host  Deployment web: uid, ownerReferences, status …    inside  Deployment web: labels, annotations, spec
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.requests import ROLE_BINDING_PREFIX
from tenantry.api.tokens import TOKEN_SECRET
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.mirror import adoption, references
from tenantry.mirror.adoption import ADOPTED
from tenantry.mirror.kinds import budgets, claims, ingresses, networkpolicies, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import COPIED, PODS

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
ROLES = Resource(RBAC_GROUP, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "rolebindings", "RoleBinding")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
REPLICATION_CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
CONFIG_MAPS, SECRETS = COPIED["ConfigMap"], COPIED["Secret"]

BASICS = (SERVICE_ACCOUNTS, CONFIG_MAPS, SECRETS, ROLES, ROLE_BINDINGS)
"""What is copied, and then deleted on the host, except ServiceAccounts, and what pods name, which is adopted."""

ADOPTED_KINDS = tuple(each.RESOURCE for each in (services, claims, ingresses, networkpolicies, budgets))
"""What stays on the host, and gets an upper object."""

LOW = (REVISIONS, REPLICA_SETS, STATEFUL_SETS)
HIGH = (DEPLOYMENTS, CRON_JOBS, AUTOSCALERS)
"""What is copied, the low ones first, and then deleted on the host without its pods, the high ones first."""

REFUSED_KINDS = (DAEMON_SETS, REPLICATION_CONTROLLERS)

PLANNED = (ROLE_BINDINGS, PODS, *ADOPTED_KINDS, *LOW[1:], *HIGH[:2], *REFUSED_KINDS, JOBS)
"""What the plan needs: what the operator may read in all namespaces."""

READABLE = tuple(each for each in PLANNED if each not in (JOBS, *REFUSED_KINDS))
"""The same, of what moves out of a control plane."""

INSIDE = (*BASICS, PODS, *ADOPTED_KINDS, *LOW, *HIGH)
EVERY = (*INSIDE, *REFUSED_KINDS, JOBS)

_RESERVED = (CONFIG_MAPS, ROLES, ROLE_BINDINGS, networkpolicies.RESOURCE)
"""The kinds of which users cannot create objects with names of Tenantry; see `install.guards`."""
_META = ("name", "namespace", "labels", "annotations")
_LEFT = ("status", "apiVersion", "kind")
_OF_HOST = (
    *("nodeName", "ephemeralContainers"),
    # The API server inside refuses classes that it lacks; pods that run do not need them any more.
    *("priority", "priorityClassName", "preemptionPolicy", "runtimeClassName", "overhead"),
)

DEFAULT_ACCOUNT = "default"
"""The ServiceAccount that each namespace has."""

OF_KUBERNETES = ((SERVICE_ACCOUNTS, DEFAULT_ACCOUNT), (CONFIG_MAPS, "kube-root-ca.crt"))
"""What Kubernetes itself creates in each namespace."""


class Holdings(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The objects of one namespace.

    Args:
        of: By kind.
    """

    of: Mapping[Resource, Sequence[Json]]

    def all(self, resource: Resource) -> Sequence[Json]:
        """Return the objects of a kind."""
        return self.of.get(resource, ())

    def find(self, resource: Resource, name: str) -> Json | None:
        """Return an object; None if there is none."""
        return self._by_name.get((resource, name))

    @cached_property
    def _by_name(self) -> dict[tuple[Resource, str], Json]:
        return {(resource, name_of(each)): each for resource, found in self.of.items() for each in found}


def name_of(found: Json) -> str:
    """Return the name of an object."""
    return str(found["metadata"]["name"])


def labels(found: Json) -> Json:
    """Return the labels of an object."""
    return part(found["metadata"], "labels")


def notes(found: Json) -> Json:
    """Return the annotations of an object."""
    return part(found["metadata"], "annotations")


def is_deleting(found: Json) -> bool:
    """Return whether an object is being deleted."""
    return bool(found["metadata"].get("deletionTimestamp"))


def controller_of(found: Json) -> Json:
    """Return the owner reference of the controller of an object; {} if it has none."""
    none: Json = {}
    return next((each for each in items(found["metadata"], "ownerReferences") if each.get("controller")), none)


# -- whose they are -------------------------------------------------------------------------------


def is_movable(resource: Resource, found: Json, profile: Profile | None = None) -> bool:
    """Return whether an object belongs to users of the tenant, so that it moves.

    Tenantry's objects, inherited ones, those of Kubernetes and those of mirrors stay.

    Args:
        resource: The kind.
        found: The object on the host.
        profile: The configuration of the mirror that adopts; None before there is one.
    """
    name, owner = name_of(found), labels(found).get(f"{PREFIX}/owner")
    if owner is not None and (profile is None or owner != profile.owner_uid or not is_adopted(found, profile)):
        return False
    if marks.INHERITED_FROM in labels(found) or (resource in _RESERVED and name.startswith("tenantry-")):
        return False
    if resource == ROLE_BINDINGS and name.startswith(ROLE_BINDING_PREFIX):
        return False
    # Only the operator writes these marks.
    if any(key in labels(found) for key in (marks.TENANT, f"{PREFIX}/control-plane")):
        return False
    if resource == SECRETS and found.get("type") == TOKEN_SECRET:
        return False
    return (resource, name) not in OF_KUBERNETES


def is_adopted(found: Json, profile: Profile) -> bool:
    """Return whether an object of the host has the marks by which the mirror adopts it."""
    return labels(found).get(profile.mark("owner")) == profile.owner_uid and profile.mark(ADOPTED) in notes(found)


def waits(found: Json, profile: Profile) -> bool:
    """Return whether an object that has these marks is not adopted yet."""
    return is_adopted(found, profile) and adoption.waits(notes(found), profile)


def is_suspended(binding: Json) -> bool:
    """Return whether a suspension has taken the subjects of a RoleBinding, and not given them back yet."""
    return marks.SUSPENDED_SUBJECTS in notes(binding)


def is_same(resource: Resource, host: Json, inside: Json) -> bool:
    """Return whether an object inside is the copy of one on the host.

    Args:
        resource: The kind.
        host: The object on the host.
        inside: The object inside.
    """
    return upper(resource, host) == upper(resource, inside)


def is_finished(job: Json) -> bool:
    """Return whether a Job has ended."""
    conditions = items(part(job, "status"), "conditions")
    return any(each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions)


# -- copies ---------------------------------------------------------------------------------------


def upper(resource: Resource, found: Json) -> Json:
    """Return the copy of an object for the API server inside.

    Args:
        resource: The kind.
        found: The object on the host; it is not changed.
    """
    value: Json = copy.deepcopy({key: each for key, each in found.items() if key not in _LEFT})
    meta: Json = {key: value["metadata"][key] for key in _META if key in value["metadata"]}
    for field in ("labels", "annotations"):
        kept = {key: text for key, text in part(meta, field).items() if not _is_mark(key)}
        meta.pop(field, None)
        if kept:
            meta[field] = kept
    value["metadata"] = meta
    spec = part(value, "spec")
    if resource == PODS:
        for field in _OF_HOST:
            spec.pop(field, None)
    elif resource == services.RESOURCE:
        # The mirror names what the host has chosen.
        for field in (*services.CHOSEN, "healthCheckNodePort"):
            spec.pop(field, None)
    elif resource == claims.RESOURCE:
        spec.pop("volumeName", None)
    elif resource == SERVICE_ACCOUNTS:
        value.pop("secrets", None)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **value}


def _is_mark(key: str) -> bool:
    domain = key.partition("/")[0].lower() if "/" in key else ""
    return domain == marks.GROUP or domain.endswith(f".{marks.GROUP}") or domain == "pv.kubernetes.io"


def named(host: Holdings, profile: Profile | None) -> set[tuple[Resource, str]]:
    """Return the ConfigMaps and Secrets that pods and Ingresses name: the host needs them."""
    found: set[tuple[Resource, str]] = set()
    for pod in host.all(PODS):
        if is_movable(PODS, pod, profile):
            # As in `upper`, without a copy of each pod.
            spec: Json = {key: each for key, each in part(pod, "spec").items() if key not in _OF_HOST}
            meta: Json = {key: pod["metadata"][key] for key in _META if key in pod["metadata"]}
            seen = references.references({"metadata": meta, "spec": spec})
            found.update((COPIED[each.kind], each.name) for each in seen)
    for each in host.all(ingresses.RESOURCE):
        if is_movable(ingresses.RESOURCE, each, profile):
            found.update((SECRETS, name) for name in ingresses.secrets(each))
    return found
