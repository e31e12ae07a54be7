"""Paths, and answers that are no success."""

from __future__ import annotations

import json

import msgspec
import pytest

from tenantry.api import errors
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import ObjectMeta
from tenantry.api.tenant import Tenant
from tenantry.engine.observed import observe
from tenantry.kube import wire
from tenantry.mirror import things

PATHS = [
    (wire.path(Namespace.resource), "/api/v1/namespaces"),
    (wire.path(Namespace.resource, name="acme"), "/api/v1/namespaces/acme"),
    (wire.path(Namespace.resource, "ignored", "acme"), "/api/v1/namespaces/acme"),
    (wire.path(Tenant.resource, name="acme", subresource="status"), "/apis/tenantry.dev/v1alpha1/tenants/acme/status"),
    (wire.path(RoleBinding.resource), "/apis/rbac.authorization.k8s.io/v1/rolebindings"),
    (
        wire.path(RoleBinding.resource, "acme", "b"),
        "/apis/rbac.authorization.k8s.io/v1/namespaces/acme/rolebindings/b",
    ),
]


@pytest.mark.parametrize(("found", "expected"), PATHS)
def test_paths(found: str, expected: str) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("name", "escaped"),
    [("system:x", "system:x"), ("a b", "a%20b"), ("a?b", "a%3Fb"), ("a#b", "a%23b"), ("\u00fc", "%C3%BC")],
)
def test_the_names_that_rbac_allows_stay_one_segment(name: str, escaped: str) -> None:
    """E02: a binding may be called almost anything; one that could not be addressed could not be closed either."""
    assert wire.path(RoleBinding.resource, "acme", name).endswith(f"/rolebindings/{escaped}")


def test_an_object_is_encoded_with_its_kind_and_without_what_it_does_not_say() -> None:
    data = json.loads(wire.encode(Namespace(metadata=ObjectMeta(name="acme", labels={"a": "b"}))))
    assert data == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme", "labels": {"a": "b"}}}


def _status(reason: str, message: str = "m") -> bytes:
    return json.dumps({"kind": "Status", "reason": reason, "message": message, "details": {"causes": None}}).encode()


ANSWERS: list[tuple[int, bytes, type[errors.ApiError]]] = [
    (400, _status("BadRequest"), errors.BadRequest),
    (401, _status("Unauthorized"), errors.Unauthorized),
    (403, _status("Forbidden"), errors.Forbidden),
    (404, _status("NotFound"), errors.NotFound),
    (409, _status("Conflict"), errors.Conflict),
    (409, _status("AlreadyExists"), errors.AlreadyExists),
    (410, _status("Expired"), errors.Gone),
    (500, _status("Expired"), errors.Gone),
    (422, _status("Invalid"), errors.Invalid),
    (429, _status("TooManyRequests"), errors.TooManyRequests),
    (500, _status("InternalError"), errors.ServerError),
    (503, b"upstream is away", errors.ServerError),
    (418, b"", errors.ApiError),
]


@pytest.mark.parametrize(("status", "body", "kind"), ANSWERS)
def test_an_answer_is_its_error(status: int, body: bytes, kind: type[errors.ApiError]) -> None:
    error = wire.error_from(status, body, "GET /x", 3.0)
    assert type(error) is kind
    assert error.status == status
    assert error.retry_after_seconds == 3.0


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"<html>", b"\xff", b'{"message": 1}'])
def test_an_answer_that_is_no_status_is_quoted(body: bytes) -> None:
    assert str(wire.error_from(502, body, "GET /x")).startswith("GET /x: HTTP 502")


def test_a_status_without_a_message_says_what_was_asked() -> None:
    assert str(wire.error_from(404, b"{}", "GET /x")) == "GET /x: HTTP 404"


def test_json_as_deep_as_api_servers_store_it_is_read() -> None:
    """X03: users nest managedFields as they like; a list or a watch that cannot be read would be asked for again."""
    depth = 9_990
    deep = b'{"f:a":' * depth + b"1" + b"}" * depth
    item = b'{"metadata":{"name":"x","uid":"u","resourceVersion":"7","managedFields":[{"fieldsV1":' + deep + b"}]}}"
    page = msgspec.json.decode(b'{"items":[' + item + b"]}", type=wire.Page[msgspec.Raw])
    assert observe(Namespace.resource, page.items[0]).name == "x"
    assert things.whole(page.items[0]).meta == {"name": "x", "uid": "u", "resourceVersion": "7"}
