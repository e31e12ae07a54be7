"""What a contributed node sees of the cluster: what its own pods need, and nothing else."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.node import Node, NodeCondition, NodeStatus
from tenantry.api.nodeview import MOST_CHARACTERS, NodeView, earlier_bindings
from tenantry.controllers.nodeviews import desired
from tenantry.controllers.nodeviews.gather import NodeViewInputs
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.world.netpol.compile import Compiler, PodRules, confined
from tenantry.world.netpol.objects import (
    LabelExpression,
    NamedPort,
    NamespaceLabels,
    NetworkPolicyRule,
    NetworkState,
    NodeRecord,
    Peer,
    PodEndpoint,
    Policy,
    Port,
    Selector,
)
from tenantry.world.netpol.services import ProxiedEndpoints, ProxiedService, decode_endpoints, decode_service
from tenantry.world.netpol.view import Content, decoded, encoded

Json = dict[str, Any]
NODE = "contributed-abc123"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
OWN = Selector(match_labels={marks.TENANT_UID: "u-acme"})


def _pod(namespace: str, node: str, address: str) -> PodEndpoint:
    return PodEndpoint(
        namespace=namespace,
        name=f"web-{address}",
        uid=f"uid-{address}",
        node=node,
        addresses=(address,),
        ports=(NamedPort(name="http", container_port=80),),
    )


def _world(*, policies: tuple[Policy, ...] = ()) -> NetworkState:
    """A tenant acme on the node and elsewhere, and a tenant evil elsewhere, each with a Service and a named port."""
    return NetworkState(
        pods=(
            _pod("acme", NODE, "10.0.1.2"),
            _pod("acme-dev", "n2", "10.0.2.2"),
            _pod("evil", "n2", "10.0.2.9"),
        ),
        spaces=(
            NamespaceLabels(key="acme", labels={marks.TENANT_UID: "u-acme"}),
            NamespaceLabels(key="acme-dev", labels={marks.TENANT_UID: "u-acme"}),
            NamespaceLabels(key="evil", labels={marks.TENANT_UID: "u-evil"}),
            NamespaceLabels(key="kube-system"),
        ),
        policies=policies,
        nodes=(NodeRecord(key=NODE, ranges=("10.0.1.0/24",)), NodeRecord(key="n2", ranges=("10.0.2.0/24",))),
    )


def _raw(value: Json) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _service(namespace: str, name: str = "web", labels: Json | None = None, **spec: str | Json) -> ProxiedService:
    meta = {"name": name, "namespace": namespace, "resourceVersion": "7", "labels": labels or {}}
    return decode_service(_raw({"metadata": meta, "spec": {"clusterIP": "10.96.0.7", "selector": {"a": "b"}, **spec}}))


def _slice(namespace: str, service: str = "web") -> ProxiedEndpoints:
    labels = {"kubernetes.io/service-name": service}
    meta = {"name": f"{service}-x", "namespace": namespace, "resourceVersion": "7", "labels": labels}
    endpoints = [
        {"addresses": ["10.0.1.2"], "nodeName": NODE, "targetRef": {"name": "web-1"}},
        {"addresses": ["10.0.2.2"], "nodeName": "n2", "targetRef": {"name": "web-2"}, "conditions": {"ready": True}},
    ]
    return decode_endpoints(_raw({"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": []}))


def _inputs(world: NetworkState | None = None) -> NodeViewInputs:
    return NodeViewInputs(
        names=frozenset({NODE}),
        nodes={NODE: _node()},
        world=world or _world(),
        services=(),
        endpoints=(),
        made=(),
        lookup=_nothing,
    )


def _nothing(kind: Resource, key: str) -> None:
    del kind, key


def _content(inputs: NodeViewInputs) -> Content:
    return dict(desired.contents(inputs))[NODE]


def test_a_view_has_only_addresses_that_policies_of_its_own_pods_select() -> None:
    """E19: not of other tenants, whatever namespaces and ports are called."""
    peer = Peer(namespace_selector=OWN, pod_selector=Selector())
    rule = NetworkPolicyRule(peers=(peer,), ports=(Port(port="http"),))
    policy = Policy(namespace="acme", name="own", ingress=(rule,), egress=(rule,))
    every = NetworkPolicyRule(peers=(Peer(namespace_selector=Selector()),))
    foreign = Policy(namespace="evil", name="all", ingress=(every,))

    text = msgspec.json.encode(_content(_inputs(_world(policies=(policy, foreign))))).decode()

    assert "10.0.1.2" in text
    assert "10.0.2.2" in text
    assert not any(each in text for each in ("10.0.2.9", "evil", "web-"))


def test_a_view_has_the_services_of_its_tenants_and_of_the_cluster() -> None:
    """E19: with the fields that kube-proxy reads, without pods and nodes of others."""
    dns = _service("kube-system", "kube-dns", selector={"k8s-app": "kube-dns"})
    others = (_service("evil"), _service("kube-system", "metrics"), _service("default", "registry"))
    services = (_service("acme"), _service("acme-dev"), dns, _service("default", "kubernetes"), *others)
    slices = (_slice("acme-dev"), _slice("evil"), _slice("kube-system", "metrics"))

    view = _content(replace(_inputs(), services=services, endpoints=slices))

    found = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in view.services}
    assert found == {("acme", "web"), ("acme-dev", "web"), ("kube-system", "kube-dns"), ("default", "kubernetes")}
    assert [each["metadata"]["namespace"] for each in view.endpoint_slices] == ["acme-dev"]
    first, second = view.endpoint_slices[0]["endpoints"]
    assert first == {"addresses": ["10.0.1.2"], "nodeName": NODE}
    assert second == {"addresses": ["10.0.2.2"], "conditions": {"ready": True}}
    assert "selector" not in view.services[0]["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterIP": "None"},
        {"type": "ExternalName", "externalName": "x.example"},
        {"labels": {"service.kubernetes.io/service-proxy-name": "other"}},
    ],
)
def test_services_for_which_kube_proxy_has_nothing_to_do_are_in_no_view(spec: Json) -> None:
    """E19: as its own selectors leave them out."""
    assert _content(replace(_inputs(), services=(_service("acme", **spec),))).services == ()


def test_equal_contents_are_equal_specs_and_are_read_as_they_were_written() -> None:
    """E19: an unchanged view costs no write."""
    content = _content(replace(_inputs(), services=(_service("acme"),)))
    again = Content(rules=content.rules, services=content.services, endpoint_slices=())
    assert encoded(content) == encoded(again)
    assert decoded(encoded(content)) == content
    for broken in ("", "!", "H4sIAAAA", "e30="):
        with pytest.raises(msgspec.MsgspecError):
            decoded(replace(encoded(content), content=broken))


def test_a_node_gives_rules_only_to_the_pods_that_they_were_compiled_for() -> None:
    """H06: a later pod may have the address of an ended one before the operator knows it."""
    closed = Policy(namespace="acme", name="none", ingress=(), egress=())
    world = _world(policies=(closed,))
    rules = Compiler(world).compiled(NODE)
    assert confined(rules, world.pods) is rules

    later = replace(world.pods[0], uid="later")
    found = confined(rules, (later,))

    assert found.pods == {}
    names = ("known4", "self4", "out4", "in4")
    assert all(rules.sets[name].elements and not found.sets[name].elements for name in names)
    assert found.chains == rules.chains


def test_a_named_port_is_looked_up_at_the_targets_of_its_rule() -> None:
    """H06: of egress to all pods, to selected ones and to addresses; of ingress, at the node's own pods."""
    named = (Port(port="http"),)
    here = Peer(pod_selector=Selector())
    block = msgspec.convert({"ipBlock": {"cidr": "10.0.2.0/24"}}, Peer)
    selected = Peer(namespace_selector=Selector(match_expressions=(LabelExpression(key="x", operator="Exists"),)))

    def ports(direction: str, *peers: Peer) -> set[str]:
        rules = (NetworkPolicyRule(peers=peers, ports=named),)
        ingress, egress = (rules, None) if direction == "ingress" else (None, rules)
        policy = Policy(namespace="acme", name="p", ingress=ingress, egress=egress)
        sets = Compiler(_world(policies=(policy,))).compiled(NODE).sets
        found = [each for name, each in sets.items() if name.startswith("port-")]
        return {element.split(" ")[0] for each in found for element in each.elements}

    assert ports("ingress") == {"10.0.1.2"}
    assert ports("egress") == {"10.0.1.2", "10.0.2.2", "10.0.2.9"}
    assert ports("egress", here) == {"10.0.1.2"}
    assert ports("egress", block) == {"10.0.2.2", "10.0.2.9"}
    assert ports("egress", selected) == set()


