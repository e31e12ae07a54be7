"""A suspension ends all access to a virtual control plane, whatever its administrator has prepared inside."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from tenantry.api.errors import Forbidden, Invalid, ServerError, Unreachable
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube.client import Client
from testkit.api import CONFIG_MAPS, SECONDS, Api, until
from testkit.planes import Planes, ready

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
ADMISSION = "admissionregistration.k8s.io"
POLICIES = Resource(ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False)
POLICY_BINDINGS = Resource(
    ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
OWNERS = "tenantry:owners"


async def bind(inside: Api, name: str, subject: Json) -> None:
    """Make a subject an administrator inside."""
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    await inside.create(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})


async def token_of(inside: Api) -> str:
    """Return a token of the ServiceAccount `default`."""
    asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    answer = msgspec.json.decode(await inside.client.request("POST", path, body=msgspec.json.encode(asked)))
    return answer["status"]["token"]


async def refuse_the_operator(inside: Api) -> None:
    """Refuse all changes of the users' binding, and wait until that is in force."""
    rule = {"apiGroups": [RBAC], "apiVersions": ["v1"], "resources": [BINDINGS.plural], "operations": ["*"]}
    spec: Json = {
        "matchConstraints": {"resourceRules": [{**rule, "resourceNames": [OWNERS]}]},
        "validations": [{"expression": "false", "message": "kept by its administrator"}],
    }
    await inside.create(POLICIES, {"metadata": {"name": "kept"}, "spec": spec})
    bound: Json = {"policyName": "kept", "validationActions": ["Deny"]}
    await inside.create(POLICY_BINDINGS, {"metadata": {"name": "kept"}, "spec": bound})

    async def in_force() -> bool:
        try:
            await inside.patch(BINDINGS, OWNERS, {"metadata": {"annotations": {"a": "b"}}})
        except (Forbidden, Invalid):
            return True
        return False

    await until(in_force, "the policy inside is in force")


async def answer_to(client: Client) -> int:
    """Return the status with which a list is answered; 0 without an answer."""
    try:
        await client.request("GET", "/api/v1/namespaces/default/configmaps", attempts=1)
    except (Forbidden, ServerError, Unreachable) as error:
        return error.status
    return 200


async def watched_to_its_end(client: Client, begun: asyncio.Event) -> None:
    """Watch ConfigMaps until the connection ends."""
    try:
        async with client.open("GET", "/api/v1/configmaps", query={"watch": "true"}) as answer:
            begun.set()
            await answer.read()
    except (Unreachable, aiohttp.ClientError):
        return


async def test_a_suspension_shuts_out_administrators_who_have_prepared_for_it(planes: Planes, name: str) -> None:
    """H01, E02: by a second binding, by tokens, by a policy inside that refuses the operator, and by open watches."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    plane = await host.get(VirtualControlPlane.resource, "web", name)
    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "default")
        user = (await inside.get(BINDINGS, OWNERS))["subjects"][0]
        await bind(inside, "again", user)
        await bind(inside, "program", {"kind": "ServiceAccount", "name": "default", "namespace": "default"})
        token = await token_of(inside)
        await refuse_the_operator(inside)
        given = inside.client.connection.detached()
        async with Client(replace(given, certificate=None, key=None, token=token)) as program:
            both, begun = (inside.client, program), asyncio.Event()

            async def all_get(status: int) -> bool:
                return {await answer_to(each) for each in both} == {status}

            async def told() -> bool:
                said = ready(await host.get(VirtualControlPlane.resource, "web", name))
                return said["status"] == "False" and "kept by its administrator" in said["message"]

            assert await all_get(200)
            watch = asyncio.create_task(watched_to_its_end(program, begun))
            await asyncio.wait_for(begun.wait(), SECONDS)
            await host.patch(Tenant.resource, name, {"spec": {"suspended": True}})
            await asyncio.wait_for(watch, SECONDS)
            # From the first cut on, no connection is led to the process.
            assert {await answer_to(each) for each in both} <= {0, 503}
            await until(lambda: all_get(503), "all are shut out")
            await until(told, "the condition reports that the binding cannot be written")
            # A cut that is repeated may drop one of these requests.
            assert {await answer_to(each) for each in both} <= {0, 503}
            await until(lambda: all_get(503), "all are still shut out")
            await host.patch(Tenant.resource, name, {"spec": {"suspended": False}})
            await until(lambda: all_get(200), "all are let in again")
        await inside.delete(POLICY_BINDINGS, "kept")
    found = await host.get(VirtualControlPlane.resource, "web", name)
    assert found["status"]["endpoint"] == plane["status"]["endpoint"]
