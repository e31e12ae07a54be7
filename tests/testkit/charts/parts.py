"""Parts that objects of many charts have: Services, Roles, NetworkPolicies, workloads with their pods."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

CHARTS_HARDENED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsGroup": 1001,
    "runAsNonRoot": True,
    "runAsUser": 1001,
    "seLinuxOptions": {},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""`containerSecurityContext`, as the charts of Bitnami have it."""

CHARTS_POD: Json = {"fsGroup": 1001, "fsGroupChangePolicy": "Always", "supplementalGroups": [], "sysctls": []}
"""`podSecurityContext` of the same charts."""

SMALL: Json = {
    "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "50Mi"},
    "limits": {"cpu": "150m", "memory": "192Mi", "ephemeral-storage": "2Gi"},
}
"""`resourcesPreset: nano` of the same charts."""


CONFINED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A container's security context that passes in Restricted."""


def values(standard: str, context: Json, resources: Json) -> Json:
    """Return the security context and the resources of a container: the chart's, and for Restricted what it needs.

    Args:
        standard: Of the tenant: `Baseline` or `Restricted`.
        context: The `securityContext` without values for Restricted.
        resources: The `resources` without values for Restricted.
    """
    if standard == "Restricted":
        return {"securityContext": {**context, **CONFINED}, "resources": {**resources, "limits": SMALL["limits"]}}
    return {"securityContext": context, "resources": resources}


def named(name: str, chart: str = "", **annotations: str) -> Json:
    """Return the metadata of an object of a release."""
    labels = {
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/name": chart or name,
        "helm.sh/chart": f"{chart or name}-1.0.0",
    }
    return {"name": name, "labels": labels, **({"annotations": annotations} if annotations else {})}


def made(api: str, kind: str, name: str, /, **more: object) -> Json:
    """Return an object."""
    return {"apiVersion": api, "kind": kind, "metadata": named(name), **more}


def account(name: str) -> Json:
    """Return a ServiceAccount."""
    return made("v1", "ServiceAccount", name, automountServiceAccountToken=False)


def config(name: str, **data: str) -> Json:
    """Return a ConfigMap."""
    return made("v1", "ConfigMap", name, data=data or {"config": "a = b\n"})


def secret(name: str, **data: str) -> Json:
    """Return a Secret."""
    return made("v1", "Secret", name, type="Opaque", stringData=data or {"password": "example"})


def service(name: str, *ports: int, headless: bool = False, **more: object) -> Json:
    """Return a Service of type ClusterIP."""
    spec: Json = {
        "ports": [{"name": f"p{port}", "port": port, "targetPort": port, "nodePort": None} for port in ports],
        "selector": {"app.kubernetes.io/name": name.removesuffix("-hl")},
        "sessionAffinity": "None",
        "type": "ClusterIP",
        **({"clusterIP": "None", "publishNotReadyAddresses": True} if headless else {}),
        **more,
    }
    return made("v1", "Service", name, spec=spec)


