"""A world in which a slice has one simulated node, which is handed over to a control plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.joining import tokens
from tenantry.engine.clock import rfc3339
from tenantry.hosting import simulation
from testkit.machines import FakeMachines
from testkit.sliceworld import Json, SliceWorld

NODE = "n-1"
MARKS = {"tenantry.dev/handed-over", "tenantry.dev/handed-over-to", "tenantry.dev/handover"}


class HandoverWorld(SliceWorld):
    """A world with a node `n-1` that a slice of acme has alone.

    Args:
        claim: More of the claim's spec.
        quota: Of the tenant.
        faults: What happens to requests.
        real: kwok does not simulate the node.
        machines: Moves the machines of real nodes; None if nothing does.
    """

    def __init__(
        self,
        *,
        claim: dict[str, object] | None = None,
        quota: dict[str, str | int] | None = None,
        faults: Callable[[], str] = lambda: "none",
        real: bool = False,
        machines: FakeMachines | None = None,
    ) -> None:
        super().__init__(quota=quota, faults=faults, machines=machines)
        self._is_real = real
        self.node(NODE, notes={} if real else {simulation.MARK: "fake"})
        if not real:
            self.world.patch(Node.resource, NODE, {"metadata": {"labels": {simulation.MARK: "fake"}}})
        self.slice = self.claim(**{"replaceAfterSeconds": 0, **(claim or {})})
        self.settle()
        self.world.moment = lambda: rfc3339(self.cluster.clock.now())
        assert self.marks(NODE)["tenantry.dev/slice"] == self.slice

    # -- actions ----------------------------------------------------------------------------------

    def hand_over(self, *, uid: str = "gone", of_slice: str = "", version: str = "") -> None:
        """Create the NodeHandover of the node for the control plane web of acme."""
        spec = {
            "plane": {"namespace": "acme", "name": "web", "uid": uid},
            "slice": of_slice or self.slice,
            "drainSeconds": 30,
            "version": version,
        }
        self.world.put_in(NodeHandover.resource, {"metadata": {"name": NODE}, "spec": spec})

    def plane(self) -> str:
        """Add the control plane, and return its uid."""
        made = self.world.put_in(
            VirtualControlPlane.resource, {"metadata": {"name": "web", "namespace": "acme"}, "spec": {}}
        )
        return str(made["metadata"]["uid"])

    def join(self) -> None:
        """Report, as the link of the control plane does, that the node has joined it."""
        self.world.patch(NodeHandover.resource, NODE, {"status": {"stage": "Joined", "inside": "uid-inside"}})

    def let_go(self) -> None:
        """Report, as the link does, that the control plane has no such Node any more."""
        self.world.patch(NodeHandover.resource, NODE, {"status": {"inside": None}})

    def admit(self) -> None:
        """Make a token for the machine, as the link of the control plane does when it is wiped."""
        until = self.cluster.clock.now() + tokens.LIFE
        token = tokens.JoinToken(id="abcdef", secret="0123456789abcdef", expires=until)
        found = msgspec.convert(self.world.get(NodeHandover.resource, NODE), NodeHandover)
        body = cast("Json", tokens.recorded(found, token).request.body)
        # The world has no namespace of the operator.
        secret = {"namespace": "kube-system", "name": tokens.secret_name(NODE, token.id)}
        self.world.put_in(tokens.SECRETS, {**body, "metadata": {**body["metadata"], **secret}})
        join = {"server": "https://10.113.128.1:6443", "ca": "PEM", "secret": secret}
        self.world.patch(NodeHandover.resource, NODE, {"status": {"join": join}})

    def forget_token(self) -> None:
        """Delete the token, as the garbage collector does when its NodeHandover is gone."""
        self.world.objects.pop((tokens.SECRETS, f"kube-system/{tokens.secret_name(NODE, 'abcdef')}"), None)

    def heal(self) -> None:
        """Report, as the kubelet of the host does, that the node is Ready."""
        self.world.patch(Node.resource, NODE, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})

    def end(self) -> None:
        """Delete the NodeHandover."""
        self.world.delete(NodeHandover.resource, NODE)

    # -- state ------------------------------------------------------------------------------------

    @property
    def handed(self) -> Json:
        """Return the status of the NodeHandover."""
        return self.world.get(NodeHandover.resource, NODE).get("status", {})

    def told(self, kind: str = "Ready") -> tuple[str, str]:
        """Return reason and message of a condition of the NodeHandover."""
        found = {each["type"]: each for each in self.handed.get("conditions", ())}
        return (found[kind]["reason"], found[kind]["message"]) if kind in found else ("", "")

    @property
    def host_node(self) -> Json:
        """Return the Node on the host."""
        return self.world.get(Node.resource, NODE)

    @property
    def taints(self) -> list[tuple[str, str]]:
        """Return value and effect of each taint of the handover."""
        found: list[Json] = self.host_node["spec"].get("taints") or []
        ours = [each for each in found if each["key"] == "tenantry.dev/handed-over"]
        return sorted((each.get("value", ""), each["effect"]) for each in ours)

    def assert_is_away(self) -> None:
        """Nothing of the host runs on the node, and nothing new comes."""
        meta = self.host_node["metadata"]
        assert meta["labels"]["tenantry.dev/handed-over"] == "web"
        assert meta["annotations"]["tenantry.dev/handed-over-to"] == "acme/web"
        assert simulation.MARK not in {*meta["annotations"], *meta["labels"]}
        assert self.taints == [("web", "NoExecute"), ("web", "NoSchedule")]
        assert self.host_node["spec"]["unschedulable"] is True
        assert self.condition(NODE, "Ready") == "False"

    def assert_is_home(self) -> None:
        """The node is as it was, except for the condition that kwok reports."""
        meta = self.host_node["metadata"]
        assert not MARKS & {*meta["labels"], *meta["annotations"]}
        for marks in (meta["annotations"], meta["labels"]):
            assert marks.get(simulation.MARK) == (None if self._is_real else "fake")
        assert self.taints == []
