"""A world with a tenant, nodes, pods and claims before the operator's controllers; see `testkit.worldcluster`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource, object_key
from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim, slice_name
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.controllers.operator import controllers
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.clock import rfc3339
from tenantry.hosting.machines import Machines
from testkit.model import World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant

Json = dict[str, Any]
WIDE = 600.0
"""Seconds after which every stage has ended, grace periods included."""

PART = {"sharing": "Part", "perNode": {"cpu": "1", "memory": "1Gi"}}


class SliceWorld:
    """A cluster with a tenant `acme`, whose namespace may claim nodes.

    Args:
        quota: Of the tenant.
        faults: What happens to requests; see `WorldCluster`.
        machines: Moves the machines of real nodes.
        slices: More of `spec.slices` of TenancyDefaults.
    """

    def __init__(
        self,
        *,
        quota: dict[str, str | int] | None = None,
        faults: Callable[[], str] = lambda: "none",
        machines: Machines | None = None,
        **slices: int,
    ) -> None:
        self.world = World()
        self._faults = faults
        self._machines = machines
        self.world.create(tenant("acme", quota=quota))
        for name in ("others", "kube-system"):
            self.world.put_in(Namespace.resource, {"metadata": {"name": name}})
        limits = {"sharedNodes": 0, "maxGracePeriodSeconds": 3600, **slices}
        self.world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"slices": limits}})
        self.cluster = self.restart()
        self.settle()

    def restart(self) -> WorldCluster:
        """Start another operator on the same world."""
        self.cluster = WorldCluster(self.world, controllers(CLUSTER_UID, machines=self._machines), faults=self._faults)
        return self.cluster

    def settle(self, seconds: float = WIDE) -> None:
        """Let the operator work for some time."""
        self.cluster.settle(seconds)

    # -- actions of users and other programs ------------------------------------------------------

    def node(self, name: str, *, cpu: str = "4", notes: dict[str, str] | None = None, shared: bool = False) -> None:
        """Add a Ready node with annotations; `shared` ones are allocated in parts."""
        marks = {"tenantry.dev/parts": "true"} if shared else {}
        room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        conditions = [{"type": "Ready", "status": "True"}]
        self.world.put_in(
            Node.resource,
            {
                "metadata": {"name": name, "labels": marks, "annotations": notes or {}},
                "spec": {},
                "status": {"capacity": room, "allocatable": room, "conditions": conditions},
            },
        )

    def fail(self, name: str) -> None:
        """Mark a node as not ready."""
        now = rfc3339(self.cluster.clock.now())
        conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": now}]
        self.world.patch(Node.resource, name, {"status": {"conditions": conditions}})

    def withdraw(self, name: str) -> None:
        """Let its contributor withdraw a node, as `tenantry node withdraw` and the contribution controller do."""
        self.annotate(name, "tenantry.dev/taken-back", rfc3339(self.cluster.clock.now()))
        self.world.patch(Node.resource, name, {"spec": {"unschedulable": True}})

    def annotate(self, name: str, key: str, value: str) -> None:
        """Annotate a node."""
        self.world.patch(Node.resource, name, {"metadata": {"annotations": {key: value}}})

    def enforce_quotas(self) -> None:
        """Let the operator work while the quota controller of Kubernetes puts each ResourceQuota in force."""
        for _ in range(5):
            self.settle(30)
            for each in self.world.list(ResourceQuota.resource):
                key = object_key(each["metadata"]["namespace"], each["metadata"]["name"])
                hard = each["spec"]["hard"]
                status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
                self.world.patch(ResourceQuota.resource, key, {"status": status})

    def pod(self, name: str, node: str, *, namespace: str = "others", selector: str = "", alone: bool = False) -> str:
        """Add a pod that runs on a node, and return its key."""
        owners = (
            [] if alone else [{"kind": "ReplicaSet", "controller": True, "name": "r", "uid": "r", "apiVersion": "v"}]
        )
        self.world.put_in(
            Pod.resource,
            {
                "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
                "spec": {"nodeName": node, "nodeSelector": {selector: ""} if selector else {}, "containers": []},
                "status": {"phase": "Running"},
            },
        )
        return object_key(namespace, name)

    def own_pod(self, name: str, node: str, slice_: str) -> str:
        """Add a pod that is bound to a slice, and return its key."""
        key = self.pod(name, node, namespace="acme")
        self.world.patch(Pod.resource, key, {"spec": {"nodeSelector": {"tenantry.dev/slice": slice_}}})
        return key

    def claim(self, name: str = "web", /, **spec: object) -> str:
        """Claim nodes for the whole tenant, and return the slice's name."""
        wanted: Json = {"users": "Everybody", "count": 1, **spec}
        made = self.world.put_in(SliceClaim.resource, {"metadata": {"name": name, "namespace": "acme"}, "spec": wanted})
        return slice_name(name, made["metadata"]["uid"])

    def approve(self, name: str, claim: str = "web") -> None:
        """Create the Slice of a claim, as `tenantry slice approve` does."""
        meta = self.world.get(SliceClaim.resource, f"acme/{claim}")["metadata"]
        reference = {"namespace": "acme", "name": claim, "uid": meta["uid"]}
        self.world.put_in(Slice.resource, {"metadata": {"name": name}, "spec": {"claim": reference, "tenant": "acme"}})

    # -- state ------------------------------------------------------------------------------------

    def status(self, name: str = "web") -> Json:
        """Return the status of a claim."""
        return self.world.get(SliceClaim.resource, f"acme/{name}").get("status", {})

    def state(self, name: str = "web") -> tuple[str, str]:
        """Return the state of a claim and its reason."""
        status = self.status(name)
        ready = [each for each in status.get("conditions", []) if each["type"] == "Ready"]
        return status.get("state", "Pending"), ready[0]["reason"]

    def reason(self, kind: str, name: str = "web") -> str:
        """Return the reason of a condition of a claim; "" if it has none of this type."""
        told = {each["type"]: each["reason"] for each in self.status(name).get("conditions", [])}
        return str(told.get(kind, ""))

    def message(self, name: str = "web") -> str:
        """Return the message of a claim's condition Ready."""
        told = {each["type"]: each["message"] for each in self.status(name).get("conditions", [])}
        return str(told.get("Ready", ""))

    def marks(self, name: str) -> Json:
        """Return the labels and taints of a node that Tenantry has set."""
        node = self.world.get(Node.resource, name)
        labels = {
            key: value
            for key, value in node["metadata"]["labels"].items()
            if "tenantry.dev" in key and "mbps" not in key
        }
        return {**labels, "taints": sorted(each["effect"] for each in node["spec"].get("taints") or ())}

    def notes(self, name: str) -> dict[str, str]:
        """Return the annotations of a node."""
        return self.world.get(Node.resource, name)["metadata"]["annotations"]

    def condition(self, name: str, kind: str) -> str:
        """Return the status of a condition of a node."""
        conditions = self.world.get(Node.resource, name)["status"]["conditions"]
        return next(each["status"] for each in conditions if each["type"] == kind)

    def label(self, namespace: str = "acme", key: str = "tenantry.dev/slice") -> str:
        """Return the slice to which a namespace's pods are bound."""
        return self.world.get(Namespace.resource, namespace)["metadata"]["labels"].get(key, "")

    def has(self, resource: Resource, key: str) -> bool:
        """Return whether an object exists."""
        return (resource, key) in self.world.objects

    @property
    def slices(self) -> list[str]:
        """Return the names of all Slices."""
        return [each["metadata"]["name"] for each in self.world.list(Slice.resource)]
