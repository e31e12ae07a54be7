"""Which quota keys a tenant may have, and their one spelling."""

from __future__ import annotations

import pytest

from tenantry.api.errors import InputError
from tenantry.world import quota

SPELLINGS = [
    ("cpu", "requests.cpu"),
    ("memory", "requests.memory"),
    ("ephemeral-storage", "requests.ephemeral-storage"),
    ("storage", "requests.storage"),
    ("hugepages-2Mi", "requests.hugepages-2Mi"),
    ("requests.hugepages-2Mi", "requests.hugepages-2Mi"),
    ("requests.cpu", "requests.cpu"),
    ("limits.cpu", "limits.cpu"),
    ("limits.ephemeral-storage", "limits.ephemeral-storage"),
    ("pods", "pods"),
    ("services.loadbalancers", "services.loadbalancers"),
    ("services.nodeports", "services.nodeports"),
    ("count/deployments.apps", "count/deployments.apps"),
    ("count/secrets", "count/secrets"),
    ("requests.example.com/gpu", "requests.example.com/gpu"),
    ("gpu.example.com.deviceclass.resource.k8s.io/devices", "gpu.example.com.deviceclass.resource.k8s.io/devices"),
    ("gold.storageclass.storage.k8s.io/requests.storage", "gold.storageclass.storage.k8s.io/requests.storage"),
]


@pytest.mark.parametrize(("key", "expected"), SPELLINGS)
def test_a_key_has_one_spelling(key: str, expected: str) -> None:
    assert quota.normal_key(key) == expected
    assert quota.normal_key(expected) == expected


@pytest.mark.parametrize(
    "key",
    ["", "CPU", "cpus", "bandwidth", "local-storage", "gpu", "limits.storage", "limits.pods", "requests.pods", "count/",
     "count/Deployments.apps", "pods ", " pods", "pods\n", "cpu\ncpu", "requests.", "hugepages-2", "a/b/c"],
)  # fmt: skip
def test_a_key_that_kubernetes_does_not_count_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="is none that Kubernetes counts"):
        quota.normal_key(key)


def test_an_extended_resource_without_requests_gets_the_right_spelling_as_advice() -> None:
    with pytest.raises(InputError, match=r"write requests\.example\.com/gpu"):
        quota.normal_key("example.com/gpu")


def test_a_quota_is_sorted_and_canonical() -> None:
    assert quota.normal({"pods": 10, "cpu": "2000m", "memory": "1024Mi"}) == {
        "pods": "10",
        "requests.cpu": "2",
        "requests.memory": "1Gi",
    }
    assert list(quota.normal({"pods": 1, "cpu": 1})) == ["pods", "requests.cpu"]


@pytest.mark.parametrize(
    ("hard", "why"),
    [
        ({"cpu": 1, "requests.cpu": 1}, "another spelling"),
        ({"hugepages-2Mi": 1, "requests.hugepages-2Mi": 1}, "another spelling"),
        ({"pods": -1}, "must not be negative"),
        ({"cpu": "-1m"}, "must not be negative"),
        ({"cpu": "many"}, "is not a quantity"),
    ],
)
def test_a_quota_that_says_two_things_or_nothing_is_refused(hard: dict[str, str | int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        quota.normal(hard)


def test_a_caller_may_change_the_quota_that_it_gets() -> None:
    first = quota.normal({"cpu": "1"})
    first["requests.cpu"] = "9"
    assert quota.normal({"cpu": "1"}) == {"requests.cpu": "1"}


def test_a_number_and_its_text_are_the_same_quantity() -> None:
    assert quota.normal({"pods": 10}) == quota.normal({"pods": "10"}) == {"pods": "10"}


def test_no_memory_is_kept_for_a_quota_of_any_size() -> None:
    # Another cluster writes such a quota: thousands of them would fill the memory.
    large: dict[str, str | int] = {f"count/things-{number}": "1" for number in range(200)}
    before = quota.remembered.cache_info().currsize
    assert len(quota.normal(large)) == 200
    assert quota.remembered.cache_info().currsize == before