def role(name: str, *rules: tuple[str, str, str], bind: str = "") -> list[Json]:
    """Return a Role and its RoleBinding; each rule is a group, plurals and verbs with spaces between them."""
    api, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    listed = [{"apiGroups": [of], "resources": what.split(), "verbs": verbs.split()} for of, what, verbs in rules]
    return [
        made(api, "Role", name, rules=listed),
        made(
            *(api, "RoleBinding", name),
            roleRef={"apiGroup": group, "kind": "Role", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": bind or name}],
        ),
    ]


def budget(name: str) -> Json:
    """Return a PodDisruptionBudget."""
    return made("policy/v1", "PodDisruptionBudget", name, spec={"maxUnavailable": 1, "selector": _selector(name)})


def network(name: str, *ports: int) -> Json:
    """Return the NetworkPolicy of a chart that leaves peers open: any egress, ingress by port."""
    spec: Json = {
        "podSelector": _selector(name),
        "policyTypes": ["Ingress", "Egress"],
        "egress": [{}],
        "ingress": [{"ports": [{"port": port} for port in ports]}],
    }
    return made("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def ingress(name: str, host: str, port: int, *, tls: bool = True, **annotations: str) -> Json:
    """Return an Ingress for one host; keys of annotations have `__` for `/` and `_` for `.`."""
    keys = {key.replace("__", "/").replace("_", "."): value for key, value in annotations.items()}
    backend = {"service": {"name": name, "port": {"number": port}}}
    spec: Json = {
        "ingressClassName": "public",
        "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
        **({"tls": [{"hosts": [host], "secretName": f"{host}-tls"}]} if tls else {}),
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": named(name, "", **keys),
        "spec": spec,
    }


def claim(name: str, size: str = "8Gi") -> Json:
    """Return a PersistentVolumeClaim."""
    return made("v1", "PersistentVolumeClaim", name, spec=_claim(size))


def container(name: str, *ports: int, **more: object) -> Json:
    """Return a container with probes of its first port."""
    probe = {"livenessProbe": {"tcpSocket": {"port": ports[0]}, "periodSeconds": 10}} if ports else {}
    return {
        "name": name,
        "image": f"docker.io/library/{name}:1",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": f"p{port}", "containerPort": port} for port in ports],
        **probe,
        **more,
    }


def hardened(name: str, *ports: int, **more: object) -> Json:
    """Return a container of a chart of Bitnami."""
    context = {**CHARTS_HARDENED}
    return container(name, *ports, securityContext=context, resources=SMALL, **more)


def pod(name: str, *containers: Json, **spec: object) -> Json:
    """Return the template of a pod; its preferred anti-affinity is that of many charts."""
    term = {"labelSelector": _selector(name), "topologyKey": "kubernetes.io/hostname"}
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term, "weight": 1}]}
    return {
        "metadata": {"labels": named(name)["labels"], "annotations": {"checksum/config": "0123"}},
        "spec": {
            "affinity": {"podAntiAffinity": affinity},
            "containers": list(containers),
            "serviceAccountName": name,
            **spec,
        },
    }


def bitnami(name: str, *containers: Json, **spec: object) -> Json:
    """Return the template of a pod of a chart of Bitnami."""
    volumes: Any = spec.pop("volumes", [])
    whole: Json = {
        "automountServiceAccountToken": False,
        "securityContext": CHARTS_POD,
        "volumes": [{"name": "empty-dir", "emptyDir": {}}, *volumes],
        **spec,
    }
    return pod(name, *containers, **whole)


def deployment(name: str, template: Json) -> Json:
    """Return a Deployment."""
    return made("apps/v1", "Deployment", name, spec={"replicas": 1, "selector": _selector(name), "template": template})


def stateful(name: str, template: Json, *claims: str, size: str = "8Gi") -> Json:
    """Return a StatefulSet with a claim for each name."""
    templates = [{"metadata": {"name": each}, "spec": _claim(size)} for each in claims]
    spec = {
        "replicas": 1,
        "selector": _selector(name),
        "serviceName": f"{name}-hl",
        "podManagementPolicy": "Parallel",
        "template": template,
        "volumeClaimTemplates": templates,
    }
    return made("apps/v1", "StatefulSet", name, spec=spec)


def job(name: str, template: Json, hook: str = "") -> Json:
    """Return a Job; `hook` makes it one of Helm's hooks."""
    metadata = named(
        name, "", **({"helm.sh/hook": hook, "helm.sh/hook-delete-policy": "hook-succeeded"} if hook else {})
    )
    once = {**template, "spec": {"restartPolicy": "OnFailure", **template["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": once}}


def from_config(name: str) -> Json:
    """Return a volume of a ConfigMap."""
    return {"name": name, "configMap": {"name": name, "defaultMode": 0o555}}


def from_secret(name: str) -> Json:
    """Return a volume of a Secret."""
    return {"name": name, "secret": {"secretName": name}}


def from_claim(name: str) -> Json:
    """Return a volume of a claim."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def scratch(name: str) -> Json:
    """Return an empty volume."""
    return {"name": name, "emptyDir": {}}


def together(name: str, secret_name: str) -> Json:
    """Return a projected volume of a Secret."""
    return {"name": name, "projected": {"sources": [{"secret": {"name": secret_name}}]}}


def _claim(size: str) -> Json:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}


def _selector(name: str) -> Json:
    return {"matchLabels": {"app.kubernetes.io/instance": name, "app.kubernetes.io/name": name}}
