"""X10: HNC's quotas, which limit, as shares, which divide."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from tenantry.api.owner import Owner, OwnerKind
from tenantry.world import quantity
from tenantry.world.hnc.objects import read
from tenantry.world.hnc.plan import ImportOptions, ImportPlan, plan
from tenantry.world.imports.findings import FindingWeight

Json = dict[str, object]
API = "hnc.x-k8s.io/v1alpha2"


def anchor(parent: str, name: str) -> Json:
    return {"apiVersion": API, "kind": "SubnamespaceAnchor", "metadata": {"namespace": parent, "name": name}}


def limit(namespace: str, hard: dict[str, object], name: str = "q", **spec: object) -> Json:
    metadata = {"namespace": namespace, "name": name}
    return {
        "apiVersion": API,
        "kind": "HierarchicalResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard, **spec},
    }


def usage(namespace: str, used: dict[str, str]) -> Json:
    metadata = {"namespace": namespace, "name": "hrq.hnc.x-k8s.io"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "status": {"used": used}}


def planned(*documents: object, fit: bool = False) -> ImportPlan:
    world = read((f"document {index}", value) for index, value in enumerate(documents))
    return plan(world, ImportOptions(owners=(Owner(kind=OwnerKind.USER, name="ada"),), fit=fit))


def shares(found: ImportPlan) -> dict[str, dict[str, int | str]]:
    return {child.namespace: dict(child.subnamespace.spec.quota.hard) for child in found.trees[0].children}


def said(found: ImportPlan, weight: FindingWeight) -> list[tuple[tuple[str, ...], str]]:
    return [(finding.where, finding.text) for finding in found.findings if finding.weight is weight]


def test_of_several_quotas_the_smallest_holds() -> None:
    """X10: per key, in both spellings, as HNC enforces them."""
    found = planned(
        limit("acme", {"cpu": 8, "memory": "10Gi"}),
        limit("acme", {"requests.cpu": 4.5, "pods": 20}, name="other"),
        anchor("acme", "team"),
        limit("team", {"cpu": 2}),
    )
    hard = {"pods": "20", "requests.cpu": "4500m", "requests.memory": "10Gi"}
    assert found.trees[0].tenant.spec.quota.hard == hard
    assert shares(found) == {"team": {"requests.cpu": "2"}}
    assert not found.is_blocked


def test_who_has_no_quota_gets_what_is_in_use_and_divided_below() -> None:
    """X10: 0 would refuse every new pod; what is more is for a person to give."""
    found = planned(
        limit("acme", {"pods": 10}),
        anchor("acme", "team"),
        anchor("team", "squad"),
        anchor("acme", "idle"),
        limit("squad", {"pods": 3}),
        usage("team", {"pods": "2"}),
        usage("idle", {"pods": "0"}),
    )
    assert shares(found) == {"team": {"pods": "5"}, "squad": {"pods": "3"}, "idle": {}}
    assert [where for where, text in said(found, FindingWeight.NOTE) if "no quota of its own" in text] == [
        ("idle", "team")
    ]


def test_a_key_that_the_root_does_not_limit_is_told() -> None:
    """X10: a share is a part of something."""
    found = planned(limit("acme", {"cpu": 4}), anchor("acme", "team"), limit("team", {"pods": 5, "cpu": 1}))
    assert shares(found) == {"team": {"requests.cpu": "1"}}
    [(where, text)] = said(found, FindingWeight.LOST)
    assert where == ("team",)
    assert text.startswith("quota of pods left out: a share is a part of the tenant's quota, and 'acme' has none")


def test_keys_that_cannot_be_divided_are_told() -> None:
    """X10: unknown ones, quantities that are none, and quotas that count some pods only."""
    found = planned(
        limit("acme", {"nvidia.com/gpu": 1, "cpu": "lots", "pods": 5}),
        limit("acme", {"pods": 1}, name="scoped", scopes=["BestEffort"]),
        anchor("acme", "team"),
    )
    assert found.trees[0].tenant.spec.quota.hard == {"pods": "5"}
    texts = [text for _, text in said(found, FindingWeight.LOST)]
    assert [text.partition(":")[0] for text in texts] == ["nvidia.com/gpu left out", "cpu left out", "left out"]
    assert "write requests.nvidia.com/gpu" in texts[0]


def test_quotas_that_promise_too_much_block_and_name_both_numbers() -> None:
    """X10: what runs in a namespace counts, too."""
    overcommitted = (
        limit("acme", {"cpu": 4}),
        anchor("acme", "one"),
        anchor("acme", "two"),
        limit("one", {"cpu": 2}),
        limit("two", {"cpu": 2}),
        usage("acme", {"requests.cpu": "500m"}),
    )
    found = planned(*overcommitted)
    assert found.is_blocked
    [(where, text)] = said(found, FindingWeight.BLOCKS)
    assert where == ("acme",)
    assert text.startswith("requests.cpu is 4, and 4500m is needed: 4 by the quotas below it, 500m by what runs in it")
    fitted = planned(*overcommitted, fit=True)
    assert not fitted.is_blocked
    assert shares(fitted) == {"one": {"requests.cpu": "1750m"}, "two": {"requests.cpu": "1750m"}}


def test_what_is_in_use_is_not_shrunk() -> None:
    """X10: shares fall to what is in use and no further."""
    found = planned(
        limit("acme", {"pods": 10}),
        anchor("acme", "busy"),
        anchor("acme", "idle"),
        limit("busy", {"pods": 10}),
        limit("idle", {"pods": 10}),
        usage("busy", {"pods": "9"}),
        fit=True,
    )
    assert not found.is_blocked
    assert shares(found) == {"busy": {"pods": "9"}, "idle": {}}


@st.composite
def trees(draw: st.DrawFn) -> list[Json]:
    """A tree with quotas and uses at random, where what is in use fits the root's quota."""
    names = [f"n{index}" for index in range(draw(st.integers(1, 8)))]
    documents: list[Json] = []
    total = 0
    for index, name in enumerate(names):
        documents.append(anchor(draw(st.sampled_from(["root", *names[:index]])), name))
        if draw(st.booleans()):
            documents.append(limit(name, {"pods": draw(st.integers(0, 30))}))
        if draw(st.booleans()):
            pods = draw(st.integers(0, 5))
            total += pods
            documents.append(usage(name, {"pods": str(pods)}))
    return [*documents, limit("root", {"pods": total + draw(st.integers(0, 20))})]


@given(trees())
def test_fitted_shares_never_come_to_more_than_there_is(documents: list[Json]) -> None:
    """X10, E09: at every level the shares below fit into the one above."""
    found = planned(*documents, fit=True)
    assume(not found.is_blocked)
    tree = found.trees[0]
    given_to = {child.namespace: _pods(child.subnamespace.spec.quota.hard) for child in tree.children}
    given_to["root"] = _pods(tree.tenant.spec.quota.hard)
    for name, pods in given_to.items():
        below = [child.namespace for child in tree.children if child.subnamespace.metadata.namespace == name]
        assert sum((given_to[child] for child in below), Fraction(0)) <= pods


def _pods(hard: dict[str, int | str]) -> Fraction:
    return quantity.parse(hard.get("pods", "0"))
