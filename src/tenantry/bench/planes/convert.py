"""How long a tenant that runs takes to get a control plane of its own, and whether a pod restarts.

Deployments run on the host ─► spec.isolation.controlPlane: Virtual ─► status.conversion: Converted ─► the same pods?
"""

from __future__ import annotations

import time
from contextlib import aclosing

import msgspec

from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.errors import RetryableError
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.bench.load import (
    RUN_LABEL,
    Progress,
    clean_up,
    create_tenants,
    deadline,
    events,
    new_run,
    new_tenant,
    of_run,
    post,
    saturate,
)
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.tasks import in_background
from tenantry.kube.client import Client

READY_SECONDS = 300.0
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_VIRTUAL = {"spec": {"isolation": {"controlPlane": "Virtual"}}}


class PlaneConvertResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        deployments: How many Deployments there were.
        pods: How many pods ran.
        seconds: From the change of the spec to the end of the conversion.
        refused_seconds: How long writes were refused: from the step Preparing, in which owners lose their rights.
        restarts: Pods that were not the same ones afterwards, and restarts of containers.
    """

    deployments: int
    pods: int
    seconds: float
    refused_seconds: float
    restarts: int


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    restart_count: int = 0


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    container_statuses: tuple[_Container, ...] = ()


class _SeenPod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _PodStatus = _PodStatus()


class _DeploymentStatus(msgspec.Struct, frozen=True, rename="camel"):
    ready_replicas: int = 0


class _SeenDeployment(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _DeploymentStatus = _DeploymentStatus()


async def convert(client: Client, deployments: int, pods: int, progress: Progress) -> PlaneConvertResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster with nodes.
        deployments: How many Deployments.
        pods: How many pods they have together.
        progress: Receives a line after each step.

    Raises:
        RetryableError: The pods do not run, or the tenant is not converted, in time.
    """
    run = new_run()
    name = f"bench-{run}"
    replicas = max(1, pods // deployments)
    quota = {"cpu": "64", "memory": "128Gi", "pods": 2 * deployments * replicas}
    try:
        await create_tenants(client, [new_tenant(name, run, quota=quota)])
        await _run(client, name, run, deployments, replicas)
        before = await _pods(client, name)
        progress(f"{len(before)} pods of {deployments} Deployments run")
        async with in_background(_steps(client, run)) as steps:
            began = time.perf_counter()
            await client.merge_patch(Tenant.resource, "", name, _VIRTUAL)
            seen = await steps
        after = await _pods(client, name)
    finally:
        await clean_up(client, run)
    return PlaneConvertResult(
        deployments=deployments,
        pods=len(before),
        seconds=round(seen[ConversionStep.CONVERTED] - began, 2),
        refused_seconds=round(seen[ConversionStep.CONVERTED] - seen[ConversionStep.PREPARING], 2),
        restarts=len(before.keys() - after.keys()) + sum(after.values()),
    )


async def _run(client: Client, namespace: str, run: str, count: int, replicas: int) -> None:
    """Create the Deployments, and wait until all of their pods are ready."""
    values = [_deployment(f"web-{number}", namespace, run, replicas) for number in range(count)]
    await saturate(lambda each: post(client, DEPLOYMENTS, each), values)
    ready: set[str] = set()
    async with (
        deadline(READY_SECONDS, "the pods are not ready"),
        aclosing(events(client, DEPLOYMENTS, of_run(run))) as all_,
    ):
        async for _, data in all_:
            if data:
                found = msgspec.json.decode(data, type=_SeenDeployment)
                ready |= {found.metadata.name} if found.status.ready_replicas == replicas else set()
            if len(ready) == count:
                return


def _deployment(name: str, namespace: str, run: str, replicas: int) -> dict[str, object]:
    labels = {"app": name}
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "20m", "memory": "32Mi"}}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {RUN_LABEL: run}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def _pods(client: Client, namespace: str) -> dict[str, int]:
    """Return the restarts of the containers of each pod, by its uid."""
    return {
        each.metadata.uid: sum(container.restart_count for container in each.status.container_statuses)
        async for each in client.items(Pod.resource, _SeenPod, namespace=namespace)
    }


async def _steps(client: Client, run: str) -> dict[ConversionStep, float]:
    """Return when each step of the conversion was seen first."""
    seen: dict[ConversionStep, float] = {}
    async with (
        deadline(READY_SECONDS, "the tenant is not converted"),
        aclosing(events(client, Tenant.resource, of_run(run))) as all_,
    ):
        async for _, data in all_:
            journal = msgspec.json.decode(data, type=Tenant).status.conversion if data else None
            if not isinstance(journal, Conversion):
                continue
            if journal.step is ConversionStep.REFUSED:
                raise RetryableError(f"the conversion is refused: {journal.message}")
            now = time.perf_counter()
            seen.setdefault(ConversionStep.PREPARING, now)
            seen.setdefault(journal.step, now)
            if journal.step is ConversionStep.CONVERTED:
                break
    return seen
