"""A DedicatedCluster with its children, to which plans are applied as the API server and other controllers do."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster, DedicatedClusterSpec, DedicatedClusterStatus
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.nodehandover import HandoverStage, NodeHandover
from tenantry.api.planesnapshots import PlaneUpgrade
from tenantry.api.slice import SliceClaim, SliceClaimStatus, SliceState
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers.dedicatedcluster import desired, ending, status, template
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs, wanted_template
from tenantry.engine.conditions import find
from tenantry.engine.plan import DirectWrite
from tenantry.engine.request import ApiRequest, PatchType, Verb
from testkit.rfc7396 import merged

NOW = "2027-01-01T00:00:00Z"
NAMESPACE, NAME = "acme", "prod"


class ClusterWorld:
    """A DedicatedCluster with its children, to which writes are applied as the API server does.

    Claims get their nodes at once, as many as the host has, and nodes join when `join` is called.

    Args:
        spec: Of the cluster.
        hosts: How many nodes the host has for claims.
    """

    def __init__(self, spec: DedicatedClusterSpec, hosts: int = 8) -> None:
        meta = ObjectMeta(name=NAME, namespace=NAMESPACE, uid="cluster", generation=1)
        self.cluster: DedicatedCluster | None = DedicatedCluster(metadata=meta, spec=spec)
        self.plane: VirtualControlPlane | None = None
        self.claims: dict[str, SliceClaim] = {}
        self.handovers: dict[str, NodeHandover] = {}
        self.hosts = [f"n-{number}" for number in range(hosts)]
        self.template: ClusterTemplate | None = None
        self.default_template = ""
        self.count = 0
        self.now = dt.datetime.fromisoformat(NOW)
        self.log: list[tuple[str, str, str]] = []

    @property
    def found(self) -> DedicatedCluster:
        """Return the cluster, which is there."""
        assert self.cluster is not None
        return self.cluster

    def inputs(self) -> ClusterInputs:
        """Return the inputs as `gather` does."""
        name = wanted_template(self.found, self.default_template)
        is_there = self.template is not None and self.template.metadata.name == name
        return ClusterInputs(
            found=self.found,
            plane=self.plane,
            claims=self.claims,
            handovers=self.handovers,
            template_name=name,
            template=self.template if is_there else None,
            now=self.now,
            offered=(self.template.metadata.name,) if self.template is not None else (),
        )

    def note(self, key: str, value: str) -> None:
        """Write an annotation of the cluster."""
        meta = self.found.metadata
        self.cluster = replace(self.found, metadata=replace(meta, annotations={**meta.annotations, key: value}))

    def change(self, spec: DedicatedClusterSpec) -> None:
        """Change the spec."""
        self.cluster = replace(self.found, spec=spec)

    def delete(self) -> None:
        """Delete the cluster."""
        self.cluster = replace(self.found, metadata=replace(self.found.metadata, deletion_timestamp=NOW))

    def step(self, most: int | None = None) -> list[tuple[str, str, str]]:
        """Carry out one plan, and return its writes as verb, kind and name.

        Args:
            most: After how many writes the operator ends; None to carry out all.
        """
        self.cluster = template.applied(self.inputs()).found
        plan = desired.plan(self.inputs())
        writes = [each for each in (*plan.before, *plan.writes) if isinstance(each, DirectWrite)]
        asked = [each.request for each in writes][:most]
        for each in asked:
            self._carry_out(each)
        self._slices()
        done = [(each.verb.name.lower(), each.resource.kind, each.name) for each in asked]
        done += self._report() if most is None else []
        self.log += done
        return done

    def _report(self) -> list[tuple[str, str, str]]:
        """Write what later plans follow of the status."""
        if self.cluster is None:
            return []
        wanted, before = status.compute(self.inputs(), None, NOW), self.cluster.status
        kept = replace(before, sleep=wanted.sleep, requests=wanted.requests, allowed_nodes=wanted.allowed_nodes)
        self.cluster = replace(self.cluster, status=kept)
        is_same = (wanted.sleep, wanted.requests) == (before.sleep, before.requests)
        return [] if is_same else [("status", "DedicatedCluster", NAME)]

    def settle(self, *, joins: bool = True, returns: bool = True) -> None:
        """Carry out plans until nothing is left to do.

        Args:
            joins: Nodes join at once.
            returns: Nodes return at once.
        """
        for _ in range(50):
            if joins:
                self.join()
            if returns:
                self.hand_back()
            if self.cluster is None or not self.step():
                return
        pytest.fail(f"it does not come to rest: {self.log[-10:]}")

    def join(self, *names: str) -> None:
        """Let nodes join; all without names."""
        for name in names or tuple(self.handovers):
            found = self.handovers[name]
            if not found.metadata.deletion_timestamp:
                self.handovers[name] = replace(found, status=replace(found.status, stage=HandoverStage.JOINED))

    def hand_back(self, *names: str) -> None:
        """Let nodes that leave the cluster be back on the host; all without names."""
        self.handovers = {
            name: each
            for name, each in self.handovers.items()
            if not each.metadata.deletion_timestamp or (names and name not in names)
        }
        self._slices()

    def lose(self, name: str) -> None:
        """Let a node be not Ready in the cluster."""
        found = self.handovers[name]
        self.handovers[name] = replace(found, status=replace(found.status, stage=HandoverStage.JOINING, inside="i"))

    def report(self, kubelet: str, *names: str) -> None:
        """Let nodes report a version; all without names."""
        for name in names or tuple(self.handovers):
            found = self.handovers[name]
            self.handovers[name] = replace(found, status=replace(found.status, kubelet=kubelet))

    @property
    def status(self) -> DedicatedClusterStatus:
        """Return the status that the operator would write."""
        return status.compute(self.inputs(), None, NOW)

    def versioned(self, version: str) -> None:
        """Let the control plane run with a version."""
        if self.plane is None:
            self.step()
        assert self.plane is not None
        self.plane = replace(self.plane, status=replace(self.plane.status, version=version, phase=PlanePhase.AWAKE))

    def hold(self, why: str) -> None:
        """Let the control plane soak or be asleep, or pause the cluster."""
        assert self.plane is not None
        before = self.plane.status
        changes = {"soaks": {"last_upgrade": PlaneUpgrade(soaks=True)}, "asleep": {"phase": PlanePhase.ASLEEP}}
        if why == "paused":
            self.change(replace(self.found.spec, paused=True))
        else:
            self.plane = replace(self.plane, status=replace(before, **changes[why]))

    def condition(self, type_: str) -> tuple[str, str, str]:
        """Return the status, the reason and the message of a condition; empty for none."""
        told = find(status.compute(self.inputs(), None, NOW).conditions, type_)
        return (told.status.value, told.reason, told.message) if told is not None else ("", "", "")

    def _slices(self) -> None:
        """Give claims their nodes, and take back what they do not request: never a node with a handover."""
        for name, claim in self.claims.items():
            nodes = list(claim.status.nodes)
            free = [each for each in nodes if each not in self.handovers]
            while len(nodes) > claim.spec.count and free:
                nodes.remove(free.pop())
            others = {node for each in self.claims.values() if each is not claim for node in each.status.nodes}
            there = [each for each in self.hosts if each not in others and each not in nodes]
            nodes += there[: max(0, claim.spec.count - len(nodes))]
            is_met = len(nodes) >= claim.spec.count
            state = SliceState.BOUND if is_met else SliceState.PENDING
            held = SliceClaimStatus(state=state, nodes=tuple(nodes) if is_met else ())
            self.claims[name] = replace(claim, status=held)

    def _carry_out(self, asked: ApiRequest) -> None:
        if asked.verb is Verb.CREATE:
            assert isinstance(asked.body, KubernetesObject)
            self.count += 1
            stored = replace(
                asked.body,
                metadata=replace(
                    asked.body.metadata,
                    uid=f"u{self.count}",
                    resource_version=str(self.count),
                    creation_timestamp=f"2027-01-01T00:00:{self.count % 60:02}Z",
                ),
            )
            assert self._get(asked) is None, f"{asked.resource.kind} {asked.name} exists"
            self._put(stored)
            return
        found = self._get(asked)
        assert found is not None, f"{asked.resource.kind} {asked.name} is missing"
        if asked.verb is Verb.DELETE:
            assert isinstance(asked.body, dict)
            assert asked.body["preconditions"]["uid"] == found.metadata.uid
            self._remove(found)
            return
        assert asked.patch_type is PatchType.MERGE
        assert isinstance(asked.body, dict)
        patched = merged(msgspec.to_builtins(found), asked.body)
        self._put(msgspec.convert(patched, type(found)))

    def _get(self, asked: ApiRequest) -> KubernetesObject | None:
        by_kind: dict[str, KubernetesObject | None] = {
            "DedicatedCluster": self.cluster,
            "VirtualControlPlane": self.plane,
            "SliceClaim": self.claims.get(asked.name),
            "NodeHandover": self.handovers.get(asked.name),
        }
        return by_kind[asked.resource.kind]

    def _put(self, stored: KubernetesObject) -> None:
        match stored:
            case DedicatedCluster():
                is_gone = bool(stored.metadata.deletion_timestamp) and not stored.metadata.finalizers
                self.cluster = None if is_gone else stored
            case VirtualControlPlane():
                self.plane = stored
            case SliceClaim():
                self.claims[stored.metadata.name] = stored
            case NodeHandover():
                self.handovers[stored.metadata.name] = stored
            case _:
                pytest.fail(f"unexpected {stored}")

    def _remove(self, found: KubernetesObject) -> None:
        match found:
            case NodeHandover():
                # Its finalizer keeps it until the host has the node.
                ended = replace(found.metadata, deletion_timestamp=NOW)
                self.handovers[found.metadata.name] = replace(found, metadata=ended)
            case SliceClaim():
                if set(found.status.nodes) & set(self.handovers):
                    assert ending.is_over(self.inputs()), "a slice ends under a node that serves"
                    ended = replace(found.metadata, deletion_timestamp=NOW)
                    self.claims[found.metadata.name] = replace(found, metadata=ended)
                    return
                del self.claims[found.metadata.name]
            case _:
                self.plane = None
