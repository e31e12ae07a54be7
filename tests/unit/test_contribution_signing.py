"""Which certificates a contributed node gets, decided on requests as kubelets make them."""

from __future__ import annotations

import pytest
from cryptography import x509
from msgspec.structs import replace

from tenantry.api.contribution import read
from tenantry.api.signing import CLIENT, SERVING, SigningCondition, SigningRequest, SigningStatus
from tenantry.controllers.contributions.signing import concerned, may_have
from testkit.certificates import request
from testkit.nodecsrs import MALFORMED, csr

NODE = "contributed-abc123"
THERE = {NODE: frozenset({"10.0.0.5"}), "other": frozenset({"10.0.0.6"})}


def test_a_token_gives_the_certificate_of_its_own_node_and_of_no_other() -> None:
    """E19: a token is worth one node that is not there yet: neither another's name, nor another group, nor hosts."""
    holder = "system:bootstrap:abc123"
    own = request(CLIENT, holder, f"system:node:{NODE}")
    assert concerned(own) == NODE
    assert may_have(own, {})
    assert not may_have(own, THERE)
    assert not may_have(request(CLIENT, holder, "system:node:other"), {})
    assert not may_have(request(CLIENT, holder, f"system:node:{NODE}", group="system:masters"), {})
    assert not may_have(request(CLIENT, holder, f"system:node:{NODE}", "10.0.0.5"), {})


def test_a_node_serves_under_its_own_addresses_only() -> None:
    """E19: not another node's or the API server's, whatever it says of itself, nor one that it does not have."""
    itself = f"system:node:{NODE}"
    assert may_have(request(SERVING, itself, itself, NODE, "10.0.0.5"), THERE)
    assert not may_have(request(SERVING, itself, itself, NODE, "10.0.0.6"), THERE)
    assert not may_have(request(SERVING, itself, itself, "kubernetes"), THERE)
    assert not may_have(request(SERVING, itself, itself), THERE)
    assert not may_have(request(SERVING, itself, "system:node:other", NODE), THERE)
    for address in ("127.0.0.1", "169.254.169.254", "::", "kubernetes.default.svc", "localhost", "10.96.0.1"):
        lying = {**THERE, NODE: frozenset({"10.0.0.5", address})}
        assert not may_have(request(SERVING, itself, itself, NODE, address), lying, frozenset({"10.96.0.1"}))
    stolen = {**THERE, NODE: frozenset({"10.0.0.6"})}
    assert not may_have(request(SERVING, itself, itself, "10.0.0.6"), stolen)


@pytest.mark.parametrize("extension", MALFORMED)
def test_a_malformed_request_is_not_approved_and_ends_nothing(extension: x509.UnrecognizedExtension) -> None:
    """E19: a request that cannot be read is none of a node."""
    own = request(CLIENT, "system:bootstrap:abc123", f"system:node:{NODE}")
    text = csr(f"system:node:{NODE}", "system:nodes", more=[extension])
    assert not may_have(replace(own, spec=replace(own.spec, request=text)), {})


@pytest.mark.parametrize(
    ("signer", "user"),
    [
        (CLIENT, "system:serviceaccount:acme:default"),
        (SERVING, "system:node:other"),
        ("kubernetes.io/kube-apiserver-client", "system:bootstrap:abc123"),
    ],
)
def test_what_others_ask_for_is_left_to_others(signer: str, user: str) -> None:
    """E19: only what comes with a token, or from a contributed node, and nothing that is decided already."""
    asked = request(signer, user, user)
    assert concerned(asked) == ""
    assert not may_have(asked, {})
    decided = SigningStatus(conditions=(SigningCondition(type="Denied"),))
    own = request(CLIENT, "system:bootstrap:abc123", f"system:node:{NODE}")
    assert concerned(SigningRequest(metadata=own.metadata, spec=own.spec, status=decided)) == ""


def test_what_is_agreed_on_becomes_labels() -> None:
    """E19: owner, location and device are the node's labels; what was left out is none."""
    found = read({"tenant": "acme", "owner": "ada", "location": "rome", "device": ""})
    assert found.labels == {
        "tenantry.dev/contributed-by": "acme",
        "tenantry.dev/owner": "ada",
        "tenantry.dev/location": "rome",
    }
