"""A suspension empties all bindings of a namespace, keeps their subjects, and restores them exactly."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import TerminalError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import INHERITED_FROM, SUSPENDED, SUSPENDED_SUBJECTS
from tenantry.controllers import suspension
from tenantry.engine.observed import observe
from tenantry.engine.plan import Amendment, DirectWrite
from testkit.rfc7396 import merged

Json = dict[str, Any]


def _binding(subjects: list[Json] | None, annotations: dict[str, str] | None = None, name: str = "b") -> Json:
    metadata: Json = {"name": name, "namespace": "acme", "resourceVersion": "1", "uid": name}
    if annotations is not None:
        metadata["annotations"] = annotations
    live: Json = {"metadata": metadata, "roleRef": {"kind": "Role", "name": "r"}}
    return live if subjects is None else {**live, "subjects": subjects}


ALICE: Json = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
ROBOT: Json = {"kind": "ServiceAccount", "name": "robot", "namespace": "ci"}

SUBJECTS = st.lists(
    st.sampled_from([ALICE, ROBOT, {"kind": "Group", "name": 'g\u00fc "x"', "apiGroup": "rbac.authorization.k8s.io"}]),
    max_size=4,
)
ANNOTATIONS = st.one_of(
    st.none(), st.dictionaries(st.sampled_from(["note", "x/y"]), st.text(max_size=5), min_size=1, max_size=2)
)


@given(SUBJECTS, ANNOTATIONS)
def test_suspend_and_resume_give_back_exactly_what_was(subjects: list[Json], notes: dict[str, str] | None) -> None:
    """E02: nothing lost, duplicates and order included."""
    before = _binding(subjects or None, notes)
    closed = merged(before, suspension.close(before))
    assert "subjects" not in closed
    assert suspension.close(closed) == {}, "closing twice changes nothing"
    after = merged(closed, suspension.reopen(closed))
    if after["metadata"].get("annotations") == {}:
        del after["metadata"]["annotations"]  # the API server leaves an empty map out
    assert after == before
    assert suspension.reopen(after) == {}


@given(st.lists(SUBJECTS, min_size=1, max_size=4))
def test_subjects_that_come_while_suspended_are_kept_too(waves: list[list[Json]]) -> None:
    """E02: an administrator may add a subject meanwhile; none is lost, and none is doubled."""
    live = _binding(None)
    for subjects in waves:
        live = merged(live, {"subjects": subjects or None})
        live = merged(live, suspension.close(live))
        assert "subjects" not in live
    back = merged(live, suspension.reopen(live)).get("subjects", [])
    wanted = [subject for subjects in waves for subject in subjects]
    assert {json.dumps(each, sort_keys=True) for each in back} == {json.dumps(each, sort_keys=True) for each in wanted}


def test_patches_do_not_change_what_they_were_made_from() -> None:
    live = _binding([ALICE], {"note": "n"})
    kept = copy.deepcopy(live)
    suspension.close(live)
    assert live == kept


@pytest.mark.parametrize("text", ["", "null", "{}", "[1]", "not json", '[{"kind":', "\u0000"])
def test_a_spoiled_annotation_does_not_keep_access(text: str) -> None:
    """E02: an owner may write annotations on bindings of their own; a suspension must not stumble over them."""
    live = _binding([ALICE], {SUSPENDED_SUBJECTS: text})
    closed = merged(live, suspension.close(live))
    assert "subjects" not in closed
    assert merged(closed, suspension.reopen(closed))["subjects"] == [ALICE]


def test_a_spoilt_annotation_on_a_closed_binding_is_told_with_its_name() -> None:
    """E02: what was kept is lost then, and only a person can say who it was."""
    live = _binding(None, {SUSPENDED_SUBJECTS: "not json"})
    with pytest.raises(TerminalError, match=r"RoleBinding 'acme/b': annotation tenantry\.dev/suspended-subjects must"):
        suspension.reopen(live)


def test_only_the_bindings_that_need_it_are_touched() -> None:
    """E02: the controller of the namespace writes our own; RBAC obeys a binding until it is gone."""
    seen = [
        observe(RoleBinding.resource, json.dumps(live).encode())
        for live in (
            _binding([ALICE], name="open"),
            _binding(None, name="empty"),
            _binding(None, {SUSPENDED_SUBJECTS: json.dumps([ALICE])}, name="closed"),
            _binding([ALICE], name="tenantry-owner"),
        )
    ]
    going = _binding([ALICE], name="going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    seen.append(observe(RoleBinding.resource, json.dumps(going).encode()))
    assert [edit.name for edit in suspension.edits(seen, suspended=True, ours="tenantry-owner")] == ["open", "going"]
    assert [edit.name for edit in suspension.edits(seen, suspended=False, ours="tenantry-owner")] == ["closed"]


def test_a_whole_tree_is_closed_with_one_write_for_each_binding() -> None:
    """E02: listed bindings are not read again; the subjects of ours and of copies are known from elsewhere."""
    listed, unlisted = _binding([ALICE], name="listed"), _binding([ROBOT], name="unlisted")
    ours, copy_ = _binding([ALICE], name="tenantry-owner"), _binding([ALICE], name="copy")
    copy_["metadata"]["labels"] = {INHERITED_FROM: "above"}
    seen = [observe(RoleBinding.resource, json.dumps(live).encode()) for live in (listed, unlisted, ours, copy_)]
    writes = suspension.closing(seen, {seen[0].key: json.dumps(listed).encode()}, "tenantry-owner")
    first, second, *rest = writes
    assert isinstance(first, DirectWrite)
    body = first.request.body
    assert isinstance(body, dict)
    assert body["metadata"]["resourceVersion"] == "1"
    assert json.loads(body["metadata"]["annotations"][SUSPENDED_SUBJECTS]) == [ALICE]
    assert isinstance(second, Amendment)
    assert [write.request.body for write in rest if isinstance(write, DirectWrite)] == [{"subjects": None}] * 2


def test_only_namespaces_that_lack_the_label_are_labelled() -> None:
    """E02: also a namespace that is being deleted, which a finalizer can keep for any time."""
    values: list[Json] = [
        {"metadata": {"name": "open", "uid": "1"}},
        {"metadata": {"name": "closed", "uid": "2", "labels": {SUSPENDED: "true"}}},
        {"metadata": {"name": "going", "uid": "3", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ]
    found = [observe(Namespace.resource, json.dumps(value).encode()) for value in values]
    assert [write.request.name for write in suspension.labels(found)] == ["open", "going"]
    assert [write.request.name for write in suspension.unlabels(found)] == ["closed"]
