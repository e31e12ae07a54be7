"""The Jobs that keep snapshots in a volume while no control plane has it: pure.

    hosted-UID-data    the volume of a control plane that does not run: its database and its own snapshots
    hosted-UID-place   the folder UID of the claim of a destination, and nothing else

Each runs the sidecar's program as a keeper, to which the operator connects. It ends by itself when the operator is
silent, and Kubernetes deletes it then. Its keys are its own: only the operator that has started it uses it.

Source: Kubernetes, "Jobs" (ttlSecondsAfterFinished), "Volumes" (subPath).
"""

from __future__ import annotations

import enum

from tenantry.api import marks
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects
from tenantry.hosting import sidecar

JOBS = Resource("batch", "v1", "jobs", "Job")

LABEL = "hosting.tenantry.dev/keeper"
"""Not the label of the Pods of control planes, which Services and StatefulSets select."""

IDLE_SECONDS = 45
_LONGEST_SECONDS = 3600


class KeeperRole(enum.StrEnum):
    """What a Job has."""

    DATA = "data"
    PLACE = "place"


def name(uid: str, role: KeeperRole) -> str:
    """Return the name of a Job, and of the Secret with its certificate."""
    return f"{objects.name(uid)}-{role}"


def selector(uid: str, role: KeeperRole) -> str:
    """Return the selector of the Pods of a Job."""
    return f"{LABEL}={uid}.{role}"


def of_data(uid: str, found: Json, image: str) -> Json:
    """Return the Job that has the volume of a control plane, as its process has it.

    Args:
        uid: Of the control plane.
        found: Its StatefulSet.
        image: The image; "" for that of the StatefulSet.
    """
    spec: Json = found["spec"]["template"]["spec"]
    (process,) = (each for each in spec["containers"] if each["name"] == objects.PROCESS)
    command = [*_COMMAND, *objects.KEEPING]
    container = {
        **{key: process[key] for key in ("env", "resources") if key in process},
        **_container(image or process["image"], command, process["volumeMounts"]),
    }
    # One that leads to a datastore elsewhere; it ends with the keeper.
    others = {objects.PROCESS, objects.BESIDE}
    beside = [{**each, "restartPolicy": "Always"} for each in spec["containers"] if each["name"] not in others]
    # Those of a datastore in the Pod. A Job has no API server, and no audit log to print.
    beside += (each for each in spec.get("initContainers", ()) if each["name"] != objects.AUDIT)
    volumes = [each for each in spec["volumes"] if each["name"] != _KEYS]
    job = _job(uid, KeeperRole.DATA, container, volumes)
    template: Json = job["spec"]["template"]
    if beside:
        template["spec"]["initContainers"] = beside
    if "runtimeClassName" in spec:
        template["spec"]["runtimeClassName"] = spec["runtimeClassName"]
    # NetworkPolicies go by them. That of the control plane is the selector of its Service.
    given: dict[str, str] = found["spec"]["template"]["metadata"].get("labels", {})
    labels = {key: value for key, value in given.items() if key != objects.UID_LABEL}
    template["metadata"] = {"labels": {**labels, **job["metadata"]["labels"]}}
    return job


def keeps_snapshots(found: Json) -> bool:
    """Return whether a control plane has a volume that stays.

    Args:
        found: Its StatefulSet.
    """
    volumes: list[Json] = found["spec"]["template"]["spec"]["volumes"]
    return any("persistentVolumeClaim" in each for each in volumes if each["name"] == "data")


def of_place(uid: str, image: str, claim: str) -> Json:
    """Return the Job that has the folder of a control plane in the claim of a destination.

    Args:
        uid: Of the control plane.
        image: The image.
        claim: The name of the claim.
    """
    command = [*_COMMAND, "-volume=/kept"]
    mount = {"name": "kept", "mountPath": "/kept", "subPath": uid}
    container = {
        **_container(image, command, [mount]),
        "resources": objects.SIDECAR_RESOURCES,
    }
    return _job(uid, KeeperRole.PLACE, container, [{"name": "kept", "persistentVolumeClaim": {"claimName": claim}}])


_KEYS = "sidecar"
_COMMAND = (
    *(objects.SIDECAR, "-api=", f"-keeper=:{sidecar.KEEPER_PORT}", "-keys=/keys"),
    f"-idle={IDLE_SECONDS}s",
)


def _container(image: str, command: list[str], mounts: list[Json]) -> Json:
    return {
        "name": "keeper",
        "image": image,
        "command": command,
        "securityContext": objects.CONTAINER_SECURITY,
        "readinessProbe": {"tcpSocket": {"port": sidecar.KEEPER_PORT}, "periodSeconds": 1},
        "volumeMounts": [*mounts, {"name": _KEYS, "mountPath": "/keys", "readOnly": True}],
    }


def _job(uid: str, role: KeeperRole, container: Json, volumes: list[Json]) -> Json:
    labels = {marks.MANAGED_BY: marks.MANAGER, LABEL: f"{uid}.{role}"}
    keys = {"name": _KEYS, "secret": {"secretName": name(uid, role), "defaultMode": 0o440}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(uid, role), "namespace": PROCESS_NAMESPACE, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _LONGEST_SECONDS,
            "ttlSecondsAfterFinished": 0,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": objects.POD_SECURITY,
                    "containers": [container],
                    "volumes": [*volumes, keys],
                },
            },
        },
    }
