"""Names of nodes in upper pods: those that the mirror has given become lower names, all others select no node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import RetryableError
from tenantry.mirror.nodenames import LowerNode
from tenantry.mirror.pods import down
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES
from tenantry.mirror.uppernodes import UpperNodes
from testkit.mirroring import PROFILE, upper_pod
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
RACK = LowerNode(name="rack-1.example", uid="u-rack", hostname="rack-1")
NAMED = {"node-a": RACK, "node-bare": LowerNode(name="bare", uid="u-bare", hostname="")}


def lower(**spec: object) -> Json:
    """Return the spec of the lower pod of an upper one."""
    made = down(upper_pod(**spec), PROFILE, NAMED.get)
    assert made.refusal == ""
    return made.object["spec"]


def affine(*expressions: Json, fields: Sequence[Json] = ()) -> Json:
    """Return a required node affinity."""
    term = {"matchExpressions": [*expressions], "matchFields": [*fields]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def none(name: str) -> str:
    """Return the lower name that no node has, for an unknown upper name."""
    return PROFILE.lower_name("Node", "", name)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("node-a", "rack-1"), ("rack-1", none("rack-1")), ("", none("")), ("node-bare", none("node-bare"))],
)
def test_a_hostname_in_a_node_selector(given: str, wanted: str) -> None:
    assert lower(nodeSelector={HOSTNAME: given, "disk": "ssd"})["nodeSelector"] == {HOSTNAME: wanted, "disk": "ssd"}


def test_the_pod_of_a_daemon_set_selects_its_lower_node() -> None:
    """As the DaemonSet controller writes it (k8s.io/kubernetes/pkg/controller/daemon/util)."""
    fields = [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]
    (term,) = lower(affinity=affine(fields=fields))["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["rack-1.example"]}]


def test_expressions_of_both_kinds_of_affinity() -> None:
    def expression(*values: str, key: str = HOSTNAME) -> Json:
        return {"key": key, "operator": "NotIn", "values": [*values]}

    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression("node-a")]}}]
    affinity = affine(expression("node-a", "rack-1"), expression("rack-1", key="zone"))
    affinity["nodeAffinity"][PREFERRED] = preferred
    found = lower(affinity=affinity)["affinity"]["nodeAffinity"]
    (term,) = found[REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [expression("rack-1", none("rack-1")), expression("rack-1", key="zone")]
    assert found[PREFERRED][0]["preference"]["matchExpressions"] == [expression("rack-1")]


GUESSES = st.sampled_from(["rack-1", "rack-1.example", "bare", "Rack-1"]) | st.text(max_size=8)


@given(GUESSES, st.lists(GUESSES, max_size=3), st.sampled_from(["In", "NotIn", "Gt", "Lt", "Exists", ""]))
def test_a_guessed_lower_name_never_goes_down(guess: str, values: list[str], operator: str) -> None:
    one = {"key": HOSTNAME, "operator": operator, "values": values}
    field = {"key": "metadata.name", "operator": operator, "values": values}
    spec = lower(nodeSelector={HOSTNAME: guess}, affinity=affine(one, fields=[field]))
    (term,) = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    found = [*term["matchExpressions"][0]["values"], *term["matchFields"][0]["values"], spec["nodeSelector"][HOSTNAME]]
    assert not {"rack-1", "rack-1.example", "bare"} & set(found)
    assert not {guess, *values} & set(found)


def upper_nodes(lower_nodes: dict[str, LowerNode], known: World | None = None) -> tuple[UpperNodes, World]:
    """Return the nodes of an upper side, and its World."""
    world = known or World()
    cluster = WorldCluster(world, [])

    async def node(name: str) -> Json | None:
        return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "8"}}} if name in lower_nodes else None

    async def noticed(_: Sequence[str]) -> None:
        """Do nothing."""

    # A World knows the kinds of its objects.
    if known is None:
        world.put_in(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "first"}})
    side = LowerSide(cluster=cluster, writer=cluster.writer, node=node, nodes=lower_nodes, reason="Refused")
    found = UpperNodes(PROFILE, cluster, side, noticed)
    cluster.listen(cluster.lane.listener("nodes", found.watch()))
    return found, world


def test_names_lead_back_to_the_nodes_that_have_them() -> None:
    lower_nodes = {"rack-1": RACK}
    found, world = upper_nodes(lower_nodes)
    name = asyncio.run(found.bring("rack-1"))
    assert world.get(NODES, name)["metadata"]["labels"] == {"kubernetes.io/hostname": name}
    assert found.lower(name) == RACK
    assert (found.lower("rack-1"), found.lower("first"), found.lower("")) == (None, None, None)
    # A node that is added later, and one of another uid under the same name.
    lower_nodes["rack-2"] = LowerNode(name="rack-2", uid="u-2", hostname="rack-2")
    second = asyncio.run(found.bring("rack-2"))
    assert found.lower(second) == lower_nodes["rack-2"]
    lower_nodes["rack-2"] = LowerNode(name="rack-2", uid="u-3", hostname="rack-2")
    assert found.lower(second) is None
    del lower_nodes["rack-1"]
    assert found.lower(name) is None
    with pytest.raises(RetryableError):
        asyncio.run(found.bring("rack-1"))


def test_names_that_an_earlier_process_gave_are_known() -> None:
    lower_nodes = {"rack-1": RACK}
    name = asyncio.run(upper_nodes(lower_nodes)[0].bring("rack-1"))
    assert upper_nodes(lower_nodes)[0].lower(name) == RACK


def test_a_node_loses_the_taint_of_new_ones_and_keeps_those_of_users() -> None:
    """The API server adds it at the creation; an earlier process may have ended before it was taken off."""
    found, world = upper_nodes({"rack-1": RACK})
    name = asyncio.run(found.bring("rack-1"))
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, theirs]
    world.patch(NODES, name, {"spec": {"taints": taints}, "status": {"addresses": [OWN]}})
    again, _ = upper_nodes({"rack-1": RACK}, world)
    assert asyncio.run(again.announce())
    assert world.get(NODES, name)["spec"]["taints"] == [theirs]
    world.patch(NODES, name, {"spec": {"taints": taints}})
    later, _ = upper_nodes({"rack-1": RACK}, world)
    asyncio.run(later.bring("rack-1"))
    assert world.get(NODES, name)["spec"]["taints"] == [theirs]


OWN: Json = {"type": "InternalIP", "address": "198.18.0.9"}