def test_a_node_reads_its_own_view_and_no_other() -> None:
    """E19: by name, for the user of its certificate."""
    inputs = _inputs()
    plan = desired.plan(inputs, NODE, _content(inputs), NOW)[0]
    steps = [step for wave in plan.waves for step in wave]
    assert [(step.resource, step.name) for step in steps] == [
        (NodeView.resource, NODE),
        (ClusterRole.resource, f"tenantry-view-{NODE}"),
        (ClusterRoleBinding.resource, f"tenantry-view-{NODE}"),
    ]
    role, binding = (step.child.object for step in steps[1:] if step.child is not None)
    assert isinstance(role, ClusterRole)
    assert isinstance(binding, ClusterRoleBinding)
    assert [(rule.resources, rule.resource_names) for rule in role.rules] == [(("nodeviews",), (NODE,))]
    assert [each.name for each in binding.subjects] == [f"system:node:{NODE}"]


def test_what_was_written_for_a_node_goes_with_its_record() -> None:
    """E19: the view, the role and the binding; those of other nodes and of requesters stay."""
    labels = {marks.MANAGED_BY: marks.MANAGER}

    def there(kind: Resource, name: str) -> tuple[Resource, Observed]:
        return kind, observe(kind, _raw({"metadata": {"name": name, "labels": labels}}))

    gone, role = "contributed-gone00", ClusterRole.resource
    made = (
        there(NodeView.resource, NODE),
        there(NodeView.resource, gone),
        there(role, f"tenantry-view-{gone}"),
        there(role, f"tenantry-view-{NODE}"),
        there(role, "tenantry-requester-1"),
    )
    plan = desired.removal(replace(_inputs(), made=made))
    steps = [step for wave in plan.waves for step in wave]
    assert {(step.resource, step.name, step.action.value) for step in steps} == {
        (NodeView.resource, gone, "delete"),
        (role, f"tenantry-view-{gone}", "delete"),
    }


