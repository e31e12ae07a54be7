"""Workload templates get warnings about the rules that their pods would break; they are never refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.model import Resource
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH
from tenantry.local.cluster import LocalCluster
from testkit.api import PODS, Api, until
from testkit.operators import Operator
from testkit.people import as_person

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
RULES: Json = {"images": {"allowed": ["busybox"]}, "containers": {"max": {"memory": "1Gi"}, "requiredLimits": ["cpu"]}}
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
OF_APPS = [DEPLOYMENTS, *(Resource("apps", "v1", f"{kind.lower()}s", kind) for kind in ("StatefulSet", "ReplicaSet"))]
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


def of(kind: Resource, image: str, **spec: object) -> Json:
    """Return an object of a kind, whose pods have one container."""
    labels = {"app": "web"}
    containers = [{"name": "web", "image": image, "resources": {"limits": {"memory": "64Mi"}}}]
    template: Json = {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}
    if kind in {JOBS, CRON_JOBS}:
        template["spec"] |= {"restartPolicy": "Never"}
        job = {"template": template}
        inner: Json = job if kind == JOBS else {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
    else:
        inner = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "web"}, "spec": inner}


async def warned(person: Api, kind: Resource, value: Json, namespace: str, *, dry: bool = True) -> str:
    """Make an object, or only try to, and return what the API server warns of."""
    query = {"dryRun": "All"} if dry else {}
    path, body = wire.path(kind, namespace), msgspec.json.encode(value)
    async with person.client.open("POST", path, query=query, body=body) as response:
        return " ".join(response.headers.getall("Warning", []))


async def in_force(person: Api, namespace: str) -> None:
    """Wait until the API server goes by the rules of a namespace."""
    evil = of(DEPLOYMENTS, "evil.example/x")
    await until(lambda: warned(person, DEPLOYMENTS, evil, namespace), "the rules are in force")


@pytest.mark.parametrize("kind", [*OF_APPS, DAEMON_SETS, JOBS, CRON_JOBS], ids=lambda kind: kind.kind)
async def test_what_its_pods_would_be_refused_for_is_told(
    api: Api, alice: Api, operator: Operator, name: str, kind: Resource
) -> None:
    """E15: of each kind, with the words of the refusal, also while the operator is down; what is right is not told."""
    await api.make_tenant(name, rules=RULES)
    await in_force(alice, name)
    await operator.stop()
    told = await warned(alice, kind, of(kind, "evil.example/x", hostNetwork=True), name)
    assert f"container 'web' has the image 'evil.example/x' (rule images.allowed of Tenant '{name}')" in told
    assert "pod is in a namespace of its node (rule podSecurity.hostNamespaces of Tenantry's standard)" in told
    # It has no limit of cpu: the LimitRange of its namespace gives its pods one.
    assert await warned(alice, kind, of(kind, "busybox"), name) == ""


async def test_a_change_of_a_template_is_told_and_of_nothing_else(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """E15: labels of what is there already may change in silence."""
    del operator
    await api.make_tenant(name, rules=RULES)
    await in_force(alice, name)
    assert "images.allowed" in await warned(alice, DEPLOYMENTS, of(DEPLOYMENTS, "evil"), name, dry=False)
    path = wire.path(DEPLOYMENTS, name, "web")

    async def changed(patch: Json) -> str:
        body = msgspec.json.encode(patch)
        async with alice.client.open("PATCH", path, body=body, content_type=MERGE_PATCH) as response:
            return " ".join(response.headers.getall("Warning", []))

    assert await changed({"metadata": {"labels": {"a": "b"}}}) == ""
    large = {"name": "web", "image": "busybox", "resources": {"limits": {"memory": "2Gi"}}}
    told = await changed({"spec": {"template": {"spec": {"containers": [large]}}}})
    assert f"container 'web' may use too much memory (rule containers.max of Tenant '{name}')" in told
    assert "images.allowed" not in told
    assert await api.list(PODS, name) == []


async def test_a_rule_that_warns_or_notes_refuses_no_template(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """E15: what only warns does so here, too, and what is only noted is not told."""
    del operator
    rules = {"podSecurity": {"action": "Warn", "level": "Restricted"}, "images": {"action": "Audit", "allowed": ["x"]}}
    await api.make_tenant(name, rules=rules)

    async def told() -> str:
        return await warned(alice, DEPLOYMENTS, of(DEPLOYMENTS, "busybox"), name)

    assert f"podSecurity.runAsRoot of Tenant '{name}'" in await until(told, "the rules warn")
    assert "images.allowed" not in await told()
