"""A manifest, and the pods and claims that controllers would create from it. Pure.

Sources: Kubernetes, "Workloads" (pod templates), "Images" (default pull policy), "Limit Ranges", "Resource Quotas".
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import Json, Resource
from tenantry.policy.mend import Path, at
from tenantry.policy.request import part, parts
from tenantry.policy.users import CONTROLLERS, DAEMON_SETS
from tenantry.world import quantity
from tenantry.world.podrequests import PodSpecRequests

PODS = Resource("", "v1", "pods", "Pod")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

_TEMPLATE: Path = ("spec", "template")
_JOBS: Path = ("spec", "jobTemplate", "spec", "template")
_WORKLOADS: Mapping[tuple[str, str], tuple[Path, str]] = {
    ("apps", "Deployment"): (_TEMPLATE, f"{CONTROLLERS}replicaset-controller"),
    ("apps", "ReplicaSet"): (_TEMPLATE, f"{CONTROLLERS}replicaset-controller"),
    ("apps", "StatefulSet"): (_TEMPLATE, f"{CONTROLLERS}statefulset-controller"),
    ("apps", "DaemonSet"): (_TEMPLATE, DAEMON_SETS),
    ("batch", "Job"): (_TEMPLATE, f"{CONTROLLERS}job-controller"),
    ("batch", "CronJob"): (_JOBS, f"{CONTROLLERS}job-controller"),
    ("", "ReplicationController"): (_TEMPLATE, f"{CONTROLLERS}replication-controller"),
}
"""Group and kind to the path of the pod template, and the user that creates the pods."""

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_COUNTED = (
    *("configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets"),
    "services",
)
"""Resources that a quota also counts without the prefix count/."""

_TAGGED = re.compile(r":(?P<tag>[^:/@]+)(@.*)?$")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a manifest asks for, or that a controller would create from it.

    Args:
        resource: Its kind.
        object: The whole object.
        path: The path of its source in the manifest; () for the manifest itself.
        told: The text by which messages name it, as in "each of its pods"; "" for the manifest itself.
        user: The user that would create it; "" for the author of the manifest.
        count: The number of such objects.
    """

    resource: Resource
    object: Json
    path: Path = ()
    told: str = ""
    user: str = ""
    count: int = 1


def parts_of(manifest: Json, resource: Resource) -> list[Part]:
    """Return a manifest and the objects that controllers would create from it.

    Args:
        manifest: As its author wrote it, with or without a name.
        resource: Its kind.
    """
    found = [Part(resource=resource, object=manifest)]
    path, maker = _WORKLOADS.get((resource.group, resource.kind), ((), ""))
    if not path:
        return found
    name = part(manifest, "metadata").get("name") or "x"
    template = at(manifest, path)
    if template is not None:
        pod = _object(PODS, template, f"{name}-")
        found.append(
            Part(
                resource=PODS, object=pod, path=path, told="each of its pods", user=maker, count=_count(manifest, path)
            )
        )
    for index, claim in enumerate(parts(manifest, "spec", "volumeClaimTemplates")):
        made = _object(CLAIMS, claim, f"{part(claim, 'metadata').get('name', '')}-{name}-")
        where = ("spec", "volumeClaimTemplates", index)
        told = f"each claim of volumeClaimTemplates[{index}]"
        found.append(
            Part(resource=CLAIMS, object=made, path=where, told=told, user=maker, count=_count(manifest, path))
        )
    return found


def _object(resource: Resource, template: Json, stem: str) -> Json:
    metadata = {k: v for k, v in part(template, "metadata").items() if k in {"labels", "annotations"}}
    rest = {k: v for k, v in copy.deepcopy(template).items() if k != "metadata"}
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": {**copy.deepcopy(metadata), "generateName": stem}, **rest}


def _count(manifest: Json, path: Path) -> int:
    spec = part(manifest, *(str(step) for step in path[:-1]))
    given = spec.get("replicas", spec.get("parallelism", 1))
    return given if isinstance(given, int) else 1


