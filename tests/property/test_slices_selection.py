"""Which nodes a slice gets, and who uses it, whatever the cluster looks like."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.contribution import PREFIX as CONTRIBUTED
from tenantry.api.marks import (
    CONTRIBUTED_BY,
    KIND,
    KIND_CORE,
    KIND_SUBTENANT,
    KIND_WORKSPACE,
    PARENT,
    SUBNAMESPACE_UID,
    TREE_SUFFIX,
    ZONE,
)
from tenantry.api.slice import NodeSelector, SelectorOperator, SelectorRequirement, SliceClaimSpec
from tenantry.world.quantity import parse
from tenantry.world.slices.selection import NodeFacts, is_enough, select, sum_of
from tenantry.world.slices.users import Root, users

CPUS = st.sampled_from(["1", "2", "4", "7500m", "16"])
NODES = st.lists(
    st.builds(
        NodeFacts,
        name=st.integers(0, 30).map(lambda number: f"n-{number:02}"),
        labels=st.dictionaries(st.sampled_from(["disk", "zone"]), st.sampled_from(["a", "b"])),
        allocatable=st.fixed_dictionaries({"cpu": CPUS, "memory": st.sampled_from(["8Gi", "64Gi"])}),
        ready=st.sampled_from([True, True, True, False]),
        cordoned=st.sampled_from([False, False, False, True]),
        tainted=st.sampled_from(["", "", "", "gpu"]),
        taken_by=st.sampled_from(["", "", "", "web-1"]),
        disturbed=st.integers(0, 4),
    ),
    max_size=9,
    unique_by=lambda node: node.name,
)
SELECTORS = st.builds(
    NodeSelector,
    match_labels=st.dictionaries(st.just("disk"), st.sampled_from(["a", "b"])),
    match_expressions=st.lists(
        st.builds(
            SelectorRequirement,
            key=st.just("zone"),
            operator=st.sampled_from([SelectorOperator.IN, SelectorOperator.NOT_IN]),
            values=st.just(("a",)),
        ),
        max_size=1,
    ).map(tuple),
)
SPECS = st.builds(
    SliceClaimSpec,
    count=st.integers(1, 4),
    selector=SELECTORS,
    per_node=st.dictionaries(st.just("cpu"), CPUS),
    total=st.dictionaries(st.just("cpu"), st.sampled_from(["8", "20", "40"])),
)


def _cost(nodes: list[NodeFacts]) -> tuple[int, Fraction]:
    return sum(node.disturbed for node in nodes), sum((parse(node.allocatable["cpu"]) for node in nodes), Fraction(0))


@given(NODES, SPECS)
def test_what_is_chosen_is_all_that_was_asked_for_or_nothing(nodes: list[NodeFacts], spec: SliceClaimSpec) -> None:
    """E12: nodes that are free and fit, as many as it takes and none to spare; else what would fit is said."""
    choice = select(spec, nodes)
    by_name = {node.name: node for node in nodes}
    chosen = [by_name[name] for name in choice.nodes]
    assert set(choice.nodes).isdisjoint(choice.refused)
    assert all(node.ready and not (node.cordoned or node.tainted or node.taken_by) for node in chosen)
    assert all(parse(node.allocatable["cpu"]) >= parse(spec.per_node.get("cpu", "0")) for node in chosen)
    assert all(node.labels.get("disk") == value for node in chosen for value in spec.selector.match_labels.values())
    together, wanted = _cost(chosen)[1], parse(spec.total.get("cpu", "0"))
    if choice.nodes:
        assert len(chosen) >= spec.count
        assert together >= wanted
        assert set(choice.refused) | set(choice.nodes) == set(by_name)
        spare = [node for node in chosen if together - parse(node.allocatable["cpu"]) >= wanted]
        assert len(chosen) == spec.count or not spare
    else:
        fitting = [by_name[name] for name in by_name if name not in choice.refused]
        assert choice.short
        assert len(fitting) < spec.count or _cost(fitting)[1] < wanted


@given(NODES, st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_fewest_pods_leave_and_the_order_of_nodes_does_not_matter(
    nodes: list[NodeFacts], count: int, random: object
) -> None:
    """E12: no other nodes that fit disturb less, nor as much and fit better; deterministic."""
    spec = SliceClaimSpec(count=count)
    choice = select(spec, nodes)
    shuffled = list(nodes)
    random.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - hypothesis' Random
    assert select(spec, shuffled) == choice
    free = [node for node in nodes if node.ready and not (node.cordoned or node.tainted or node.taken_by)]
    chosen = [node for node in nodes if node.name in choice.nodes]
    if choice.nodes:
        assert _cost(chosen) == min(_cost(list(few)) for few in itertools.combinations(free, count))


@given(NODES, SPECS)
def test_what_is_held_counts(nodes: list[NodeFacts], spec: SliceClaimSpec) -> None:
    """E12: a slice that has its nodes takes no more; one that lost some takes what is missing."""
    chosen = select(spec, nodes).nodes
    if not chosen:
        return
    by_name = {node.name: node for node in nodes}
    held = sum_of(by_name[name] for name in chosen)
    assert is_enough(spec, held)
    assert not is_enough(spec, sum_of([]))
    whole = select(spec, nodes, held)
    assert (whole.nodes, whole.short) == ((), "")
    left = [node for node in nodes if node.name != chosen[0]]
    again = select(spec, left, sum_of(by_name[name] for name in chosen[1:]))
    assert again.short or set(again.nodes).isdisjoint(chosen)


@given(NODES, SPECS, st.integers(0, 4))
def test_the_configured_number_of_nodes_stays_shared(nodes: list[NodeFacts], spec: SliceClaimSpec, shared: int) -> None:
    """H06: for any claim, unless there were fewer before; the choice among the others does not change."""
    choice = select(spec, nodes, shared=shared)
    before = {node.name for node in nodes if node.is_shared}
    after = before.difference(choice.nodes)
    assert len(after) >= min(shared, len(before))
    kept = {name for name, why in choice.refused.items() if why.startswith("kept for all tenants, by")}
    assert kept <= before
    assert len(kept) <= shared
    without = select(spec, [node for node in nodes if node.name not in kept])
    assert without.nodes == choice.nodes
    assert select(spec, nodes, shared=0) == select(spec, nodes)
    if choice.short and len(spec.total) < 2:
        # However else so many were left, the others would be too few, or too small.
        for left in itertools.combinations(before, min(shared, len(before))):
            assert select(spec, [node for node in nodes if node.name not in left]).short


def test_contributed_nodes_do_not_count_as_shared() -> None:
    """E19: such a node is not shared: its tenant can claim it, and it does not block other nodes."""
    own = NodeFacts(name="own", labels={CONTRIBUTED_BY: "lab"})
    new = NodeFacts(name=f"{CONTRIBUTED}x")
    assert not own.is_shared
    assert not new.is_shared
    one, two = NodeFacts(name="one"), NodeFacts(name="two")
    assert select(SliceClaimSpec(), [own, one], tenant="lab", shared=1).nodes == ("own",)
    choice = select(SliceClaimSpec(count=2), [one, two], tenant="lab", shared=1)
    assert choice.nodes == ()
    assert choice.refused == {"two": "kept for all tenants, by spec.slices.sharedNodes of TenancyDefaults: 1"}
    assert "spec.count 1 would fit" in choice.short
    assert "1 kept for all tenants, by spec.slices.sharedNodes of TenancyDefaults: 1" in choice.short


def test_a_claim_on_500_nodes_takes_no_more_than_it_needs() -> None:
    """E12: with labels, resources and a total to add up."""
    nodes = [
        NodeFacts(
            name=f"node-{number}",
            labels={"zone": "ab"[number % 2], "disk": "ssd"},
            allocatable={"cpu": "8", "memory": "32Gi", "pods": "110"},
            disturbed=number % 7,
        )
        for number in range(500)
    ]
    spec = SliceClaimSpec(
        count=5, selector=NodeSelector(match_labels={"disk": "ssd"}), per_node={"cpu": "4"}, total={"cpu": "100"}
    )
    assert len(select(spec, nodes).nodes) == 13


def test_it_is_said_what_would_fit_and_why_nodes_are_not_taken() -> None:
    """E12: the nearest that would fit; names without a node; control planes never."""
    master = {"node-role.kubernetes.io/control-plane": ""}
    nodes = [
        NodeFacts(name="m", labels=master),
        NodeFacts(name="a", taken_by="web-1"),
        NodeFacts(name="b", allocatable={"cpu": "4"}),
    ]
    choice = select(SliceClaimSpec(count=2, total={"cpu": "9"}), nodes)
    assert choice.refused == {"m": "runs the control plane", "a": "in slice 'web-1'"}
    assert "2 nodes are asked for, and 1 can be had: spec.count 1 would fit" in choice.short
    assert "total cpu 9 is asked for, and all that fit have 4" in choice.short
    named = select(SliceClaimSpec(node_names=("m", "x")), nodes)
    assert "there is no node 'x'" in named.short
    assert named.refused["b"] == "not among spec.nodeNames"


def test_the_nearest_claim_above_counts_and_none_reaches_into_a_subtenant() -> None:
    """E13: a namespace uses one claim at a time; what is a Subtenant's stays out of its parent's slice."""

    def labels(kind: str, *above: str) -> dict[str, str]:
        # Workspaces are network zones of their own here, which keeps nothing from the slice.
        marked = {KIND: kind, ZONE: above[0], SUBNAMESPACE_UID: above[0]}
        parent = {PARENT: above[1]} if len(above) > 1 else {}
        return {**marked, **parent, **{f"{name}{TREE_SUFFIX}": str(depth) for depth, name in enumerate(above)}}

    tree = {
        "acme": labels(KIND_CORE, "acme"),
        "web": labels(KIND_WORKSPACE, "web", "acme"),
        "deep": labels(KIND_WORKSPACE, "deep", "web", "acme"),
        "shop": labels(KIND_SUBTENANT, "shop", "acme"),
        "till": labels(KIND_WORKSPACE, "till", "shop", "acme"),
    }
    whole, older = Root("2", "s-all", "acme", ""), Root("1", "s-old", "acme", "")
    web = Root("3", "s-web", "web", "")
    assert users([whole, web], tree) == {"acme": "s-all", "web": "s-web", "deep": "s-web"}
    assert users([whole, older], tree) == dict.fromkeys(["acme", "web", "deep"], "s-old")
    assert users([Root("1", "s-shop", "shop", "shop")], tree) == dict.fromkeys(["shop", "till"], "s-shop")
