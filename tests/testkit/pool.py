"""Nodes of one test, without kubelets, and claims of them."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from tenantry.api import marks, reasons
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.kubernetes import ClusterRoleBinding
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.engine.clock import rfc3339, rfc3339_micro
from testkit.api import PODS, Api, until
from testkit.refusals import tried
from testkit.requests import People

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
HEARTBEAT_SECONDS = 5.0


CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)


class Pool:
    """Nodes for one test, with a label, and a shared node without it.

    Args:
        api: An administrator.
        name: Of the pool.
    """

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.name = name
        self.nodes: list[str] = []
        self.spare = f"{name}-spare"
        self._words = 0
        self.living = [asyncio.create_task(self._beat())]

    @property
    def selector(self) -> Json:
        """Return the selector of these nodes."""
        return {"matchLabels": {"pool": self.name}}

    async def add(self, count: int, *, cpu: str = "8", **labels: str) -> list[str]:
        """Create more nodes, which are Ready.

        They have no room for pods: pods of other tests would be scheduled there, and stay without a kubelet.
        """
        return await self.make(count, {"cpu": cpu, "memory": "32Gi", "pods": "0"}, labels)

    async def make(
        self, count: int, capacity: Mapping[str, str], labels: Mapping[str, str], taints: Sequence[Json] = ()
    ) -> list[str]:
        """Create nodes, and return their names once they can be used."""
        if not self.nodes:
            # Claims may take all others: see spec.slices.sharedNodes of TenancyDefaults.
            await self._create(self.spare, {"cpu": "1", "memory": "1Gi", "pods": "0"}, {}, ())
        first = len(self.nodes)
        made = [f"{self.name}-{number}" for number in range(first, first + count)]
        for each in made:
            await self._create(each, capacity, {"pool": self.name, **labels}, taints)
            self.nodes.append(each)
        own = {taint["key"] for taint in taints}

        async def usable() -> bool:
            # Kubernetes taints each new node until its controller has seen that it is Ready.
            found = [await self.node(each) for each in (*made, self.spare)]
            return own.issuperset(taint["key"] for node in found for taint in node["spec"].get("taints", []))

        await until(usable, f"{made} can be used")
        await self.heard()
        return made

    async def heard(self) -> None:
        """Wait until the operator has seen all changes of nodes until now.

        It is told of nodes in the order of their changes, but of claims beside: one that it hears of before is decided
        on by the nodes as they were. The last change is one that it answers.
        """
        self._words += 1
        said = str(self._words)
        await self.api.patch(Node.resource, self.spare, {"metadata": {"labels": {marks.INGRESS_MBPS: said}}})

        async def so() -> bool:
            return (await self.node(self.spare))["status"]["capacity"].get(marks.INGRESS_MBPS) == said

        await until(so, "the operator has heard of the nodes")

    async def join(self, name: str, *, cpu: str) -> None:
        """Create a node of this name, such as a contributed one."""
        await self._create(name, {"cpu": cpu, "memory": "32Gi", "pods": "0"}, {"pool": self.name}, ())
        self.nodes.append(name)

    async def _create(
        self, name: str, capacity: Mapping[str, str], labels: Mapping[str, str], taints: Sequence[Json]
    ) -> None:
        now = dt.datetime.now(dt.UTC)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Test",
            "message": "",
            "lastTransitionTime": rfc3339(now),
        }
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        await self.api.create(Node.resource, {"metadata": meta, "spec": {"taints": list(taints)}, "status": status})
        # Without a first renewTime, Kubernetes ignores later ones, and marks the node as not ready after a while.
        lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(now)}
        await self.api.create(LEASES, {"metadata": {"name": name}, "spec": lease}, "kube-node-lease")

    async def node(self, name: str) -> Json:
        """Return a node."""
        return await self.api.get(Node.resource, name)

    async def _beat(self) -> None:
        """Renew the leases, as kubelets do: a node without a fresh lease becomes not ready."""
        while True:
            now = {"spec": {"renewTime": rfc3339_micro(dt.datetime.now(dt.UTC))}}
            for each in self._all():
                with suppress(ApiError):  # like a kubelet, it continues if the API server is away for a moment
                    await self.api.patch(LEASES, each, now, "kube-node-lease")
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _all(self) -> list[str]:
        return [*self.nodes, self.spare] if self.nodes else []

    async def end(self) -> None:
        """Delete them."""
        for task in self.living:
            task.cancel()
        await asyncio.gather(*self.living, return_exceptions=True)
        await asyncio.gather(*(self.api.delete(Node.resource, each) for each in self._all()))
        await asyncio.gather(*(self.api.delete(LEASES, each, "kube-node-lease") for each in self._all()))


async def give_every_node(api: Api) -> None:
    """Let claims take every node of a cluster that only this test uses, at once."""
    slices = {"sharedNodes": 0, "minGracePeriodSeconds": 0}
    if await api.find(TenancyDefaults.resource, DEFAULTS) is None:
        await api.create(TenancyDefaults.resource, {"metadata": {"name": DEFAULTS}, "spec": {"slices": slices}})
    else:
        # `tenantry up --runtime real` declares there what its kubelets do.
        await api.patch(TenancyDefaults.resource, DEFAULTS, {"spec": {"slices": slices}})
    # No claim evicts the cluster's DNS from its node.
    for found in await api.list(DEPLOYMENTS, "kube-system"):
        await api.delete(DEPLOYMENTS, found["metadata"]["name"], "kube-system")

    async def none() -> bool:
        pods = await api.list(PODS, "kube-system")
        return all(owner["kind"] == "DaemonSet" for pod in pods for owner in pod["metadata"].get("ownerReferences", []))

    await until(none, "no pod of the cluster itself runs")


async def claim(api: Api, namespace: str, name: str, **spec: object) -> None:
    """Make a claim."""
    await api.create(SliceClaim.resource, {"metadata": {"name": name}, "spec": spec}, namespace)


async def state(api: Api, namespace: str, name: str, wanted: str, reason: str = "") -> Json:
    """Wait until a claim is in a state, and return it."""
    status: Json = {}

    async def so() -> Json | None:
        nonlocal status
        found = await api.get(SliceClaim.resource, name, namespace)
        status = found.get("status", {})
        told = [each["reason"] for each in status.get("conditions", []) if each["type"] == reasons.READY]
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        right = status.get("state") == wanted and (not reason or reason in told)
        return found if current and right else None

    try:
        return await until(so, f"claim {namespace}/{name} is {wanted} {reason}")
    except AssertionError as error:
        error.add_note(f"its status: {status}")
        raise


async def is_let_in(api: Api, namespace: str, slice_: str, pod: Json) -> None:
    """Wait until a namespace's pods are bound to a slice: policies see its label a moment later."""

    async def so() -> bool:
        made = await tried(api, PODS, pod, namespace)
        return bool(made["spec"].get("nodeSelector", {}).get(marks.SLICE) == slice_)

    await until(so, f"pods of {namespace} are bound to {slice_}")


