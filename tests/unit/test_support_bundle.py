"""What of an object, and which events, a support bundle has."""

from __future__ import annotations

from tenantry.views import support


def test_the_copy_of_the_last_apply_is_left_out() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": '{"token":"x"}', "note": "y"}
    value = {"metadata": {"name": "a", "managedFields": [1], "annotations": annotations}, "spec": {"b": 1}}
    assert support.bare(value) == {"metadata": {"name": "a", "annotations": {"note": "y"}}, "spec": {"b": 1}}
    # The object of the caller stays whole.
    assert "managedFields" in value["metadata"]


def test_events_of_other_workloads_stay_out() -> None:
    def event(version: str, namespace: str) -> dict[str, object]:
        return {"metadata": {"namespace": namespace}, "regarding": {"apiVersion": version, "kind": "X"}}

    assert support.concerns(event("tenantry.dev/v1alpha1", "acme"))
    assert support.concerns(event("v1", "tenantry-system"))
    assert not support.concerns(event("v1", "acme"))
    assert not support.concerns(event("tenantry.dev.evil.example/v1", "acme"))
    assert not support.concerns({"metadata": {"namespace": "acme"}})
