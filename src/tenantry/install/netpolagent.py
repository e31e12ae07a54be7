"""The DaemonSet of the agent that enforces NetworkPolicies where no network plugin does. Pure.

    deploy/netpol-agent.yaml ─► a person names the image and the interface of pods ─► kubectl apply

It is no part of an installation: with a plugin that enforces NetworkPolicies, both would decide about each packet.

Source: Kubernetes, "DaemonSet" and "Network Policies"; docs/concepts/network.md.
"""

from __future__ import annotations

from tenantry import __version__
from tenantry.api.model import Json
from tenantry.install.rights import allow, cluster_role, given

NAME = "tenantry-netpol-agent"
NAMESPACE = "kube-system"
"""Pods of Tenantry's own namespace must be without privileges."""

PYTHON = "/usr/bin/python3.11"
"""The only program in the image that can look for a file."""

IMAGE = f"registry.example/tenantry/netpol:{__version__}"

_FOLDER = "/run/netpol"
_READY = f"{_FOLDER}/ready"
_LABELS = {"app.kubernetes.io/name": "tenantry", "app.kubernetes.io/component": "netpol-agent"}
"""Not the label of what Tenantry manages: kubectl, or another tool of the administrator, does."""


def everything() -> list[Json]:
    """Return the ServiceAccount, its rights and the DaemonSet."""
    subject: Json = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    rules = [
        allow([""], ["pods", "namespaces", "nodes"], ["list", "watch"]),
        allow(["networking.k8s.io"], ["networkpolicies"], ["list", "watch"]),
    ]
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta()}
    rights = [cluster_role(NAME, rules=rules), given(NAME, subject)]
    return [account, *({**each, "metadata": {"name": NAME, "labels": dict(_LABELS)}} for each in rights), _daemon_set()]


def _meta() -> Json:
    return {"name": NAME, "namespace": NAMESPACE, "labels": dict(_LABELS)}


def _daemon_set() -> Json:
    looks = f"import os, sys; sys.exit(not os.path.exists({_READY!r}))"
    container: Json = {
        "name": "agent",
        "image": IMAGE,
        "args": ["netpol-agent", "--node=$(NODE)", "--pod-interface=cni0", f"--ready-file={_READY}"],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        # The rules are in force: before, pods of the node have no network.
        "readinessProbe": {
            "exec": {"command": [PYTHON, "-I", "-S", "-c", looks]},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "ready", "mountPath": _FOLDER},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the container's own
        ],
    }
    memory = {"medium": "Memory", "sizeLimit": "16Mi"}
    pod: Json = {
        "serviceAccountName": NAME,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "priorityClassName": "system-node-critical",
        # Also on nodes of slices, which have taints.
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "ready", "emptyDir": memory}, {"name": "tmp", "emptyDir": memory}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _meta(),
        "spec": {
            "selector": {"matchLabels": dict(_LABELS)},
            "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
            # The rules stay while one pod is replaced by the next.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        },
    }
