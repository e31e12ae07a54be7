"""Everything that `tenantry install` puts into a cluster, in the order in which it is applied. Pure."""

from __future__ import annotations

from tenantry import __version__
from tenantry.api import marks
from tenantry.api.crd import custom_resource_definition
from tenantry.api.kinds import KINDS
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json
from tenantry.api.requests import APPROVALS
from tenantry.controllers.fairness import desired as fairness_objects
from tenantry.install import (
    approval,
    bandwidth,
    canary,
    claims,
    clusterinventory,
    contribution,
    controlplanes,
    datastores,
    dedicatedclusters,
    egress,
    fairness,
    fallback,
    guards,
    guests,
    hosts,
    images,
    inherited,
    makers,
    metrics,
    mirror,
    network,
    offloading,
    parts,
    peers,
    planepods,
    podresources,
    policies,
    policy,
    repairs,
    rights,
    rules,
    sandbox,
    slices,
    subnamespaces,
)
from tenantry.install.condensed import condensed
from tenantry.install.fallback import MutationForm
from tenantry.install.planepods import PodOptions
from tenantry.install.rights import LABELS, OPERATOR

TUNNEL_PORT = 6447
METRICS_PORT = 8080
SECURE_METRICS_PORT = 8443
DEFAULT_IMAGE = f"tenantry:{__version__}"

OF_OPERATOR = (
    *((each.resource.kind, each.metadata.name) for each in fairness_objects.common()),
    ("LimitRange", APPROVALS),
)
"""Kind and name of the objects that the operator writes again and again with marks of its own."""

SERVICE_ACCOUNT: Json = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": marks.SYSTEM_NAMESPACE}
LOCAL_USER: Json = {"kind": "User", "name": marks.OPERATOR_USER, "apiGroup": RBAC_GROUP}


def definitions() -> list[Json]:
    """Return the CRDs of all kinds."""
    return [custom_resource_definition(kind) for kind in KINDS]


def foundation(subject: Json, form: MutationForm = MutationForm.POLICIES) -> list[Json]:
    """Return what every cluster needs, wherever the operator runs.

    Args:
        subject: The operator: `SERVICE_ACCOUNT` or `LOCAL_USER`.
        form: How mutations are carried out; it depends on the version of the API server.
    """
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": marks.SYSTEM_NAMESPACE,
            "labels": {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    whole = [
        *definitions(),
        namespace,
        rights.operator_role(),
        *rights.people_roles(),
        *rights.bindings(subject),
        *rights.flow_schemas(subject),
        *fairness.everything(subject),
        *policies.suspended(subject),
        *policies.converting(subject),
        *policies.closable(subject),
        *guards.guards(subject),
        *makers.everything(subject),
        *mirror.everything(subject),
        *peers.everything(subject),
        *guests.everything(),
        *clusterinventory.rights(subject),
        *metrics.everything(subject),
        *egress.everything(subject),
        *datastores.everything(subject),
        *network.everything(subject),
        *bandwidth.bandwidth(),
        *podresources.everything(),
        *rules.everything(subject),
        *offloading.everything(),
        *slices.everything(subject),
        *contribution.everything(subject),
        *parts.everything(subject),
        *sandbox.everything(),
        *images.everything(),
        *claims.everything(),
        *hosts.everything(),
        *subnamespaces.everything(subject),
        *controlplanes.everything(subject),
        *dedicatedclusters.everything(subject),
        *inherited.everything(subject),
        *approval.everything(subject),
    ]
    narrow = condensed(policy.narrowed(whole))
    if form is MutationForm.WEBHOOK:
        narrow = fallback.without_policies(narrow, subject)
    return repairs.with_repairs([*narrow, *policy.narrowed(canary.canary(narrow))], subject)


def operator_bindings() -> list[str]:
    """Return the names of the ClusterRoleBindings of the operator, whichever version the API server has."""
    # This form has all bindings of the other one, and that of the webhook.
    whole = foundation(SERVICE_ACCOUNT, MutationForm.WEBHOOK)
    made = (each for each in whole if each["kind"] == "ClusterRoleBinding")
    return [each["metadata"]["name"] for each in made if SERVICE_ACCOUNT in each["subjects"]]


def everything(
    image: str = DEFAULT_IMAGE, pods: PodOptions | None = None, form: MutationForm = MutationForm.POLICIES
) -> list[Json]:
    """Return what a production cluster needs: the foundation, and the operator in it.

    Args:
        image: The operator's.
        pods: How it runs control planes in Pods; None if it runs none.
        form: As for `foundation`.
    """
    further = planepods.everything(SERVICE_ACCOUNT, pods) if pods is not None else ()
    return [*foundation(SERVICE_ACCOUNT, form), *further, *workload(image, pods, form)]


def workload(image: str, pods: PodOptions | None = None, form: MutationForm = MutationForm.POLICIES) -> list[Json]:
    """Return the operator's ServiceAccount, Deployment, Service and PodDisruptionBudget; arguments as `everything`."""
    meta: Json = {"name": OPERATOR, "namespace": marks.SYSTEM_NAMESPACE, "labels": _selector() | LABELS}
    shards = pods.shards if pods is not None else 1
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": max(2, shards),
                # Replicas with different numbers of shards would serve the same control planes.
                **({"strategy": {"type": "Recreate"}} if shards > 1 else {}),
                "selector": {"matchLabels": _selector()},
                "template": _pod(image, pods, form),
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {
                "selector": _selector(),
                "ports": [
                    {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"},
                    {
                        "name": "https-metrics",
                        "port": SECURE_METRICS_PORT,
                        "targetPort": "https-metrics",
                        "protocol": "TCP",
                    },
                ],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta | {"name": f"{OPERATOR}-tunnel"},
            "spec": {
                "selector": _selector(),
                "ports": [{"name": "tunnel", "port": TUNNEL_PORT, "targetPort": "tunnel", "protocol": "TCP"}],
            },
        },
        *([fallback.service(meta, _selector())] if form is MutationForm.WEBHOOK else ()),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"minAvailable": 1, "selector": {"matchLabels": _selector()}},
        },
    ]


