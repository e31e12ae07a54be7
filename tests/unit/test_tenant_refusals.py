"""What the metrics of refusals take from Events, which owners may write, too."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.model import Json
from tenantry.controllers.tenantmetrics import refusals
from tenantry.policy.catalog import CHECKS
from tenantry.policy.explain.refusal import Obstacle

_POLICIES = {"tenantry-rules-pods", "tenantry-suspended", "tenantry-marks"}
_DENIED = "ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {said}"
_HEAD = 'Error creating: pods "web-" is forbidden: '


def _denied(policy: str, said: str) -> str:
    return _HEAD + _DENIED.format(policy=policy, said=said)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            _denied(
                "tenantry-rules-pods",
                "spec.hostNetwork must not be true (rule podSecurity.hostNamespaces of Tenant 'acme'): leave it out;"
                " container 'web' has image 'x' (rule images.allowed of TenancyDefaults 'default'): use one of a, b",
            ),
            {("Rule", "podSecurity.hostNamespaces"), ("Rule", "images.allowed")},
        ),
        (_denied("tenantry-marks", "the label is Tenantry's"), {("Policy", "tenantry-marks")}),
        (_denied("tenantry-suspended", "tenant 'acme' is suspended"), {("Suspension", "tenantry-suspended")}),
        (_denied("of-another-product", "no"), {("Policy", "")}),
        (_denied("tenantry-rules-pods", "no (rule made.up of Tenant 'acme'): no"), {("Rule", "")}),
        (_HEAD + "exceeded quota: tenantry, requested: pods=1, used: pods=4, limited: pods=4", {("Quota", "")}),
        (_HEAD + 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)', {("Kubernetes", "")}),
        ('Error creating: Pod "web-" is invalid: spec.containers: Required value', {("Validation", "")}),
        ("Error creating: the server is currently unable to handle the request", {("Kubernetes", "")}),
        ("", {("Kubernetes", "")}),
    ],
)
def test_a_message_names_what_refused_the_object(message: str, expected: set[tuple[str, str]]) -> None:
    assert set(refusals.causes(message, _POLICIES)) == expected


@given(
    st.lists(st.sampled_from([" (rule ", " of ", "): ", "; ", "Tenant 'a'", "images.allowed", "x.y", "'", '"', "\n"]))
)
def test_no_message_makes_labels_of_its_own(parts: list[str]) -> None:
    known = {"", *(check.rule for check in CHECKS), *_POLICIES}
    for message in ("".join(parts), _denied("tenantry-rules-pods", "".join(parts)), _denied("".join(parts), "no")):
        for by, rule in refusals.causes(message, _POLICIES):
            assert by in {*Obstacle}
            assert rule in known


def _event(**fields: object) -> msgspec.Raw:
    meta: Json = {"name": "web.1", "namespace": "acme", "resourceVersion": "7"}
    return msgspec.Raw(msgspec.json.encode({"metadata": meta, "message": _HEAD + "exceeded quota: q", **fields}))


def test_an_event_counts_as_often_as_it_was_repeated() -> None:
    assert refusals.read(_event(), ()).count == 1
    assert refusals.read(_event(count=3), ()).count == 3
    assert refusals.read(_event(series={"count": 5}), ()).count == 5
    assert refusals.read(_event(count=-4), ()).count == 1
    # An owner may write any number.
    assert refusals.read(_event(count=2**31 - 1), ()).count == 1_000_000


def test_an_event_is_known_by_its_key() -> None:
    found = refusals.read(_event(), ())
    assert (found.key, found.version, found.namespace) == ("acme/web.1", 7, "acme")