# -- defaults -------------------------------------------------------------------------------------


def filled_in(
    value: Json, resource: Resource, limit_ranges: Sequence[Json], default_class: str = "", *, pulls: bool = False
) -> Json:
    """Return an object with the defaults of the API server that rules read.

    It is for objects that the server refuses: an accepted dry run returns the defaults.

    Args:
        value: The object.
        resource: Its kind.
        limit_ranges: Of the namespace.
        default_class: The StorageClass of claims that name none, from the rules; "" for none.
        pulls: Whether a mutating policy makes the pods of the namespace pull their images.
    """
    value = copy.deepcopy(value)
    if resource == CLAIMS and default_class:
        value.setdefault("spec", {}).setdefault("storageClassName", default_class)
    if resource == PODS:
        for field in ("containers", "initContainers"):
            for container in parts(value, "spec", field):
                _fill_in(container, limit_ranges)
                if pulls:
                    container["imagePullPolicy"] = "Always"
                if part(value, "spec").get("hostNetwork"):
                    for port in parts(container, "ports"):
                        port.setdefault("hostPort", port.get("containerPort", 0))
        for volume in parts(value, "spec", "volumes") if pulls else ():
            if "image" in volume:
                volume["image"]["pullPolicy"] = "Always"
    return value


def _fill_in(container: Json, limit_ranges: Sequence[Json]) -> None:
    image = container.get("image") or ""
    tagged = _TAGGED.search(image)
    is_latest = "@" not in image and (tagged is None or tagged["tag"] == "latest")
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
    resources = container.setdefault("resources", {})
    limits, requests = resources.setdefault("limits", {}), resources.setdefault("requests", {})
    for key, amount in limits.items():
        requests.setdefault(key, amount)
    for limit_range in limit_ranges:
        for item in parts(limit_range, "spec", "limits"):
            if item.get("type") == "Container":
                for key, amount in part(item, "default").items():
                    limits.setdefault(key, amount)
                for key, amount in part(item, "defaultRequest").items():
                    requests.setdefault(key, amount)


# -- quota ----------------------------------------------------------------------------------------


def usage(each: Part, value: Json) -> dict[str, str]:
    """Return what objects use of a namespace's quota: quota key to quantity.

    Args:
        each: The kind and number of the objects.
        value: One of them, filled in.

    Raises:
        InputError: A quantity does not parse, or a field has another type.
    """
    resource = each.resource
    one: dict[str, Fraction] = {f"count/{resource.full_name}": Fraction(1)}
    if not resource.group and resource.plural in _COUNTED:
        one[resource.plural] = Fraction(1)
    spec = part(value, "spec")
    if resource == PODS:
        one |= _pod(spec)
    elif resource == CLAIMS:
        one["requests.storage"] = quantity.parse(part(spec, "resources", "requests").get("storage", "0"))
    elif resource.plural == "services":
        balanced = spec.get("type") == "LoadBalancer"
        ported = spec.get("type") == "NodePort" or (balanced and spec.get("allocateLoadBalancerNodePorts") is not False)
        one["services.loadbalancers"] = Fraction(int(balanced))
        one["services.nodeports"] = Fraction(len(parts(spec, "ports")) if ported else 0)
    return {key: quantity.write(amount * each.count) for key, amount in sorted(one.items()) if amount}


def _pod(spec: Json) -> dict[str, Fraction]:
    try:
        pod = msgspec.convert(spec, PodSpecRequests)
    except msgspec.ValidationError as error:
        raise InputError(f"spec: {error}") from error
    found: dict[str, Fraction] = {}
    for bound in ("requests", "limits"):
        for key in pod.named(bound):
            if key in _COMPUTE or (bound == "requests" and ("/" in key or key.startswith("hugepages-"))):
                found[f"{bound}.{key}"] = pod.counted(bound, key)
    return found
