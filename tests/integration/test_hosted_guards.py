"""Guards of a hosted API server: policies from files that bind its own administrators (H04, KEP-5793)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.clusterguards import ClusterGuard
from tenantry.api.errors import ApiError, Forbidden, Invalid
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.hosting.placement import RunningPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import JSON, MERGE_PATCH, Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local.cluster import LocalCluster
from testkit.api import SECRETS, Api, until
from testkit.guardcases import CASES, NODE, WORKER, GuardCase
from testkit.hosted import running
from testkit.nodecsrs import CLIENT_USAGES, csr

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
HOOKS = "admissionregistration.k8s.io"
POLICIES = Resource(HOOKS, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False)
REQUESTS = Resource("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False)
NODE_TOKEN = next(each for each in CASES if each.called == "token")


@asynccontextmanager
async def entered(found: RunningPlane, owner: str, folder: Path) -> AsyncGenerator[tuple[Connection, Api, Api]]:
    """How the tenant's administrator connects, the administrator, and the operator; a node is there."""
    file = folder / "kubeconfig"
    file.write_text(found.kubeconfig)
    connection = replace(kubeconfig.load([file]), server=found.connection.server)
    async with Client(connection) as person, Client(found.connection) as client:
        operator, owned = Api(client), Api(person)
        role: Json = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"}
        user = {"apiGroup": RBAC_GROUP, "kind": "User", "name": owner}
        await operator.create(BINDINGS, {"metadata": {"name": "tenantry:owners"}, "roleRef": role, "subjects": [user]})
        await operator.create(BINDINGS, {"metadata": {"name": "tenantry:node-bootstrappers"}, "roleRef": role})
        await operator.create(Node.resource, NODE)

        async def may() -> bool:
            try:
                return await owned.find(Node.resource, WORKER) is not None
            except Forbidden:
                return False

        await until(may, "the administrator has its rights")
        yield connection, owned, operator


async def told(person: Api, case: GuardCase) -> str:
    """Return why a request is refused; "" if it is not. It changes nothing."""
    asked = case.request
    body: Json = {**asked.object}
    if asked.operation == "CREATE":
        kinds = {
            "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
            "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
            "customresourcedefinitions": "CustomResourceDefinition",
            "clusterrolebindings": "ClusterRoleBinding",
            "nodes": "Node",
            "secrets": "Secret",
        }
        version = f"{asked.group}/v1" if asked.group else "v1"
        body = {"apiVersion": version, "kind": kinds[asked.resource], **body}
    method = {"CREATE": "POST", "UPDATE": "PATCH", "DELETE": "DELETE"}[asked.operation]
    try:
        await person.client.request(
            method,
            case.path,
            query={"dryRun": "All"},
            body=msgspec.json.encode(case.patch or body) if method != "DELETE" else None,
            content_type=MERGE_PATCH if case.patch else JSON,
            attempts=1,
        )
    except ApiError as error:
        return str(error)
    return ""


async def test_guards_bind_the_administrator_who_neither_sees_nor_deletes_them(
    tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """H04: what each refuses, by the same cases as in Python; no identity that they exempt can be taken."""
    async with running(tenancy, name, guards=tuple(ClusterGuard)) as (place, plane, found):
        async with entered(found, plane.owner, tmp_path) as (connection, person, operator):
            for case in CASES:
                why = await told(person, case)
                assert bool(why) == (case.guard is not None), (case.called, why)
                assert case.guard is None or f"(rule guards.{case.guard} of the host" in why, why
                why = await told(operator, case)
                assert bool(why) == (case.guard is ClusterGuard.OUTGOING_URLS), (case.called, why)
            await _are_hidden(person)
            await _cannot_be_evaded(connection, person)
            # The process reads them again when they change.
            fewer = replace(plane, guards=(ClusterGuard.OUTGOING_URLS,))
            await place.start(fewer)

            async def is_read() -> bool:
                return not await told(person, NODE_TOKEN)

            await until(is_read, "the token is not refused any more", seconds=180.0)
            assert "guards.OutgoingUrls" in await told(person, CASES[0])
        again = await place.start(replace(plane, guards=()))
        async with Client(again.connection) as client:
            assert await told(Api(client), CASES[0]) == ""


async def _are_hidden(person: Api) -> None:
    """Check that no request finds a guard, or makes a policy of its kind."""
    assert await person.list(POLICIES) == []
    hidden = "tenantry-nodes.static.k8s.io"
    assert await person.find(POLICIES, hidden) is None
    spec: Json = {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
        "validations": [{"expression": "true"}],
    }
    spec["matchConstraints"]["resourceRules"][0]["operations"] = ["CREATE"]
    with pytest.raises(Invalid, match="reserved for static"):
        await person.create(POLICIES, {"metadata": {"name": hidden}, "spec": spec})


async def _cannot_be_evaded(connection: Connection, person: Api) -> None:
    """Check that neither impersonation nor a certificate gives an identity that guards exempt."""
    for user, groups in (
        ("tenantry:operator", ("system:masters",)),
        ("kubelet", ("system:nodes",)),
        (f"system:node:{WORKER}", ()),
    ):
        async with Client(replace(connection, impersonate=user, impersonate_groups=groups)) as client:
            with pytest.raises(Forbidden, match="must not be impersonated"):
                await Api(client).list(SECRETS)
    spec = {"usages": [*CLIENT_USAGES], "signerName": "kubernetes.io/kube-apiserver-client"}
    for group, words in (("system:nodes", "must not be in system:nodes"), ("system:masters", "system:masters group")):
        asked = {**spec, "request": csr(f"system:node:{WORKER}", group)}
        with pytest.raises(Forbidden, match=words):
            await person.create(REQUESTS, {"metadata": {"name": "forged"}, "spec": asked})
    # A request for the certificate of a kubelet may be made, and only the operator decides on it.
    asked = {**spec, "request": csr(f"system:node:{WORKER}", "system:nodes")}
    asked["signerName"] += "-kubelet"
    await person.create(REQUESTS, {"metadata": {"name": "kubelet"}, "spec": asked})
    condition = {"type": "Approved", "status": "True", "reason": "ByHand"}
    body = msgspec.json.encode({"status": {"conditions": [condition]}})
    with pytest.raises(Forbidden, match="leave the decision to the operator"):
        await person.client.request(
            "PATCH",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/kubelet/approval",
            body=body,
            content_type=MERGE_PATCH,
            attempts=1,
        )
