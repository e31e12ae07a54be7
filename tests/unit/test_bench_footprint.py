"""The arithmetic of `tenantry bench footprint`: ratios, and the kinds that quota counts."""

from __future__ import annotations

import pytest

from tenantry.api.model import Resource
from tenantry.bench.footprint import KINDS, FootprintResult, IdleUsage, WriteRound, is_counted, result

WRITES = 10
NAMES = [kind.resource.kind for kind in KINDS]


def measured(rounds: list[dict[str, float]], counted: frozenset[str] = frozenset()) -> FootprintResult:
    """Return the result of rounds: kind to CPU seconds with Tenantry; without, each costs 3 s (100 ms for a write)."""
    done = [[WriteRound(kind=name, plain=3.0, guarded=each.get(name, 3.0)) for name in NAMES] for each in rounds]
    one, other = IdleUsage(megabytes=250.0, cores=0.01), IdleUsage(megabytes=340.04, cores=0.0125)
    return result(one, other, done, added_before=120.06, counted=counted, writes=WRITES, idle_seconds=60.0)


def test_memory_is_a_difference_and_idle_cpu_a_ratio() -> None:
    found = measured([{}])
    assert (found.plain_megabytes, found.added_megabytes) == (250.0, 90.0)
    assert found.added_before_restart_megabytes == 120.1
    assert (found.plain_idle_cpu_cores, found.idle_cpu_ratio) == (0.01, 1.25)


def test_an_idle_process_without_any_cpu_counts_as_one_tick() -> None:
    none, some = IdleUsage(megabytes=1.0, cores=0.0), IdleUsage(megabytes=1.0, cores=0.1)
    done = [[WriteRound(kind=name, plain=0.0, guarded=0.0) for name in NAMES]]
    found = result(none, some, done, added_before=0.0, counted=frozenset(), writes=WRITES, idle_seconds=10.0)
    assert 0 < found.idle_cpu_ratio < float("inf")
    assert found.write_cost_ratio == 0.0


def test_kinds_that_quota_counts_have_a_ratio_of_their_own() -> None:
    found = measured([{"ConfigMap": 6.0}], frozenset({"ConfigMap"}))
    assert found.write_cost_ratio == 1.0
    assert found.counted_write_cost_ratio == 2.0
    assert [each.kind for each in found.kinds if each.counted] == ["ConfigMap"]


def test_the_cost_of_quota_itself_is_apart_from_that_of_tenantry() -> None:
    done = [
        [WriteRound(kind=name, plain=1.0, guarded=4.0, one_key=2.0, same_quota=3.2) for name in NAMES[:1]],
    ]
    done[0] += [WriteRound(kind=name, plain=1.0, guarded=1.0) for name in NAMES[1:]]
    idle = IdleUsage(megabytes=1.0, cores=0.1)
    counted = frozenset(NAMES[:1])
    found = result(idle, idle, done, added_before=0.0, counted=counted, writes=WRITES, idle_seconds=10.0)
    assert (found.one_key_write_cost_ratio, found.same_quota_write_cost_ratio) == (2.0, 3.2)
    assert (found.counted_above_one_key_ratio, found.counted_above_same_quota_ratio) == (2.0, 1.25)
    assert [each.one_key_milliseconds is None for each in found.kinds] == [False] + [True] * (len(NAMES) - 1)


def test_a_ratio_is_the_median_over_rounds_of_all_its_kinds_together() -> None:
    """One round in which the machine was busy changes nothing."""
    usual = {"ConfigMap": 3.0 + 0.3 * len(NAMES)}
    found = measured([usual, dict.fromkeys(NAMES, 30.0), usual])
    assert found.write_cost_ratio == pytest.approx(1.1)
    assert found.counted_write_cost_ratio is None


def test_a_kind_costs_its_cpu_divided_by_its_requests() -> None:
    """Each object is created, changed and deleted."""
    found = measured([{"Secret": 6.0}, {"Secret": 9.0}])
    secret = next(each for each in found.kinds if each.kind == "Secret")
    assert (secret.plain_milliseconds, secret.guarded_milliseconds, secret.ratio) == (100.0, 250.0, 2.5)


@pytest.mark.parametrize(
    ("resource", "keys", "counted"),
    [
        (Resource("", "v1", "configmaps", "ConfigMap"), {"count/configmaps"}, True),
        (Resource("", "v1", "configmaps", "ConfigMap"), {"configmaps", "pods"}, True),
        (Resource("", "v1", "configmaps", "ConfigMap"), {"count/secrets"}, False),
        (Resource("apps", "v1", "deployments", "Deployment"), {"count/deployments.apps"}, True),
        (Resource("apps", "v1", "deployments", "Deployment"), {"deployments", "count/deployments"}, False),
    ],
)
def test_a_quota_counts_a_kind_by_its_own_key_or_by_the_generic_one(
    resource: Resource, keys: set[str], *, counted: bool
) -> None:
    assert is_counted(resource, keys) is counted
