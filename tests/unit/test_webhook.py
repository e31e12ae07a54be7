"""The webhook of mutations: its configuration, its answers, its certificates, and what is installed around it."""

from __future__ import annotations

import base64
import datetime as dt
import re
from typing import Any

import msgspec
import pytest
from cryptography import x509

from tenantry.api.errors import InputError
from tenantry.controllers.webhook import keys
from tenantry.controllers.webhook.controller import CONFIGURATIONS
from tenantry.controllers.webhook.keys import KeyPair, WebhookKeys
from tenantry.controllers.webhook.mutations import (
    CONFIGURATION,
    KEYS_OBJECT,
    ROLE,
    WebhookPlace,
    asked,
    configuration,
    is_as_written,
    reviewed,
)
from tenantry.hosting.selfsigned import self_signed
from tenantry.install import fallback, manifests
from tenantry.install.fallback import MutationForm

Json = dict[str, Any]
SERVED = {each.name: each for each in fallback.served(manifests.LOCAL_USER)}
NOW = dt.datetime(2026, 11, 29, tzinfo=dt.UTC)
LOCAL = WebhookPlace(address="127.0.0.1:20000")


def pair(begin: dt.datetime = NOW, life: dt.timedelta = keys.LIFE) -> KeyPair:
    """Return a certificate and its key."""
    return KeyPair(*self_signed("w", [x509.DNSName("w")], now=begin, life=life))


def review(value: Json, **more: object) -> bytes:
    """Return an AdmissionReview about the creation of an object by alice."""
    fields = {
        "uid": "u-1",
        "operation": "CREATE",
        "namespace": "acme",
        "userInfo": {"username": "alice"},
        "object": value,
        **more,
    }
    return msgspec.json.encode({"request": fields})


def patch_of(answer: bytes) -> list[Json] | None:
    """Return the patch in an AdmissionReview; None if it has none."""
    response = msgspec.json.decode(answer)["response"]
    assert (response["uid"], response["allowed"]) == ("u-1", True)
    return msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else None


def answer(name: str, body: bytes, namespace: Json | None = None, params: Json | None = None) -> list[Json] | None:
    """Return the patch with which the webhook answers."""
    return patch_of(reviewed(SERVED[name], asked(body), namespace, params))


# -- the configuration ----------------------------------------------------------------------------


def test_every_webhook_lets_requests_pass_when_the_operator_is_down() -> None:
    """Issue 20, point 1: no request waits longer than three seconds for the operator, and none fails."""
    made = configuration([*SERVED.values()], LOCAL, "/secret", b"PEM")
    assert [each["name"] for each in made["webhooks"]] == [f"{name}.mutations.tenantry.dev" for name in SERVED]
    for each in made["webhooks"]:
        assert (each["failurePolicy"], each["timeoutSeconds"], each["sideEffects"]) == ("Ignore", 3, "None")
        assert each["clientConfig"]["url"].startswith("https://127.0.0.1:20000/secret/tenantry-")
        assert base64.b64decode(each["clientConfig"]["caBundle"]) == b"PEM"


def test_in_a_cluster_the_api_server_reaches_the_webhook_by_its_service() -> None:
    """Issue 20, point 1: both replicas serve it, behind one Service whose port their container has."""
    place = WebhookPlace(address=f"0.0.0.0:{fallback.PORT}", service=fallback.SERVICE)
    made = configuration([SERVED["tenantry-makers"]], place, "/s", b"")
    found = made["webhooks"][0]["clientConfig"]["service"]
    assert found == {
        "name": fallback.SERVICE,
        "namespace": "tenantry-system",
        "port": 443,
        "path": "/s/tenantry-makers",
    }
    assert place.name == "tenantry-operator-webhook.tenantry-system.svc"
    objects = manifests.everything(form=MutationForm.WEBHOOK)
    (service,) = [
        each for each in objects if each["metadata"]["name"] == fallback.SERVICE and each["kind"] == "Service"
    ]
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert [*fallback.arguments()] == [each for each in container["args"] if each in fallback.arguments()]
    assert deployment["spec"]["replicas"] == 2


