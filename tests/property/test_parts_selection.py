"""Which nodes a slice gets parts of, and that none gives more than it has, whatever is given and taken back when."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.node import Node
from tenantry.api.slice import NodeSelector, Sharing, SliceClaimSpec
from tenantry.controllers.parts import nodes as marking
from tenantry.world.parts import PartNode, Size, choose, is_open, parts_of, resources_of, size_of
from tenantry.world.quantity import parse
from testkit.rfc7396 import merged

Json = dict[str, Any]

CPUS = st.sampled_from(["100m", "1", "1500m", "2", "4"])
MEMORIES = st.sampled_from(["100M", "1Gi", "1000", "8Gi"])
SHARED = {"tenantry.dev/parts": "true"}
TAINT = {"key": "tenantry.dev/parts", "value": "true", "effect": "NoSchedule"}


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Json]:
    """Return a few nodes by name, as the API server has them."""
    found: dict[str, Json] = {}
    for number in range(draw(st.integers(1, 5))):
        room = {"cpu": draw(st.sampled_from(["3920m", "8"])), "memory": draw(st.sampled_from(["16Gi", "7999Mi"]))}
        shared = draw(st.sampled_from([True, True, True, False]))
        found[f"n-{number}"] = {
            "metadata": {"name": f"n-{number}", "resourceVersion": "1", "labels": dict(SHARED) if shared else {}},
            "spec": {
                "taints": [TAINT] if draw(st.sampled_from([shared, shared, False])) else [],
                "unschedulable": draw(st.sampled_from([False, False, False, True])),
            },
            "status": {
                "capacity": dict(room),
                "allocatable": dict(room),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    return found


SPECS = st.builds(
    SliceClaimSpec,
    sharing=st.just(Sharing.PART),
    count=st.integers(1, 3),
    per_node=st.fixed_dictionaries({"cpu": CPUS, "memory": MEMORIES}),
)
OTHERS = st.builds(Size, cpu=st.integers(0, 3000), memory=st.integers(0, 4000))
# What happens: a claim of a slice, or its end where there is none.
STEPS = st.lists(st.tuples(st.sampled_from(["web-1", "db-2", "ml-3", "x-4"]), st.one_of(SPECS, st.none())), max_size=12)


def _node(value: Json) -> Node:
    return msgspec.convert(value, Node)


def _apply(world: dict[str, Json], name: str, patch: Json) -> None:
    world[name] = merged(world[name], patch)


def _check(value: Json, others: Size) -> None:
    """Look at one node: it has given no more than it has, and advertises just that."""
    node = _node(value)
    parts = parts_of(node.metadata.labels)
    assert sum(part.cpu for part in parts.values()) + others.cpu <= parse(node.status.allocatable["cpu"]) * 1000
    together = sum(part.memory for part in parts.values()) + others.memory
    assert together * 2**20 <= parse(node.status.allocatable["memory"])
    wanted = {key: value for owner, part in parts.items() for key, value in resources_of(owner, part).items()}
    for has in (node.status.capacity, node.status.allocatable):
        assert {key: value for key, value in has.items() if ".parts." in key} == wanted
    assert marking.resources(node) == {}


@given(worlds(), OTHERS, STEPS)
def test_no_node_gives_more_than_it_has_and_everything_comes_back(
    world: dict[str, Json], others: Size, steps: list[tuple[str, SliceClaimSpec | None]]
) -> None:
    """E20: at every step; a claim has all of its parts or none; who has them gets no more; the end leaves nothing."""
    first = dict(world)
    taken: dict[str, SliceClaimSpec] = {}
    for name, spec in steps:
        facts = [marking.facts(_node(value), others) for value in world.values()]
        if spec is None:
            taken.pop(name, None)
            for key, value in list(world.items()):
                _apply(world, key, marking.take_back(_node(value), name))
        elif name not in taken:
            choice = choose(spec, facts, name)
            assert (len(choice.nodes) == spec.count) is (not choice.short)
            assert set(choice.nodes).isdisjoint(choice.refused)
            for key in choice.nodes:
                _apply(world, key, marking.give(_node(world[key]), name, size_of(spec.per_node)))
                assert is_open(world[key]["metadata"]["labels"], name)
                assert marking.give(_node(world[key]), name, size_of(spec.per_node)) == {}
                _check(world[key], others)
            if choice.nodes:
                taken[name] = spec
        else:
            again = choose(taken[name], facts, name)
            assert (again.nodes, again.short) == ((), "")
    for name in taken:
        for key, value in list(world.items()):
            _apply(world, key, marking.take_back(_node(value), name))
    assert world == first


@given(worlds(), CPUS, MEMORIES, st.randoms(use_true_random=False))
def test_the_node_is_taken_where_least_is_left_over(
    world: dict[str, Json], cpu: str, memory: str, random: Random
) -> None:
    """E20: large rooms stay for large parts; the order of nodes does not matter."""
    spec = SliceClaimSpec(sharing=Sharing.PART, per_node={"cpu": cpu, "memory": memory})
    facts = [marking.facts(_node(value)) for value in world.values()]
    choice = choose(spec, facts, "web-1")
    shuffled = list(facts)
    random.shuffle(shuffled)
    assert choose(spec, shuffled, "web-1") == choice
    size = size_of(spec.per_node)
    usable = [node for node in facts if node.labels == SHARED and node.set_aside and not node.cordoned]
    fitting = [node for node in usable if node.left.cpu >= size.cpu and node.left.memory >= size.memory]
    assert bool(choice.nodes) is bool(fitting)
    for chosen in fitting:
        if chosen.name in choice.nodes:
            assert chosen.left.cpu == min(node.left.cpu for node in fitting)


@given(worlds())
def test_nodes_are_set_aside_and_what_a_kubelet_resets_is_put_back(world: dict[str, Json]) -> None:
    """E20: after one write of each kind nothing is to be done; a node with a part stays set aside."""
    for name, value in list(world.items()):
        _apply(world, name, marking.give(_node(value), "web-1", Size(500, 512)))
        reset = dict.fromkeys(resources_of("web-1", Size()), "0") | dict.fromkeys(resources_of("gone-2", Size()), "5")
        _apply(world, name, {"metadata": {"labels": {"tenantry.dev/parts": None}}, "status": {"capacity": reset}})
        for patch in (marking.taints(_node(world[name])), marking.resources(_node(world[name]))):
            _apply(world, name, patch)
        node = _node(world[name])
        assert marking.is_set_aside(node)
        assert marking.taints(node) == marking.resources(node) == {}
        assert {key: has for key, has in node.status.capacity.items() if ".parts." in key} == resources_of(
            "web-1", Size(500, 512)
        )


def test_it_is_said_what_would_fit_and_why_nodes_are_not_taken() -> None:
    """E20: the nearest that would fit, what each node has left, and names without a node."""
    nodes = [
        PartNode(name="a", labels=SHARED, room=Size(4000, 4096), others=Size(3000, 0)),
        PartNode(name="b", labels=SHARED, room=Size(4000, 4096)),
        PartNode(name="c", labels=SHARED, room=Size(4000, 4096), taken_by="web-1"),
        PartNode(name="d", room=Size(4000, 4096)),
        PartNode(name="e", labels=SHARED, room=Size(4000, 4096), set_aside=False),
    ]
    spec = SliceClaimSpec(sharing=Sharing.PART, count=2, per_node={"cpu": "2", "memory": "1Gi"})
    choice = choose(spec, nodes, "db-2")
    assert choice.nodes == ()
    assert choice.refused == {
        "a": "has left cpu 1, memory 4Gi",
        "c": "in slice 'web-1'",
        "d": "not given out in parts: no label tenantry.dev/parts",
        "e": "not set aside yet",
    }
    assert choice.short.startswith("2 parts of cpu 2, memory 1Gi are asked for, each on a node of its own, and 1 can")
    assert "spec.count 1 would fit" in choice.short
    named = choose(msgspec.structs.replace(spec, node_names=("b", "x")), nodes, "db-2")
    assert "there is no node 'x'" in named.short


def test_a_claim_on_500_nodes_takes_less_than_50_ms() -> None:
    """E20: the best of some tries, where each node has given parts already."""
    given_away = resources_of("web-1", Size(1000, 1024)) | resources_of("db-2", Size(1000, 1024))
    labels = {**SHARED, **given_away, "disk": "ssd"}
    nodes = [PartNode(name=f"node-{number}", labels=labels, room=Size(8000, 32768)) for number in range(500)]
    selector = NodeSelector(match_labels={"disk": "ssd"})
    spec = SliceClaimSpec(sharing=Sharing.PART, count=5, selector=selector, per_node={"cpu": "4", "memory": "8Gi"})
    took: list[float] = []
    for _ in range(5):
        began = time.process_time()
        choice = choose(spec, nodes, "ml-3")
        took.append(time.process_time() - began)
        assert len(choice.nodes) == 5
    assert min(took) < 0.05
