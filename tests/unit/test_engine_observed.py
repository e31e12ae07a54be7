"""What the cache keeps of an object, and that it tells all that matters apart."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.kubernetes import (
    LimitRange,
    Namespace,
    NetworkPolicy,
    ResourceQuota,
    ResourceQuotaSpec,
    RoleBinding,
    RoleRef,
    Subject,
)
from tenantry.api.model import ObjectMeta
from tenantry.engine.observed import fingerprint, is_ours, observe

Json = dict[str, Any]

BINDING: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {
        "name": "b",
        "namespace": "acme",
        "uid": "u",
        "resourceVersion": "17",
        "labels": {"app.kubernetes.io/managed-by": "tenantry", "tenantry.dev/tenant": "acme", "team": "x"},
        "annotations": {"a.tenantry.dev/b": "1", "note": "n"},
        "managedFields": [{"manager": "x"}],
    },
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
}


def _bytes(**changes: object) -> bytes:
    return json.dumps({**BINDING, **changes}).encode()


def test_only_our_marks_are_kept() -> None:
    found = observe(RoleBinding.resource, _bytes())
    assert found.labels == {"app.kubernetes.io/managed-by": "tenantry", "tenantry.dev/tenant": "acme"}
    assert found.annotations == {"a.tenantry.dev/b": "1"}
    assert (found.key, found.uid, found.version, found.deleting) == ("acme/b", "u", 17, False)
    assert found.has_subjects


def test_the_digest_is_that_of_the_model_however_the_json_is_ordered() -> None:
    value = RoleBinding(
        metadata=ObjectMeta(name="b", namespace="acme"),
        role_ref=RoleRef(kind="ClusterRole", name="view", api_group="rbac.authorization.k8s.io"),
        subjects=(Subject(kind="User", name="alice", api_group="rbac.authorization.k8s.io"),),
    )
    turned = json.dumps(dict(reversed(BINDING.items())), indent=2).encode()
    assert observe(RoleBinding.resource, turned).digest == fingerprint(value)
    assert observe(RoleBinding.resource, _bytes()).digest == fingerprint(value)


def test_a_field_that_is_ours_and_was_added_changes_the_digest() -> None:
    """E09: our quota with a scope that another client added is no longer ours."""
    value = ResourceQuota(metadata=ObjectMeta(name="q"), spec=ResourceQuotaSpec(hard={"pods": "1"}))
    plain = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}, "status": {"used": {"pods": "0"}}}
    scoped = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}, "scopes": ["Terminating"]}}
    assert observe(ResourceQuota.resource, json.dumps(plain).encode()).digest == fingerprint(value)
    assert observe(ResourceQuota.resource, json.dumps(scoped).encode()).digest != fingerprint(value)


@pytest.mark.parametrize("subjects", [None, []])
def test_a_binding_without_subjects_is_recognised(subjects: object) -> None:
    assert not observe(RoleBinding.resource, _bytes(subjects=subjects)).has_subjects
    without = {key: value for key, value in BINDING.items() if key != "subjects"}
    assert not observe(RoleBinding.resource, json.dumps(without).encode()).has_subjects


def test_only_the_controlling_owner_counts() -> None:
    owners = [{"uid": "x", "name": "x"}, {"uid": "y", "name": "y", "controller": True}]
    data = json.dumps({"metadata": {"name": "acme", "ownerReferences": owners}}).encode()
    assert observe(Namespace.resource, data).owner_uid == "y"
    assert observe(Namespace.resource, b'{"metadata":{"name":"acme"}}').owner_uid == ""


def test_a_namespaces_content_is_not_ours() -> None:
    one = observe(Namespace.resource, b'{"metadata":{"name":"acme"},"spec":{"finalizers":["kubernetes"]}}')
    two = observe(Namespace.resource, b'{"metadata":{"name":"acme"},"status":{"phase":"Active"}}')
    assert one.digest == two.digest == fingerprint(Namespace(metadata=ObjectMeta(name="acme"))) == b""


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b'{"metadata":{}}', b'{"metadata":{"name":1}}'])
def test_what_is_no_object_is_an_error_of_msgspec(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        observe(Namespace.resource, data)


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("app.kubernetes.io/managed-by", True),
        ("tenantry.dev/tenant", True),
        ("x.tenantry.dev/y", True),
        ("tenantry.dev", False),
        ("xtenantry.dev/y", False),
        ("kubernetes.io/metadata.name", False),
    ],
)
def test_which_marks_are_ours(key: str, ours: bool) -> None:  # noqa: FBT001 - a table
    assert is_ours(key) is ours


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.dictionaries(st.text(max_size=4), VALUES))
def test_digests_are_equal_exactly_when_the_content_is(one: Json, other: Json) -> None:
    def digest(spec: Json) -> bytes:
        return observe(NetworkPolicy.resource, json.dumps({"metadata": {"name": "n"}, "spec": spec}).encode()).digest

    assert (digest(one) == digest(other)) == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def test_an_absent_field_is_not_an_empty_one() -> None:
    absent = observe(LimitRange.resource, b'{"metadata":{"name":"n"}}')
    empty = observe(LimitRange.resource, b'{"metadata":{"name":"n"},"spec":{}}')
    assert absent.digest != empty.digest