def message(found: Json) -> str:
    """Return the message of a claim's condition Ready."""
    told: list[str] = [each["message"] for each in found["status"]["conditions"] if each["type"] == reasons.READY]
    return told[0]


def slice_marks(node: Json) -> tuple[str, str, set[str]]:
    """Return a node's reserved slice, its bound slice, and the effects of its taint."""
    labels = node["metadata"].get("labels", {})
    taints = {each["effect"] for each in node["spec"].get("taints", []) if each["key"] == marks.SLICE}
    return labels.get(marks.SLICE_RESERVED, ""), labels.get(marks.SLICE, ""), taints


async def free(pool: Pool, names: list[str]) -> None:
    """Wait until nodes are shared again."""

    async def so() -> bool:
        return all([slice_marks(await pool.node(each)) == ("", "", set()) for each in names])

    await until(so, f"{names} are shared again")


@asynccontextmanager
async def node_writer(api: Api, people: People, who: str, node: str) -> AsyncGenerator[Api]:
    """Connect as a user with write access to all nodes, like agents of clusters."""
    rule = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}
    await api.create(CLUSTER_ROLES, {"metadata": {"name": who}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": who}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}
    binding = {"metadata": {"name": who}, "roleRef": reference, "subjects": [subject]}
    await api.create(ClusterRoleBinding.resource, binding)
    writer = await people.person(who)

    async def may() -> bool:
        try:
            await writer.patch(Node.resource, node, {"metadata": {"labels": {"mine": "1"}}})
        except Forbidden:
            return False
        return True

    await until(may, f"{who} has its rights")
    yield writer
    await writer.patch(Node.resource, node, {"metadata": {"labels": {"mine": None}}})
    await api.delete(ClusterRoleBinding.resource, who)
    await api.delete(CLUSTER_ROLES, who)
