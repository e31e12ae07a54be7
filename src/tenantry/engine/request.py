"""Requests to an API server as data, and work that asks for them: pure.

Work that reads and writes is a generator: it yields an `ApiRequest`, or several pieces of work to be done `Together`,
and is sent the response. So the decisions between two requests can be tested without a network, with a fault at each
yield:

    work ──yield ApiRequest──► driver ──HTTP──► API server
         ◄──send response / throw ApiError──

`engine.writer.Writer` has the driver of the operator, the tests have one that answers from a world of objects.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.model import Json, KubernetesObject, Resource

T = TypeVar("T")

ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)

UNTRACKED: Json = {"managedFields": [{}]}
"""In the metadata of a merge patch: the API server stops recording who sets the object's fields, until it is applied.

The record is half of a ResourceQuota, and computing it takes a quarter of what counting one object costs, because every
count is an update. It cannot be left out of a creation. Source: Kubernetes, "Server-Side Apply" (clearing
managedFields).
"""


class Verb(StrEnum):
    """The HTTP method of a request."""

    GET = "GET"
    CREATE = "POST"
    REPLACE = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class PatchType(StrEnum):
    """How a patch is merged (Kubernetes, "Update API Objects in Place Using kubectl patch")."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"
    """Server-side apply, which takes over fields of others; of an object that does not exist, it is a creation."""


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request about one object.

    Args:
        verb: The method.
        resource: The kind.
        namespace: "" for a cluster-scoped object.
        name: The object's name.
        body: What is sent: an object or a JSON text to create or replace, a patch, or options of a deletion.
        subresource: As in "status"; "" for the object itself.
        patch_type: For PATCH.
        is_repeated: Whether a request that the server asks to repeat (Retry-After) is sent again by the driver.
        selectors: For a GET without a name: which objects of the kind are listed.
        is_dry_run: Whether the API server only answers what it would store.
    """

    verb: Verb
    resource: Resource
    namespace: str = ""
    name: str = ""
    body: KubernetesObject | bytes | Json | None = None
    subresource: str = ""
    patch_type: PatchType = PatchType.MERGE
    is_repeated: bool = True
    selectors: Mapping[str, str] | None = None
    is_dry_run: bool = False


class Together(msgspec.Struct, frozen=True):
    """Pieces of work to be done at the same time.

    The response is a list with the result of each, or the `TenantryError` that ended it.
    """

    work: Sequence[Generator[Any, Any, Any]]


Work: TypeAlias = Generator[ApiRequest | Together, Any, T]
"""Work whose result is a T. A `ApiRequest` is answered with the body's bytes, or by an `ApiError` that is thrown in."""


def resume(work: Work[Any], answer: object) -> ApiRequest | Together:
    """Send a piece of work the response that it waits for, and return what it asks for next.

    Args:
        work: The work.
        answer: The response, or the `ApiError` that came instead; None to begin.

    Raises:
        StopIteration: The work has ended, with its result.
        ApiError: As the work raises it; also if the response is no object of its kind, as from a proxy in between.
    """
    try:
        return work.throw(answer) if isinstance(answer, ApiError) else work.send(answer)
    except msgspec.MsgspecError as error:
        raise ApiError(f"a response of the API server is no object of its kind ({error}): check its address") from error


def get(resource: Resource, namespace: str, name: str) -> ApiRequest:
    """Return the request that reads an object."""
    return ApiRequest(verb=Verb.GET, resource=resource, namespace=namespace, name=name)


def listing(resource: Resource, namespace: str = "", selectors: Mapping[str, str] | None = None) -> ApiRequest:
    """Return the request that lists the objects of a kind, all of them in one response."""
    return ApiRequest(verb=Verb.GET, resource=resource, namespace=namespace, selectors=selectors)


def create(value: KubernetesObject) -> ApiRequest:
    """Return the request that creates an object; it is refused with `AlreadyExists` if the name is taken."""
    meta = value.metadata
    return ApiRequest(verb=Verb.CREATE, resource=value.resource, namespace=meta.namespace, name=meta.name, body=value)


def replace(value: KubernetesObject, subresource: str = "") -> ApiRequest:
    """Return the request that replaces an object at the resourceVersion that its metadata names."""
    meta = value.metadata
    return ApiRequest(
        verb=Verb.REPLACE,
        resource=value.resource,
        namespace=meta.namespace,
        name=meta.name,
        body=value,
        subresource=subresource,
    )


def create_json(resource: Resource, value: Json) -> ApiRequest:
    """Return the request that creates an object given as JSON; see `create`.

    Args:
        resource: The kind, whose apiVersion and kind the object may lack.
        value: The object, which has its name and namespace.
    """
    return _whole(Verb.CREATE, resource, value)


def replace_json(resource: Resource, value: Json) -> ApiRequest:
    """Return the request that replaces an object by JSON; a resourceVersion in its metadata is a precondition.

    Args:
        resource: As for `create_json`, as the next.
        value: The object.
    """
    return _whole(Verb.REPLACE, resource, value)