def _selector() -> dict[str, str]:
    return {"app.kubernetes.io/name": "tenantry", "app.kubernetes.io/component": "operator"}


def _pod(image: str, pods: PodOptions | None, form: MutationForm) -> Json:
    has_webhook = form is MutationForm.WEBHOOK
    container: Json = {
        "name": "operator",
        "image": image,
        "args": [
            *("operator", "--metrics-address", f"0.0.0.0:{METRICS_PORT}"),
            *("--secure-metrics-address", f"0.0.0.0:{SECURE_METRICS_PORT}"),
            # The leader listens there while a PeerCluster has `dial: Peer`.
            *("--tunnel-address", f"0.0.0.0:{TUNNEL_PORT}"),
            *(fallback.arguments() if has_webhook else ()),
            *(planepods.arguments(pods) if pods is not None else ()),
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            # Where the API server reaches the kubelet ports of Nodes that stand for peers.
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "https-metrics", "containerPort": SECURE_METRICS_PORT, "protocol": "TCP"},
            {"name": "tunnel", "containerPort": TUNNEL_PORT, "protocol": "TCP"},
            *([{"name": "webhook", "containerPort": fallback.PORT, "protocol": "TCP"}] if has_webhook else ()),
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        # The client certificate's way into Python's ssl is a file.
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - the container's own
    }
    volumes: list[Json] = []
    security: Json = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    if pods is not None:
        container["volumeMounts"].append({"name": "snapshots", "mountPath": planepods.SCRATCH})
        volumes.append({"name": "snapshots", "emptyDir": {"sizeLimit": planepods.SCRATCH_SIZE}})
        security["fsGroup"] = 65532
    # Where control planes run in Pods, it has their keys, too.
    size = "16Mi" if pods is None else "64Mi"
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _selector()},
    }
    return {
        "metadata": {"labels": _selector() | LABELS},
        "spec": {
            "serviceAccountName": OPERATOR,
            "priorityClassName": "system-cluster-critical",
            "securityContext": security,
            "topologySpreadConstraints": [spread],
            "terminationGracePeriodSeconds": 30,
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": size}}, *volumes],
        },
    }
