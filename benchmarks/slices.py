"""Measure how long a tenant waits for its own nodes, and for its first pod there.

    tenantry up --nodes 3 --runtime real && tenantry image load whereami.tar       (docs/tutorial-slices.md)
    .venv/bin/python benchmarks/slices.py --rounds 5

Each round claims all nodes but one, for each RuntimeClass: with nothing to evict, and then with pods of another tenant
with a budget that allows no eviction, which stay to the end of the grace period. Prints JSON: seconds, the median and
the worst of the rounds. Everything that was made is deleted again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import uvloop

from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.slice import SliceClaim, SliceClaimSpec, SliceState, Users
from tenantry.bench.load import RUN_LABEL, clean_up, create_tenants, deadline, events, new_run, new_tenant, post
from tenantry.controllers.nodes.controller import Node
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType
from tenantry.local.cluster import LocalCluster

Json = dict[str, Any]

PODS = Resource("", "v1", "pods", "Pod")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SECONDS = 300.0
UNPRIVILEGED = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
BARE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, over the rounds."""

    median: float
    worst: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        bound: From the POST of a claim until it is Bound, with nothing to evict.
        first_pod: RuntimeClass to how long, from Bound until the tenant's first pod there is Running.
        beyond_grace: From the POST of a claim until it is Bound where others' pods stay to the end of the grace
            period; without that period.
        nodes: How many each claim asks for.
        rounds: How many.
        grace_seconds: The grace period.
    """

    bound: Times
    first_pod: dict[str, Times]
    beyond_grace: Times
    nodes: int
    rounds: int
    grace_seconds: int


class Bench:
    """One run.

    Args:
        client: An administrator's.
        image: What pods run; it goes on until it is ended.
        nodes: How many a claim asks for.
        grace: Of claims, in seconds.
    """

    def __init__(self, client: Client, image: str, nodes: int, grace: int) -> None:
        self._client = client
        self._image = image
        self._nodes = nodes
        self._grace = grace
        self._run = new_run()
        self._number = 0
        self.tenant, self.other = f"bench-{self._run}-a", f"bench-{self._run}-b"

    async def prepare(self) -> None:
        """Create two tenants."""
        await create_tenants(self._client, [new_tenant(name, self._run) for name in (self.tenant, self.other)])

    async def clean_up(self) -> None:
        """Delete everything."""
        await clean_up(self._client, self._run)

    async def claim(self) -> tuple[str, float]:
        """Claim nodes and return the claim's name and the seconds until it was Bound."""
        self._number += 1
        name = f"c-{self._number}"
        spec = SliceClaimSpec(count=self._nodes, users=Users.EVERYBODY, grace_period_seconds=self._grace)
        began = time.perf_counter()
        await self._client.create(SliceClaim(metadata=ObjectMeta(name=name, namespace=self.tenant), spec=spec))

        def is_bound(body: msgspec.Raw | bytes) -> bool:
            return msgspec.json.decode(body, type=SliceClaim).status.state is SliceState.BOUND

        await self._seen(SliceClaim.resource, name, is_bound, "a claim is Bound")
        return name, time.perf_counter() - began

    async def first_pod(self, runtime: str) -> float:
        """Create a pod and return the seconds until it was Running."""
        name = f"p-{self._number}"
        meta: Json = {"name": name, "namespace": self.tenant, "labels": {RUN_LABEL: name}}
        began = time.perf_counter()
        await post(self._client, PODS, {"metadata": meta, "spec": {**self._pod(), "runtimeClassName": runtime}})
        await self._seen(PODS, name, _is_running, f"a pod runs in {runtime}")
        return time.perf_counter() - began

    async def release(self, name: str) -> None:
        """Give the nodes back, and wait until they are in the shared pool again."""
        await self._client.delete(SliceClaim.resource, self.tenant, name)
        taken: set[str] = set()
        is_listed = False
        async with (
            deadline(SECONDS, "nodes are not given back"),
            aclosing(events(self._client, Node.resource, {})) as seen,
        ):
            async for type_, body in seen:
                if type_ is EventType.BOOKMARK:
                    is_listed = True
                else:
                    node = msgspec.json.decode(body, type=Node)
                    owner = node.metadata.annotations.get("tenantry.dev/slice-claim", "")
                    (taken.add if owner else taken.discard)(node.metadata.name)
                if is_listed and not taken:
                    return

    async def occupy(self) -> None:
        """Run pods of the other tenant on every node, with a budget that allows no eviction; wait until they run."""
        labels = {"app": "held"}
        spread: Json = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        pod = {**self._pod(), "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}]}
        count = 2 * (self._nodes + 1)
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec: Json = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": "held", "namespace": self.other}
        await post(self._client, DEPLOYMENTS, {"metadata": meta, "spec": spec})
        budget = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
        await post(self._client, BUDGETS, {"metadata": meta, "spec": budget})
        await self.settled()

    async def settled(self) -> None:
        """Wait until all pods of the other tenant are available."""

        def is_whole(body: msgspec.Raw | bytes) -> bool:
            found: Json = msgspec.json.decode(body)
            return bool(found.get("status", {}).get("availableReplicas") == found["spec"]["replicas"])

        await self._seen(DEPLOYMENTS, "held", is_whole, "the other tenant's pods run")

    async def restart(self) -> None:
        """Spread the other tenant's pods over all nodes again."""
        await self._client.delete(DEPLOYMENTS, self.other, "held")
        await self._client.delete(BUDGETS, self.other, "held")
        gone: set[str] = set()
        is_listed = False
        only = {"labelSelector": "app=held"}
        async with deadline(SECONDS, "pods are still there"), aclosing(events(self._client, PODS, only)) as seen:
            async for type_, body in seen:
                if type_ is EventType.BOOKMARK:
                    is_listed = True
                else:
                    name = str(msgspec.json.decode(body)["metadata"]["name"])
                    (gone.discard if type_ is EventType.DELETED else gone.add)(name)
                if is_listed and not gone:
                    break
        await self.occupy()

    def _pod(self) -> Json:
        resources = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
        container = {"name": "main", "image": self._image, "securityContext": BARE, "resources": resources}
        return {"securityContext": UNPRIVILEGED, "terminationGracePeriodSeconds": 1, "containers": [container]}

    async def _seen(self, resource: Resource, name: str, is_so: Callable[[Any], bool], what: str) -> None:
        only = {"fieldSelector": f"metadata.name={name}"}
        async with deadline(SECONDS, f"not so: {what}"), aclosing(events(self._client, resource, only)) as seen:
            async for type_, body in seen:
                if type_ in {EventType.ADDED, EventType.MODIFIED} and is_so(body):
                    return


def _is_running(body: msgspec.Raw | bytes) -> bool:
    found: Json = msgspec.json.decode(body)
    return bool(found.get("status", {}).get("phase") == "Running")


async def measure(
    bench: Bench, runtimes: Sequence[str], rounds: int
) -> tuple[list[float], dict[str, list[float]], list[float]]:
    """Return the seconds until Bound, until the first pod runs, and until Bound if pods must leave."""
    bound: list[float] = []
    first: dict[str, list[float]] = {runtime: [] for runtime in runtimes}
    evicted: list[float] = []
    for number in range(1, rounds + 1):
        for runtime in runtimes:
            name, seconds = await bench.claim()
            bound.append(seconds)
            first[runtime].append(await bench.first_pod(runtime))
            await bench.release(name)
        say(f"{number}/{rounds}: nothing to evict, Bound after {bound[-1]:.2f} s")
    await bench.occupy()
    for number in range(1, rounds + 1):
        name, seconds = await bench.claim()
        evicted.append(seconds)
        say(f"{number}/{rounds}: pods held by their budget, Bound after {seconds:.2f} s")
        await bench.release(name)
        if number < rounds:
            await bench.restart()
    return bound, first, evicted


def times(seconds: Sequence[float]) -> Times:
    """Return the median and the worst."""
    return Times(median=round(statistics.median(seconds), 2), worst=round(max(seconds), 2))


def say(text: str) -> None:
    """Print the progress to stderr."""
    sys.stderr.write(f"{text}\n")


async def main(name: str, image: str, runtimes: Sequence[str], rounds: int, grace: int) -> Result:
    """Run the benchmark."""
    path = LocalCluster(name).kubeconfig_path
    async with Client(kubeconfig.load([path]), field_manager="tenantry-bench") as client:
        nodes = len(await client.list(Node)) - 1
        bench = Bench(client, image, nodes, grace)
        try:
            await bench.prepare()
            bound, first, evicted = await measure(bench, runtimes, rounds)
        finally:
            await asyncio.shield(bench.clean_up())
    return Result(
        bound=times(bound),
        first_pod={runtime: times(seconds) for runtime, seconds in first.items()},
        beyond_grace=times([seconds - grace for seconds in evicted]),
        nodes=nodes,
        rounds=rounds,
        grace_seconds=grace,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=os.environ.get("TENANTRY_NAME", "default"), help="of the local cluster")
    parser.add_argument("--image", default="tenantry.local/whereami:1", help="what pods run")
    parser.add_argument("--runtime", action="append", help="a RuntimeClass; by default runc and gvisor")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grace", type=int, default=10, help="seconds")
    asked = parser.parse_args()
    result = uvloop.run(main(asked.name, asked.image, asked.runtime or ["runc", "gvisor"], asked.rounds, asked.grace))
    print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
