"""The controllers of Kubernetes that run in a hosted control plane: pure.

Source: Kubernetes, reference of kube-controller-manager (`--controllers`).
"""

from __future__ import annotations

CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "service-cidr-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
)
"""The controllers that need no nodes, and that Kubernetes' conformance tests need."""

_APPROVER = "certificatesigningrequest-approving-controller"

OF_NODES = (
    "legacy-serviceaccount-token-cleaner-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "resourceclaim-controller",
    "taint-eviction-controller",
    "token-cleaner-controller",
)
"""The further controllers of a control plane that nodes join.

It has none that approves certificates: that of Kubernetes signs any name for the holder of a token to join.
"""

_RANGES = "node-ipam-controller"
"""Gives each node a range of addresses for its pods, out of the one of the cluster."""


def of(*, has_nodes: bool, gives_ranges: bool) -> list[str]:
    """Return the controllers of a control plane.

    Args:
        has_nodes: Whether nodes join it.
        gives_ranges: Whether they give each node a range of addresses for its pods.
    """
    if not has_nodes:
        return [*CONTROLLERS]
    ranges = (_RANGES,) if gives_ranges else ()
    return [*(each for each in CONTROLLERS if each != _APPROVER), *OF_NODES, *ranges]