@pytest.mark.parametrize("too_large", ["services", "rules"])
def test_a_view_that_is_too_large_keeps_no_old_rules(too_large: str) -> None:
    """E19, H06: an old rule would allow the address that a pod of another tenant has by now."""
    noise = "".join(f"{number * 7919 % 1_000_003:x}" for number in range(1_200_000))
    inputs = _inputs(_world(policies=(Policy(namespace="acme", name="none", ingress=(), egress=()),)))
    rules = _content(inputs).rules
    assert rules.chains
    content = Content(rules=rules, services=({"noise": noise},))
    if too_large == "rules":
        content = Content(rules=PodRules(pods={noise: "uid"}))

    written, reported = desired.plan(inputs, NODE, content, NOW)

    view = next(step.child.object for wave in written.waves for step in wave if step.child is not None)
    assert isinstance(view, NodeView)
    assert decoded(view.spec) == (Content(rules=rules) if too_large == "services" else Content())
    condition = _reported(reported)
    assert (condition["status"], condition["reason"]) == ("False", reasons.VIEW_TOO_LARGE)
    assert str(MOST_CHARACTERS) in condition["message"]
    lost = "no Services" if too_large == "services" else "its pods have no network"
    assert lost in condition["message"]


def test_rights_of_an_earlier_version_are_reported_until_an_administrator_removes_them() -> None:
    """E19: the node keeps working with them, and the condition names the command."""
    kind, name = ClusterRoleBinding.resource, earlier_bindings(NODE)[0]
    found = observe(kind, _raw({"metadata": {"name": name, "labels": {marks.MANAGED_BY: marks.MANAGER}}}))

    def lookup(of: Resource, key: str) -> Observed | None:
        return found if (of, key) == (kind, name) else None

    inputs = replace(_inputs(), lookup=lookup)
    condition = _reported(desired.plan(inputs, NODE, Content(), NOW)[1])
    assert f"kubectl delete clusterrolebinding {name}`" in condition["message"]
    # A node without such rights needs no condition, and one that had them has a true one.
    assert desired.plan(_inputs(), NODE, Content(), NOW)[1].is_empty
    before = NodeCondition(type=desired.CONDITION, status="False", reason=reasons.READS_ALL)
    later = desired.plan(replace(_inputs(), nodes={NODE: _node(before)}), NODE, Content(), NOW)[1]
    assert _reported(later)["status"] == "True"


def _node(*found: NodeCondition) -> Node:
    return Node(metadata=ObjectMeta(name=NODE), status=NodeStatus(conditions=found))


def _reported(plan: Plan) -> Json:
    """Return the condition that a plan writes."""
    (write,) = plan.writes
    assert isinstance(write, DirectWrite)
    assert isinstance(write.request.body, dict)
    condition: Json = write.request.body["status"]["conditions"][0]
    return condition
