"""Tenants with everything that a conversion moves, and how the tests follow one."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from tenantry.api.kubernetes import RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from testkit.api import CONFIG_MAPS, PODS, ROLES, SECONDS, SECRETS, Api, until
from testkit.planes import ready

Json = dict[str, Any]
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
SERVICES = Resource("", "v1", "services", "Service")
ALICE: Json = {"kind": "User", "name": "alice"}
EVERYTHING: Json = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
VIRTUAL: Json = {"spec": {"isolation": {"controlPlane": "Virtual"}}}
SHARED: Json = {"spec": {"isolation": {"controlPlane": "Shared"}}}


def workload(name: str, replicas: int, **more: object) -> Json:
    """A workload whose pods name a ConfigMap and a Secret."""
    reads = [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "password"}}]
    spec = {"containers": [{"name": "c", "image": "nginx", "envFrom": reads}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    chosen = {"matchLabels": {"app": name}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": chosen, "template": template, **more},
    }


async def fill(host: Api, namespace: str) -> None:
    """Create what a tenant has."""
    await host.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"a": "1"}}, namespace)
    await host.create(CONFIG_MAPS, {"metadata": {"name": "notes"}, "data": {"b": "1"}}, namespace)
    secret = {"metadata": {"name": "password"}, "type": "kubernetes.io/basic-auth", "stringData": {"password": "x"}}
    await host.create(SECRETS, secret, namespace)
    spec = {"selector": {"app": "front"}, "ports": [{"port": 80}]}
    await host.create(SERVICES, {"metadata": {"name": "front"}, "spec": spec}, namespace)
    await host.create(ROLES, {"metadata": {"name": "reader"}, "rules": []}, namespace)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await host.create(CLAIMS, {"metadata": {"name": "data"}, "spec": claim}, namespace)
    chosen: Json = {"podSelector": {"matchLabels": {"app": "front"}}, "ingress": [{"from": [{"podSelector": {}}]}]}
    await host.create(POLICIES, {"metadata": {"name": "own"}, "spec": chosen}, namespace)
    await host.create(ROLES, {"metadata": {"name": "all"}, "rules": [EVERYTHING]}, namespace)
    role = {"kind": "Role", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}
    subjects = [{"kind": "User", "name": "mallory"}]
    await host.create(
        RoleBinding.resource, {"metadata": {"name": "all"}, "roleRef": role, "subjects": subjects}, namespace
    )
    await host.create(DEPLOYMENTS, workload("front", 2), namespace)
    await host.create(STATEFUL_SETS, workload("store", 1, serviceName="store"), namespace)


def runs(pods: list[Json], count: int) -> bool:
    """Whether so many pods run, and no others are there."""
    return len(pods) == count and all(each["status"].get("phase") == "Running" for each in pods)


async def running(side: Api, namespace: str, count: int) -> list[Json]:
    """Wait until so many pods run, and no others are there; return them."""

    async def so() -> list[Json] | None:
        found = await side.list(PODS, namespace)
        return found if runs(found, count) else None

    return await until(so, f"{count} pods run", seconds=2 * SECONDS)


async def converted(host: Api, name: str, step: str = "Converted", to: str = "Virtual", parent: str = "") -> Json:
    """Wait for a step of the conversion of a Tenant, or of a Subnamespace of a parent, and return the journal."""
    kind = Subnamespace if parent else Tenant
    seen: Json = {}

    async def so() -> Json | None:
        seen.update((await host.get(kind.resource, name, parent)).get("status", {}).get("conversion", {}))
        return seen if seen.get("step") in (step, "Converted") and seen.get("to") == to else None

    return await until(so, f"the step {step}", seconds=3 * SECONDS, seen=lambda: seen)


async def ready_child(host: Api, parent: str, name: str) -> str:
    """Wait until a Subnamespace is ready as it is specified, and return its namespace."""
    seen: Json = {}

    async def so() -> str | None:
        seen.update(await host.get(Subnamespace.resource, name, parent))
        is_seen = seen.get("status", {}).get("observedGeneration") == seen["metadata"]["generation"]
        return str(seen["status"]["namespace"]) if is_seen and ready(seen).get("status") == "True" else None

    return await until(so, "the Subnamespace is ready", seconds=3 * SECONDS, seen=lambda: ready(seen))


async def convert_command(config: Path, kind: str, *arguments: str) -> tuple[int, str]:
    """Run `tenantry KIND convert` with a kubeconfig; return its exit code, and its output with its messages."""
    code, out, err = await _run(kind, "convert", *arguments, config=config)
    return code, out + err


async def kubeconfig_of(config: Path, tenant: str, user: str) -> str:
    """Return a kubeconfig of a user, who is an owner of a tenant."""
    code, out, err = await _run("kubeconfig", "--tenant", tenant, "--user", user, config=config)
    assert code == 0, err
    return out


async def _run(*arguments: str, config: Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *arguments, "--kubeconfig", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={key: value for key, value in os.environ.items() if key != "TENANTRY_NAME"},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
