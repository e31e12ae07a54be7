"""Requests of an administrator inside a cluster with guards: what each guard refuses, and what stays allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenantry.api.clusterguards import ClusterGuard
from tenantry.policy.request import Request

Json = dict[str, Any]
RBAC, HOOKS = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
USER = ("system:authenticated",)


class GuardCase(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Args:
        called: Its name in reports.
        request: The request.
        guard: The guard that refuses it; None if all allow it.
        path: Where it is sent.
        patch: The body of a merge patch, for an update.
    """

    called: str
    request: Request
    guard: ClusterGuard | None
    path: str
    patch: Json = {}


def _hook(name: str, client: Json) -> Json:
    hook = {
        "name": "a.example.com",
        "clientConfig": client,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "rules": [{"apiGroups": ["x.example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
    }
    return {"metadata": {"name": name}, "webhooks": [hook]}


def _crd(name: str, client: Json) -> Json:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": f"{name}s.guards.example.com"},
        "spec": {
            "group": "guards.example.com",
            "names": {"plural": f"{name}s", "kind": name.title()},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            },
        },
    }


def _created(called: str, guard: ClusterGuard | None, group: str, resource: str, value: Mapping[str, Any]) -> GuardCase:
    below = f"/apis/{group}/v1" if group else "/api/v1"
    namespace = value["metadata"].get("namespace", "")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return GuardCase(
        called=called,
        guard=guard,
        path=f"{below}{inside}/{resource}",
        request=Request(
            group=group,
            resource=resource,
            object=value,
            name=value["metadata"]["name"],
            namespace=namespace,
            groups=USER,
        ),
    )


def _changed(called: str, guard: ClusterGuard | None, old: Json, patch: Json, subresource: str = "") -> GuardCase:
    """Return the change of the Node `worker`, which is there."""
    new: Json = {part: {**old.get(part, {}), **patch.get(part, {})} for part in ("metadata", "spec", "status")}
    labels = {**old["metadata"].get("labels", {}), **patch.get("metadata", {}).get("labels", {})}
    new["metadata"] = {**new["metadata"], "labels": {key: text for key, text in labels.items() if text is not None}}
    return GuardCase(
        called=called,
        guard=guard,
        path=f"/api/v1/nodes/{WORKER}" + (f"/{subresource}" if subresource else ""),
        patch=patch,
        request=Request(
            resource="nodes",
            subresource=subresource,
            operation="UPDATE",
            object=new,
            old_object=old,
            name=WORKER,
            groups=USER,
        ),
    )


def _deleted(called: str, guard: ClusterGuard | None, group: str, resource: str, name: str) -> GuardCase:
    below = f"/apis/{group}/v1" if group else "/api/v1"
    asked = Request(group=group, resource=resource, operation="DELETE", object={}, name=name, groups=USER)
    return GuardCase(called=called, guard=guard, path=f"{below}/{resource}/{name}", request=asked)


def _all_deleted(called: str, guard: ClusterGuard | None, group: str, resource: str, name: str) -> GuardCase:
    """Return the deletion of a collection that has one object: its requests name none (deletecollection)."""
    case = _deleted(called, guard, group, resource, name)
    old = {"metadata": {"name": name}}
    path = case.path.removesuffix(f"/{name}")
    return msgspec.structs.replace(
        case, path=path, request=msgspec.structs.replace(case.request, name="", old_object=old)
    )


WORKER = "worker"
NODE: Json = {
    "metadata": {"name": WORKER, "labels": {"tenantry.dev/pool": "default", "team": "a"}},
    "spec": {"providerID": "tenantry://worker"},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.10"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    },
}
"""The Node that the operator has written."""

_URL: Json = {"url": "https://192.0.2.1/"}
_SERVICE: Json = {"service": {"namespace": "default", "name": "hook", "port": 443}}
_ADMIN: Json = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
_BINDINGS = "clusterrolebindings"
_SYSTEM: Json = {"namespace": "kube-system"}
_URLS, _RIGHTS, _NODES, _TOKENS = ClusterGuard

CASES: tuple[GuardCase, ...] = (
    _created("webhook-url", _URLS, HOOKS, "validatingwebhookconfigurations", _hook("by-url", _URL)),
    _created("mutating-url", _URLS, HOOKS, "mutatingwebhookconfigurations", _hook("by-url", _URL)),
    _created("webhook-service", None, HOOKS, "validatingwebhookconfigurations", _hook("by-service", _SERVICE)),
    _created("conversion-url", _URLS, "apiextensions.k8s.io", "customresourcedefinitions", _crd("other", _URL)),
    _created("conversion-service", None, "apiextensions.k8s.io", "customresourcedefinitions", _crd("thing", _SERVICE)),
    _deleted("binding-of-nodes", _RIGHTS, RBAC, _BINDINGS, "tenantry:node-bootstrappers"),
    _deleted("role-of-nodes", _RIGHTS, RBAC, "clusterroles", "system:node-proxier"),
    _all_deleted("all-bindings", _RIGHTS, RBAC, _BINDINGS, "tenantry:node-bootstrappers"),
    _all_deleted("all-roles", _RIGHTS, RBAC, "clusterroles", "system:node-proxier"),
    _created("own-binding", None, RBAC, _BINDINGS, {"metadata": {"name": "mine"}, "roleRef": _ADMIN, "subjects": []}),
    _created("forged-binding", _RIGHTS, RBAC, _BINDINGS, {"metadata": {"name": "tenantry:mine"}, "roleRef": _ADMIN}),
    _created("node", _NODES, "", "nodes", {"metadata": {"name": "host-node-1"}}),
    _changed("node-addresses", _NODES, NODE, {"status": {"addresses": []}}, "status"),
    _changed("node-port", _NODES, NODE, {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 22}}}}, "status"),
    _changed("node-pool", _NODES, NODE, {"metadata": {"labels": {"tenantry.dev/pool": "other"}}}),
    _changed("node-pool-removed", _NODES, NODE, {"metadata": {"labels": {"tenantry.dev/pool": None}}}),
    _changed("node-label", None, NODE, {"metadata": {"labels": {"team": "b"}}}),
    _changed("node-cordon", None, NODE, {"spec": {"unschedulable": True}}),
    _deleted("node-deletion", _NODES, "", "nodes", WORKER),
    _created(
        "token",
        _TOKENS,
        "",
        "secrets",
        {"metadata": {"name": "bootstrap-token-abcdef", **_SYSTEM}, "type": "bootstrap.kubernetes.io/token"},
    ),
    _created("secret", None, "", "secrets", {"metadata": {"name": "mine", **_SYSTEM}, "type": "Opaque"}),
)