def test_without_mutating_policies_the_rest_is_installed_with_checks_of_what_was_changed() -> None:
    """Issue 20, point 1: 1.34 and 1.35 do not know the kind; policies refuse what the webhook has not changed."""
    whole = {_key(each) for each in manifests.foundation(manifests.LOCAL_USER)}
    without = {_key(each) for each in manifests.foundation(manifests.LOCAL_USER, MutationForm.WEBHOOK)}
    assert {kind for kind, _ in whole - without} == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert {name for kind, name in without - whole if kind == "ValidatingAdmissionPolicy"} == {
        "tenantry-bandwidth-applied",
        "tenantry-makers-applied",
    }
    leftovers = {_key(each) for each in fallback.leftovers()}
    assert without - whole <= leftovers
    assert not leftovers & whole


def test_what_only_the_webhook_needs_is_deleted_after_the_right_to_restore_it() -> None:
    """Issue 20, point 1: an operator that still runs would write it again; no private key stays."""
    order = [_key(each) for each in fallback.leftovers()]
    assert order[:3] == [("ClusterRoleBinding", ROLE), ("ClusterRole", ROLE), (CONFIGURATIONS.kind, CONFIGURATION)]
    assert {("Service", fallback.SERVICE), ("Secret", KEYS_OBJECT)} <= {*order}


def test_an_uninstallation_ends_every_right_of_both_forms() -> None:
    """Issue 20, point 1: also the right to write the configuration of the webhook."""
    for form in MutationForm:
        made = manifests.foundation(manifests.SERVICE_ACCOUNT, form)
        bindings = [each for each in made if each["kind"] == "ClusterRoleBinding"]
        bound = {each["metadata"]["name"] for each in bindings if manifests.SERVICE_ACCOUNT in each["subjects"]}
        assert bound <= {*manifests.operator_bindings()}
    assert ROLE in manifests.operator_bindings()


def _key(value: Json) -> tuple[str, str]:
    return value["kind"], value["metadata"]["name"]


# -- reviews --------------------------------------------------------------------------------------


def test_a_new_account_gets_the_mark_of_its_maker() -> None:
    """TOKEN-2: the same annotation that the policy sets."""
    wanted = [{"op": "add", "path": "/metadata/annotations", "value": {"tenantry.dev/made-by": "alice"}}]
    assert answer("tenantry-makers", review({"metadata": {"name": "robot"}})) == wanted


def test_an_object_that_needs_no_change_is_allowed_without_a_patch() -> None:
    """Issue 20, point 1: a review never refuses."""
    namespace = {"metadata": {"labels": {"tenantry.dev/network": "Isolated"}}}
    assert answer("tenantry-networkpolicy-peers", review({"spec": {"ingress": [{}]}}), namespace) is None


def test_parameters_are_read_as_the_policies_read_them() -> None:
    """RUN-1: the name of the sandbox is in the rules of the namespace."""
    params = {"metadata": {"annotations": {"parameters.tenantry.dev/chosen": "isolation.runtime\ts\tgvisor"}}}
    found = answer("tenantry-sandbox", review({"spec": {}}), None, params)
    assert found == [{"op": "add", "path": "/spec/runtimeClassName", "value": "gvisor"}]


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"null", b'{"request": 1}', b'{"request": {}}', b'{"request": {"uid": 1}}', b"\xff"]
    + [
        b'{"request": {"uid": "u", "namespace": %s}}' % each
        for each in (b"1", b'{"a": 1}', b'"../../secrets"', b'"a/b"')
    ],
)
def test_a_body_that_is_no_review_is_refused(body: bytes) -> None:
    """Issue 20: every pod may reach the port; what it sends is no input to an expression."""
    with pytest.raises(InputError, match="no AdmissionReview"):
        asked(body)


