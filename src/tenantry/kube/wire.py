"""Objects to and from bytes: paths, encoding, the answer's Status, and lists."""

from __future__ import annotations

import sys
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from tenantry.api import errors
from tenantry.api.model import KubernetesObject, Model, Resource

T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="deterministic")

NESTING = 12_000
"""How deep the JSON of API servers may be nested: they accept 10,000 levels, for example in managedFields."""

UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What decoding raises for JSON of another form."""

# The decoder's limit is Python's, of 1,000 levels: one object of a user would end every list and watch of its kind.
sys.setrecursionlimit(max(sys.getrecursionlimit(), NESTING))


class StatusCause(Model, frozen=True, kw_only=True):
    """One thing that is wrong with a request."""

    field: str = ""
    message: str = ""


class StatusDetails(Model, frozen=True, kw_only=True):
    """What a Status is about."""

    name: str = ""
    kind: str = ""
    retry_after_seconds: int = 0
    causes: tuple[StatusCause, ...] | None = None


class Status(Model, frozen=True, kw_only=True):
    """The API server's answer where it is not an object (Kubernetes: "API conventions", response status kind)."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ListMeta(Model, frozen=True, kw_only=True):
    """Where a list stands, and where its next page begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    items: list[T]
    metadata: ListMeta = ListMeta()


_NO_NAMES = (".", "..")
"""Source: k8s.io/apimachinery, pkg/api/validation/path, `IsValidPathSegmentName`."""


def path(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the URL path of an object, or of a collection where no name is given.

    Raises:
        InputError: A name would lead elsewhere.
    """
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    for each in (namespace, name):
        if each in _NO_NAMES:
            raise errors.InputError(f"no object and no namespace has the name {each!r}")
    middle = f"/namespaces/{quote(namespace, safe='')}" if namespace and resource.namespaced else ""
    # RBAC's names may be almost anything ("system:x", "a b", "why?"); the rest of Kubernetes' need no escape.
    tail = f"/{quote(name, safe=':')}" if name else ""
    return f"{root}{middle}/{resource.plural}{tail}" + (f"/{subresource}" if subresource else "")


def encode(value: KubernetesObject) -> bytes:
    """Return an object's JSON, with its apiVersion and kind."""
    resource = value.resource
    head = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()
    return head + _encoder.encode(value)[1:]


def encode_json(value: object) -> bytes:
    """Return the JSON of anything else: patches, options."""
    return _encoder.encode(value)


_BY_STATUS: dict[int, type[errors.ApiError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}

_status_decoder = msgspec.json.Decoder(Status)


def error_from(status: int, body: bytes, what: str, retry_after_seconds: float | None = None) -> errors.ApiError:
    """Return the typed error of an answer.

    Args:
        status: The HTTP status.
        body: The answer's body, a Status where the API server itself answered.
        what: What was asked for, as in "create namespaces/acme", for a body that says nothing.
        retry_after_seconds: The Retry-After header, None if there was none.
    """
    try:
        answer = _status_decoder.decode(body)
    except msgspec.MsgspecError:
        answer = Status(message=f"{what}: HTTP {status}: {body[:200].decode(errors='replace').strip()}")
    kind = _BY_STATUS.get(status, errors.ServerError if status >= 500 else errors.ApiError)  # noqa: PLR2004
    if answer.reason == "AlreadyExists":
        kind = errors.AlreadyExists
    if answer.reason == "Expired":
        kind = errors.Gone
    message = answer.message or f"{what}: HTTP {status}"
    return kind(message, status=status, reason=answer.reason, retry_after_seconds=retry_after_seconds)
