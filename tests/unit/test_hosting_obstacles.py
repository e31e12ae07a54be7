"""H04: what stands in the way of an upgrade of a cluster, by name."""

from __future__ import annotations

import pytest

from tenantry.hosting import obstacles, upgradefacts
from tenantry.hosting.obstacles import DeprecatedUse, NodeFact, ObstacleName, UpgradeFacts

USED = "apiserver_requested_deprecated_apis"
METRICS = f"""# HELP {USED} Gauge of deprecated APIs that have been requested
# TYPE {USED} gauge
{USED}{{group="apps.example",removed_release="1.36",resource="flowschemas",subresource="",version="v1beta3"}} 1
{USED}{{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"}} 1
{USED}{{group="a",removed_release="1.36",resource="b",subresource="",version="v1"}} 0
apiserver_request_total{{code="200"}} 7
"""


def names(facts: UpgradeFacts, *ignored: str) -> list[str]:
    """Return the names of the obstacles on the way to 1.36.3."""
    return [each.name for each in obstacles.find(facts, "1.36.3", ignored)]


@pytest.mark.parametrize(
    ("kubelet", "is_skewed"),
    [
        ("v1.33.4", False),
        ("v1.32.9", True),
        ("v1.36.0-alpha.1+abc", False),
        ("v1.37.0", True),
        ("", False),
        ("kwok-v0.7.0", False),
    ],
)
def test_kubelets_may_be_three_minor_versions_older_and_none_newer(kubelet: str, *, is_skewed: bool) -> None:
    """Kubernetes: "Version Skew Policy"."""
    found = UpgradeFacts(nodes=(NodeFact(name="n", kubelet=kubelet),))
    assert names(found) == ([ObstacleName.SKEW] if is_skewed else [])


def test_each_obstacle_has_a_name_by_which_it_is_ignored() -> None:
    """H04: the others still hold the upgrade back."""
    facts = UpgradeFacts(
        nodes=(NodeFact(name="n", kubelet="v1.30.0", is_ready=False),),
        deprecated=(DeprecatedUse(api="a/v1 b", removed="1.36"),),
        webhooks=("hook (Service a/b has no ready endpoint)",),
        budgets=("shop/front",),
    )
    assert names(facts) == list(obstacles.IGNORABLE)
    for name in obstacles.IGNORABLE:
        assert names(facts, name) == [each for each in obstacles.IGNORABLE if each is not name]
    told = obstacles.told(obstacles.find(facts, "1.36.3"))
    for word in ("n (v1.30.0)", "a/v1 b (without it: 1.36)", "Service a/b", "shop/front"):
        assert word in told


def test_only_apis_that_the_next_version_does_not_serve_are_in_the_way() -> None:
    """H04: the metric has those that were requested since the process began."""
    used = upgradefacts.deprecated(METRICS)
    assert [(each.api, each.removed) for each in used] == [
        ("apps.example/v1beta3 flowschemas", "1.36"),
        ("v1 componentstatuses", ""),
    ]
    assert names(UpgradeFacts(deprecated=used)) == [ObstacleName.DEPRECATED_APIS]
    assert obstacles.find(UpgradeFacts(deprecated=used), "1.35.4") == ()
