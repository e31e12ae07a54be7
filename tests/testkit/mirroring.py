"""Pods of both sides of a mirror, for its tests."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.mirror import cachedpods, podstatus
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.podchanges import PodChanges, changes
from tenantry.mirror.pods import down
from tenantry.mirror.profile import Profile

Json = dict[str, Any]

OWNER: Json = {"apiVersion": "example.dev/v1", "kind": "Plane", "name": "p", "uid": "u-plane", "controller": True}
PROFILE = Profile(
    owner_uid="u-plane",
    owner=OWNER,
    namespace="lower",
    prefix="example.dev",
    api_host="plane.example.dev",
    api_port="6443",
)

POD_SELECTOR: Json = {"matchLabels": {"app": "web"}}
FULL: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u-web",
        "generation": 2,
        "labels": {"app": "web", "pod-template-hash": "5d9"},
        "annotations": {"note": "first"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u-set"}],
        "finalizers": ["example.com/keep"],
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "serviceAccountName": "shopkeeper",
        "serviceAccount": "shopkeeper",
        "schedulerName": "default-scheduler",
        "nodeName": "n-1",
        "priority": 0,
        "overhead": {"cpu": "1"},
        "initContainers": [
            {"name": "init", "image": "init:1", "envFrom": [{"prefix": "I_", "secretRef": {"name": "init"}}]}
        ],
        "containers": [
            {
                "name": "web",
                "image": "web:1",
                "command": ["/web"],
                "args": ["-v"],
                "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
                "env": [
                    {"name": "PLAIN", "value": "1"},
                    {"name": "NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                    {"name": "SPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                    {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                    {"name": "ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                    {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "p"}}},
                    {
                        "name": "COLOUR",
                        "valueFrom": {"configMapKeyRef": {"name": "colours", "key": "c", "optional": True}},
                    },
                    {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": False}],
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
                "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsUser": 1000, "privileged": False},
                "stdin": True,
            }
        ],
        "volumes": [
            {"name": "settings", "configMap": {"name": "settings", "items": [{"key": "a", "path": "b"}]}},
            {"name": "keys", "secret": {"secretName": "keys", "optional": True}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": "pv-1"}}}},
            {"name": "info", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "empty", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": "/etc", "type": ""}},
            {
                "name": "kube-api-access-x",
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "namespace",
                                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                    },
                                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                                ]
                            }
                        },
                        {"serviceAccountToken": {"audience": "vault", "expirationSeconds": 7200, "path": "vault"}},
                        {"secret": {"name": "extra"}},
                    ],
                },
            },
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                }
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"labelSelector": POD_SELECTOR, "topologyKey": "zone"}}
                ]
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": POD_SELECTOR, "namespaces": ["shop", "back"], "topologyKey": "host"}
                ]
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": POD_SELECTOR,
                "matchLabelKeys": ["pod-template-hash", "missing"],
            }
        ],
        "tolerations": [{"key": "fast", "operator": "Exists", "tolerationSeconds": 300}],
        "securityContext": {"fsGroup": 1, "sysctls": [{"name": "a", "value": "b"}], "supplementalGroups": [4]},
        "subdomain": "web",
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}],
        "hostNetwork": False,
        "imagePullSecrets": [{"name": "registry"}, {"name": ""}],
        "priorityClassName": "high",
        "readinessGates": [{"conditionType": "example.com/ready"}],
        "schedulingGates": [{"name": "example.com/wait"}],
        "os": {"name": "linux"},
        "resources": {"limits": {"cpu": 2}},
    },
    "status": {"phase": "Pending", "qosClass": "Burstable"},
}


def copied(value: Json) -> Json:
    """Return a copy that can be changed."""
    return msgspec.json.decode(msgspec.json.encode(value))


def cached(pod: Json) -> CachedPod:
    """Return a pod as a mirror caches it."""
    found = {**pod, "metadata": {"resourceVersion": "1", **pod["metadata"]}}
    return cachedpods.decode(msgspec.Raw(msgspec.json.encode(found)), PROFILE.prefix)


def upper_pod(**spec: object) -> Json:
    """Return a small upper pod with fields of its spec, in snake case as they are."""
    metadata = {"name": "web-0", "namespace": "shop", "uid": "u-web", "generation": 1}
    whole = {"containers": [{"name": "web", "image": "web:1"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copied(whole)}


def lower_pod(upper: Json, **status: object) -> Json:
    """Return the lower pod of an upper one as its API server has it, with a status."""
    made = down(upper, PROFILE)
    assert not made.refusal, made.refusal
    lower = copied(made.object)
    lower["metadata"] |= {"uid": "u-lower", "generation": 1, "resourceVersion": "9"}
    return lower | ({"status": copied(status)} if status else {})


def changed(upper: Json, lower: Json) -> PodChanges:
    """Return what a lower pod must change to follow its upper one."""
    return changes(down(upper, PROFILE), lower, PROFILE)


def status_up(upper: Json, lower: Json) -> Json | None:
    """Return the status that an upper pod should get from its lower one."""
    return podstatus.up(upper, lower, PROFILE, is_current=changed(upper, lower).is_current)
