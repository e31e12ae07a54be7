"""The requests of attempts: reads, reviews of rights, dry runs, and requests about objects that do not exist."""

from __future__ import annotations

from collections.abc import Callable

from tenantry.api.model import Json, Resource
from tenantry.audit.check import MERGE_PATCH, Attempt, AttemptResponse, WhenNotFound
from tenantry.audit.context import AuditContext
from tenantry.engine.preview import merged
from tenantry.kube import wire
from tenantry.policy.request import part

Judge = Callable[[AttemptResponse], str]

DRY_RUN = {"dryRun": "All"}
FIRST = {"limit": "1"}


def create(
    resource: Resource, value: Json, namespace: str = "", *, what: str = "", judge: Judge | None = None
) -> Attempt:
    """Return the creation of an object, as a dry run.

    Args:
        resource: The object's kind.
        value: The object, without apiVersion and kind.
        namespace: "" for a cluster-scoped object.
        what: Its special property, as in "with hostPID".
        judge: See `Attempt`.
    """
    return Attempt(
        what=_words("create", f"a {resource.kind}", namespace, what) + " (dry run)",
        method="POST",
        path=wire.path(resource, namespace),
        body={"apiVersion": resource.api_version, "kind": resource.kind, **value},
        query=DRY_RUN,
        judge=judge,
    )


def patch(resource: Resource, name: str, change: Json, namespace: str = "", *, subresource: str = "") -> Attempt:
    """Return a merge patch of an object, as a dry run."""
    about = f"{resource.full_name}{f'/{subresource}' if subresource else ''} {name!r}"
    return Attempt(
        what=_words("patch", about, namespace) + " (dry run)",
        method="PATCH",
        path=wire.path(resource, namespace, name, subresource),
        body=change,
        content_type=MERGE_PATCH,
        query=DRY_RUN,
    )


def delete(resource: Resource, name: str, namespace: str = "") -> Attempt:
    """Return the deletion of an object, as a dry run."""
    return Attempt(
        what=_words("delete", f"{resource.full_name} {name!r}", namespace) + " (dry run)",
        method="DELETE",
        path=wire.path(resource, namespace, name),
        query=DRY_RUN,
    )


def create_and_delete(context: AuditContext, *resources: Resource) -> list[Attempt]:
    """Return the creation and the deletion of an object of each cluster-scoped kind."""
    value: Json = {"metadata": {"name": context.name}}
    return [each for resource in resources for each in (create(resource, value), delete(resource, context.name))]


def list_(resource: Resource, namespace: str = "", *, missing: WhenNotFound = WhenNotFound.SKIPPED) -> Attempt:
    """Return a list of the first object of a kind; in all namespaces if namespace is ""."""
    where = namespace if resource.namespaced and namespace else ""
    everywhere = " in all namespaces" if resource.namespaced and not namespace else ""
    return Attempt(
        what=_words("list", resource.full_name, where) + everywhere,
        path=wire.path(resource, where),
        query=FIRST,
        missing=missing,
    )


def get(
    path: str, what: str = "", *, missing: WhenNotFound = WhenNotFound.THROUGH, judge: Judge | None = None
) -> Attempt:
    """Return a GET of a path."""
    return Attempt(what=what or f"GET {path}", path=path, missing=missing, judge=judge)


def may(verb: str, resource: str, *, group: str = "", namespace: str = "", subresource: str = "") -> Attempt:
    """Return the question whether the tenant has a right.

    It stands in for an attempt that would have an effect, or that only the missing right prevents.
    """
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    if subresource:
        attributes["subresource"] = subresource
    full = resource + (f"/{subresource}" if subresource else "") + (f".{group}" if group else "")
    what = _words("may", f"{verb} {full}", namespace)
    return review("SelfSubjectAccessReview", {"resourceAttributes": attributes}, what, _is_allowed)


def review(kind: str, spec: Json, what: str, judge: Judge) -> Attempt:
    """Return a question about the tenant's own rights; the API server stores nothing."""
    return Attempt(
        what=what,
        method="POST",
        path=f"/apis/authorization.k8s.io/v1/{kind.lower()}s",
        body={"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec},
        judge=judge,
    )


def _is_allowed(answer: AttemptResponse) -> str:
    status = part(answer.body, "status")
    return f"yes: {status.get('reason', '') or 'allowed'}" if status.get("allowed") else ""


def _words(verb: str, about: str, namespace: str, what: str = "") -> str:
    return f"{verb} {about}" + (f" {what}" if what else "") + (f" in {namespace!r}" if namespace else "")


# -- pods -----------------------------------------------------------------------------------------


RESTRICTED_CONTAINER: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RESTRICTED_POD: Json = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
"""What the Restricted Pod Security Standard asks of a container and of a pod."""


def pod(context: AuditContext, spec: Json | None = None, container: Json | None = None, *, init: bool = False) -> Json:
    """Return a pod that passes the Restricted Pod Security Standard, with changes.

    Args:
        context: The namespace and its surroundings.
        spec: A merge patch of the pod's spec.
        container: A merge patch of one container.
        init: That container is an init container beside the usual one.
    """
    # With a quota of limits, Kubernetes refuses pods that set none, and every attempt would prove nothing.
    amounts = {"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "16Mi"}
    usual: Json = {
        "name": "audit",
        "image": context.image,
        # A rule may require it (images.pullPolicies).
        "imagePullPolicy": "Always",
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": RESTRICTED_CONTAINER,
    }
    changed = merged(usual, container or {})
    restricted: Json = {
        "automountServiceAccountToken": False,
        "securityContext": RESTRICTED_POD,
        "containers": [usual] if init else [changed],
    }
    if init:
        restricted["initContainers"] = [{**changed, "name": "init"}]
    return {"metadata": {"name": context.name}, "spec": merged(restricted, spec or {})}