@pytest.mark.parametrize("value", [None, 1, "x", []])
def test_a_review_without_an_object_is_refused(value: object) -> None:
    """Issue 20: a deletion has none, and no mutation is about deletions."""
    body = msgspec.json.encode({"request": {"uid": "u", "object": value}})
    with pytest.raises(InputError, match=r"request\.object must be an object"):
        reviewed(SERVED["tenantry-makers"], asked(body), None, None)


# -- certificates ---------------------------------------------------------------------------------


def test_keys_are_read_as_they_were_written() -> None:
    """Issue 20, point 11: all replicas serve what the Secret has."""
    known = WebhookKeys(token="abc", serving=pair(), following=pair(), former=pair().certificate)
    assert keys.read(keys.written(known)) == known
    assert keys.read(keys.written(WebhookKeys(token="abc", serving=pair()))) is not None


@pytest.mark.parametrize(
    "damage",
    [
        {"token": None},
        {"token": b"../x"},
        {"serving.crt": b"no certificate"},
        {"serving.key": b"no key"},
        {"serving.key": pair().key},
        {"following.crt": b"no certificate", "following.key": b"no key"},
    ],
)
def test_a_damaged_secret_counts_as_missing(damage: dict[str, bytes | None]) -> None:
    """Issue 20, point 11: the leader then writes it anew."""
    secret = keys.written(WebhookKeys(token="abc", serving=pair()))
    for key, value in damage.items():
        if value is None:
            del secret["data"][key]
        else:
            secret["data"][key] = base64.b64encode(value).decode()
    assert keys.read(secret) is None
    assert keys.read({"data": {"token": "%%"}}) is None
    assert keys.read(None) is None


def test_the_next_certificate_is_trusted_before_it_is_served_and_the_last_one_after() -> None:
    """Issue 20, point 11: serving certificates renew without a restart; caBundle has all that replicas may serve."""
    first, second = pair(), pair(NOW + keys.LIFE * 2 / 3)
    known = WebhookKeys(token="abc", serving=first)
    assert not keys.is_due(known, NOW + keys.LIFE * 2 / 3 - dt.timedelta(minutes=5))
    assert keys.is_due(known, NOW + keys.LIFE * 2 / 3)
    prepared = msgspec.structs.replace(known, following=second)
    assert not keys.is_due(prepared, NOW + keys.LIFE)
    assert prepared.authorities == first.certificate + second.certificate
    promoted = keys.promoted(prepared)
    assert (promoted.serving, promoted.following) == (second, None)
    assert promoted.authorities == second.certificate + first.certificate
    assert keys.promoted(promoted) == promoted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespaceSelector", {"matchLabels": {"no": "namespace"}}),
        ("objectSelector", {"matchLabels": {"no": "object"}}),
        ("matchConditions", [{"name": "never", "expression": "false"}]),
        ("failurePolicy", "Fail"),
        ("rules", []),
    ],
)
def test_a_webhook_that_another_client_narrows_is_not_as_written(field: str, value: object) -> None:
    """Issue 20, point 1: also where a field of ours is empty; defaults of the API server do not count."""
    wanted = configuration([*SERVED.values()], LOCAL, "/secret", b"PEM")
    found = msgspec.json.decode(msgspec.json.encode(wanted))
    for each in found["webhooks"]:
        each["defaulted"] = True
    assert is_as_written(found, wanted)
    assert not is_as_written(None, wanted)
    found["webhooks"][-1][field] = value
    assert not is_as_written(found, wanted)


def test_no_policy_for_old_versions_calls_the_list_library() -> None:
    """Issue 20, point 1: the CEL of 1.34 does not know `sort` and `slice`."""
    texts = msgspec.json.encode(manifests.foundation(manifests.LOCAL_USER, MutationForm.WEBHOOK)).decode()
    assert ".sort()" in msgspec.json.encode(manifests.foundation(manifests.LOCAL_USER)).decode()
    found = re.findall(r"\.(?:sort|sortBy|distinct|flatten|reverse|first|last)\(|\bu\.slice\(|lists\.range\(", texts)
    assert found == []