def apply(resource: Resource, value: Json) -> ApiRequest:
    """Return the request that creates an object, or sets the fields that it has here; see `PatchType.APPLY`.

    Args:
        resource: As for `create_json`, as the next.
        value: The object.
    """
    return _whole(Verb.PATCH, resource, value, PatchType.APPLY)


def _whole(verb: Verb, resource: Resource, value: Json, patch_type: PatchType = PatchType.MERGE) -> ApiRequest:
    meta: Json = value["metadata"]
    return ApiRequest(
        verb=verb,
        resource=resource,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        body={"apiVersion": resource.api_version, "kind": resource.kind, **value},
        patch_type=patch_type,
    )


def patch(
    resource: Resource,
    namespace: str,
    name: str,
    body: Json,
    *,
    subresource: str = "",
    patch_type: PatchType = PatchType.MERGE,
) -> ApiRequest:
    """Return the request that patches an object; a resourceVersion in the patch is a precondition."""
    return ApiRequest(
        verb=Verb.PATCH,
        resource=resource,
        namespace=namespace,
        name=name,
        body=body,
        subresource=subresource,
        patch_type=patch_type,
    )


def finalizers(value: KubernetesObject, names: Sequence[str]) -> ApiRequest:
    """Return the request that sets an object's finalizers, at the resourceVersion at which it was read.

    A merge patch replaces the whole list: without the resourceVersion, finalizers added since would be lost.
    """
    meta = value.metadata
    body: Json = {"metadata": {"finalizers": list(names), "resourceVersion": meta.resource_version}}
    return patch(value.resource, meta.namespace, meta.name, body)


def delete(
    resource: Resource,
    namespace: str,
    name: str,
    *,
    uid: str = "",
    version: int = 0,
    grace_period_seconds: int | None = None,
) -> ApiRequest:
    """Return the request that deletes an object, in the background.

    Args:
        resource: The kind.
        namespace: "" for a cluster-scoped object.
        name: The object's name.
        uid: Delete only the object of this uid; "" for any.
        version: Delete it only at this resourceVersion; 0 for any.
        grace_period_seconds: For pods; None for the pod's own.
    """
    preconditions = ({"uid": uid} if uid else {}) | ({"resourceVersion": str(version)} if version else {})
    body: Json = {"propagationPolicy": "Background"}
    if preconditions:
        body["preconditions"] = preconditions
    if grace_period_seconds is not None:
        body["gracePeriodSeconds"] = grace_period_seconds
    return ApiRequest(verb=Verb.DELETE, resource=resource, namespace=namespace, name=name, body=body)


def evict(pod: Resource, namespace: str, name: str, uid: str, *, grace_period_seconds: int | None = None) -> ApiRequest:
    """Return the request that asks for a pod's eviction; `TooManyRequests` means that a disruption budget refuses.

    Args:
        pod: The kind Pod.
        namespace: Of the pod.
        name: Of the pod.
        uid: Evict only the pod of this uid.
        grace_period_seconds: None for the pod's own.
    """
    options: Json = {"preconditions": {"uid": uid}}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    body: Json = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    return ApiRequest(
        verb=Verb.CREATE,
        resource=pod,
        namespace=namespace,
        name=name,
        body=body,
        subresource="eviction",
        is_repeated=False,
    )


def token_review(token: str, audiences: Sequence[str] = ()) -> ApiRequest:
    """Return the question whether a token is valid; `status.authenticated` of the response answers it.

    Args:
        token: The token.
        audiences: For one of whom it has to be; () for the API server itself.
    """
    spec: Json = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    return ApiRequest(verb=Verb.CREATE, resource=TOKEN_REVIEWS, namespace="", name="", body=body)


def access_review(user: Json, url: str) -> ApiRequest:
    """Return the question whether a user may GET a URL that is no resource; `status.allowed` answers it.

    Args:
        user: `user`, `uid`, `groups` and `extra`, as SubjectAccessReviewSpec has them.
        url: The path of the URL.
    """
    spec: Json = {**user, "nonResourceAttributes": {"path": url, "verb": "get"}}
    body: Json = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
    return ApiRequest(verb=Verb.CREATE, resource=ACCESS_REVIEWS, namespace="", name="", body=body)


def token(
    account: Resource,
    namespace: str,
    name: str,
    *,
    seconds: int,
    audience: str = "",
    pod: tuple[str, str] | None = None,
    secret: tuple[str, str] | None = None,
) -> ApiRequest:
    """Return the request for a token of a ServiceAccount; the response is a TokenRequest with `status.token`.

    Args:
        account: The kind ServiceAccount.
        namespace: Of the ServiceAccount.
        name: Of the ServiceAccount.
        seconds: How long the token is valid; the API server may choose another lifetime.
        audience: For whom the token is; "" for the API server.
        pod: The name and the uid of the pod with which the token ends; None for no pod.
        secret: As `pod`, for a Secret; at most one of them.
    """
    spec: Json = {"expirationSeconds": seconds}
    if audience:
        spec["audiences"] = [audience]
    for kind, bound in (("Pod", pod), ("Secret", secret)):
        if bound is not None:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": kind, "name": bound[0], "uid": bound[1]}
    return ApiRequest(
        verb=Verb.CREATE,
        resource=account,
        namespace=namespace,
        name=name,
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        subresource="token",
    )
