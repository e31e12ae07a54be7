"""The view of each contributed node, and the role by which the node reads it: pure.

contributed-abcdef ─► NodeView contributed-abcdef
ClusterRole tenantry-view-contributed-abcdef: get, list, watch that view
ClusterRoleBinding of that name to the user system:node:contributed-abcdef
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from tenantry.api import marks, reasons
from tenantry.api.contribution import PREFIX
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRole, ClusterRoleBinding, RoleRef, RoleRule, Subject
from tenantry.api.model import READ, ObjectMeta, Resource
from tenantry.api.node import NodeCondition
from tenantry.api.nodeview import MOST_CHARACTERS, NodeView, NodeViewSpec, earlier_bindings, node_of, role_of
from tenantry.api.requests import SubjectKind
from tenantry.controllers import nodecondition
from tenantry.controllers.nodeviews.gather import NodeViewInputs
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Child, Equivalent, Plan, compare, same
from tenantry.world.netpol.compile import Compiler
from tenantry.world.netpol.objects import PodEndpoint
from tenantry.world.netpol.services import endpoints_of, reached
from tenantry.world.netpol.view import Content, encoded

CONDITION = "TenantryNodeView"

_OURS = {marks.MANAGED_BY: frozenset({marks.MANAGER})}


def contents(inputs: NodeViewInputs) -> Iterator[tuple[str, Content]]:
    """Yield each node with the content of its view."""
    compiler = Compiler(inputs.world)
    tenants = {space.key: space.labels.get(marks.TENANT_UID, "") for space in inputs.world.spaces}
    by_node: dict[str, list[PodEndpoint]] = {}
    for pod in inputs.world.pods:
        by_node.setdefault(pod.node, []).append(pod)
    slices = sorted(inputs.endpoints, key=lambda each: each.key)
    for node in sorted(inputs.names):
        own = {pod.namespace for pod in by_node.get(node, ())}
        uids = {tenants.get(namespace, "") for namespace in own} - {""}
        namespaces = own | {namespace for namespace, uid in tenants.items() if uid in uids}
        services = reached(inputs.services, frozenset(namespaces))
        yield (
            node,
            Content(
                rules=compiler.compiled(node),
                services=tuple(services[key].content for key in sorted(services)),
                endpoint_slices=tuple(endpoints_of(slices, services, node)),
            ),
        )


def plan(
    inputs: NodeViewInputs, node: str, content: Content, now: dt.datetime, equivalent: Equivalent = same
) -> list[Plan]:
    """Return the writes of one node: the view and its role, and then the condition of the node."""
    spec = encoded(content)
    found = compare(_children(node, _fitting(content, spec)), inputs.lookup, equivalent=equivalent)
    known = inputs.nodes.get(node)
    wanted = _condition(inputs, node, content, spec)
    return [found] if known is None else [found, nodecondition.plan(known, wanted, now)]


def _fitting(content: Content, spec: NodeViewSpec) -> NodeViewSpec:
    """Return a view that fits: all, or the rules without Services, or no rules, with which pods have no network.

    The last view must not stay: its rules allow addresses that pods of other tenants may have by now.
    """
    if len(spec.content) <= MOST_CHARACTERS:
        return spec
    rules = encoded(Content(rules=content.rules))
    return rules if len(rules.content) <= MOST_CHARACTERS else encoded(Content())


def removal(inputs: NodeViewInputs) -> Plan:
    """Return the deletion of what was written for nodes that have no record any more."""
    stale: Sequence[tuple[Resource, Observed]] = [
        (kind, found)
        for kind, found in inputs.made
        if (node := found.name if kind == NodeView.resource else node_of(found.name)).startswith(PREFIX)
        and node not in inputs.names
    ]
    return compare([], inputs.lookup, stale=stale)


def _children(node: str, spec: NodeViewSpec) -> list[Child]:
    labels = {marks.MANAGED_BY: marks.MANAGER}
    name = role_of(node)
    rule = RoleRule(
        api_groups=(marks.GROUP,), resources=(NodeView.resource.plural,), verbs=READ, resource_names=(node,)
    )
    meta = ObjectMeta(name=name, labels=labels)
    binding = ClusterRoleBinding(
        metadata=meta,
        role_ref=RoleRef(kind=ClusterRole.resource.kind, name=name, api_group=RBAC_GROUP),
        subjects=(Subject(kind=SubjectKind.USER, name=f"system:node:{node}", api_group=RBAC_GROUP),),
    )
    return [
        Child(object=NodeView(metadata=ObjectMeta(name=node, labels=labels), spec=spec), wave=0, marks=_OURS),
        Child(object=ClusterRole(metadata=meta, rules=(rule,)), wave=1, marks=_OURS),
        Child(object=binding, wave=2, marks=_OURS),
    ]


def _condition(inputs: NodeViewInputs, node: str, content: Content, spec: NodeViewSpec) -> NodeCondition:
    if len(spec.content) > MOST_CHARACTERS:
        has_rules = _fitting(content, spec).digest != encoded(Content()).digest
        lost = "the node has no Services" if has_rules else "its pods have no network"
        message = (
            f"the view of the node has {len(spec.content)} characters, and {MOST_CHARACTERS} fit: {lost}; move pods of"
            " tenants with many endpoints to other nodes"
        )
        return NodeCondition(type=CONDITION, status="False", reason=reasons.VIEW_TOO_LARGE, message=message)
    kind = ClusterRoleBinding.resource
    earlier = [name for name in earlier_bindings(node) if inputs.lookup(kind, name) is not None]
    if earlier:
        message = (
            "an earlier version let the node read the Pods, Namespaces, NetworkPolicies, Services and EndpointSlices"
            " of all tenants: once its programs are of this version,"
            f" run `kubectl delete clusterrolebinding {' '.join(earlier)}`"
        )
        return NodeCondition(type=CONDITION, status="False", reason=reasons.READS_ALL, message=message)
    return NodeCondition(
        type=CONDITION, status="True", reason=reasons.VIEW_CURRENT, message="the view of the node is current"
    )
