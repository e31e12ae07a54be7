"""An object of each kind that the role `tenantry-owner` may create and Kubernetes counts, as long as one may be.

The objects are at rest: workloads have no replicas, jobs are suspended, and autoscalers have no target.
"""

from __future__ import annotations

from typing import Any

from tenantry.api.model import Resource

Json = dict[str, Any]

LABELS = {"app": "flood"}
POD_SPEC: Json = {
    "containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"cpu": "10m", "memory": "10Mi"}}}],
    # No node has it: the pods of a flood stay pending.
    "nodeSelector": {"kubernetes.io/arch": "none"},
}
TEMPLATE: Json = {"metadata": {"labels": LABELS}, "spec": POD_SPEC}
CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
JOB: Json = {"suspend": True, "template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}
RBAC = "rbac.authorization.k8s.io"
DEVICES: Json = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}}


def _workload(**more: Any) -> Json:  # noqa: ANN401 - fields of the spec
    return {"selector": {"matchLabels": LABELS}, "template": TEMPLATE, **more}


def kinds(namespace: str) -> tuple[tuple[Resource, Json], ...]:
    """Return each kind with the fields of an object for a namespace, without metadata."""
    event: Json = {"involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace}, "type": "Normal"}
    return (
        (Resource("", "v1", "configmaps", "ConfigMap"), {}),
        (Resource("", "v1", "secrets", "Secret"), {}),
        (Resource("", "v1", "events", "Event"), event),
        (Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"), {"spec": CLAIM}),
        (Resource("", "v1", "pods", "Pod"), {"spec": POD_SPEC}),
        (
            Resource("", "v1", "replicationcontrollers", "ReplicationController"),
            {"spec": {"replicas": 0, "selector": LABELS, "template": TEMPLATE}},
        ),
        (Resource("", "v1", "serviceaccounts", "ServiceAccount"), {}),
        (Resource("", "v1", "services", "Service"), {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}),
        (Resource("apps", "v1", "daemonsets", "DaemonSet"), {"spec": _workload()}),
        (Resource("apps", "v1", "deployments", "Deployment"), {"spec": _workload(replicas=0, paused=True)}),
        (Resource("apps", "v1", "replicasets", "ReplicaSet"), {"spec": _workload(replicas=0)}),
        (Resource("apps", "v1", "statefulsets", "StatefulSet"), {"spec": _workload(replicas=0, serviceName="none")}),
        (
            Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
            {
                "spec": {
                    "maxReplicas": 1,
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
                }
            },
        ),
        (
            Resource("batch", "v1", "cronjobs", "CronJob"),
            {"spec": {"suspend": True, "schedule": "0 0 1 1 *", "jobTemplate": {"spec": JOB}}},
        ),
        (Resource("batch", "v1", "jobs", "Job"), {"spec": JOB}),
        (Resource("coordination.k8s.io", "v1", "leases", "Lease"), {"spec": {}}),
        (
            Resource("networking.k8s.io", "v1", "ingresses", "Ingress"),
            {"spec": {"rules": [{"host": "flood.example.com"}]}},
        ),
        (Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"), {"spec": {"podSelector": {}}}),
        (Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"), {"spec": {"minAvailable": 0}}),
        (
            Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
            {
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "guest"}],
            },
        ),
        (
            Resource(RBAC, "v1", "roles", "Role"),
            {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
        ),
        (Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"), {"spec": DEVICES}),
        (
            Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
            {"spec": {"spec": DEVICES}},
        ),
    )


def long(value: Json, name: str, text: str) -> Json:
    """Return an object with a text in an annotation."""
    return {**value, "metadata": {"name": name, "annotations": {"example.com/long": text}}}
