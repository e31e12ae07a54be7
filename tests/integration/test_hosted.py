"""Hosted control planes are real ones: a process each under the supervisor of a local cluster (H02)."""

from __future__ import annotations

import asyncio
import signal

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.clusterinventory import ClusterProfile, ClusterProperty
from tenantry.api.errors import ApiError, Forbidden, ServerError, Unauthorized
from tenantry.api.model import Json, Resource
from tenantry.hosting.admission import AdmissionAnswer, AdmissionRequest, AdmissionServer
from tenantry.hosting.plane import AdmissionOperation, AdmissionRule, HostedPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import APPLY_PATCH, Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.hosted import LocalPlacement
from tenantry.local.process import kill_if_same
from tenantry.local.state import read_state
from testkit.api import Api, until
from testkit.hosted import running

pytest_plugins = ["testkit.fixtures"]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES = Resource("", "v1", "services", "Service")
PODS = Resource("", "v1", "pods", "Pod")
POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
LEAST_GROUPS = 30
POLICY: Json = {
    "metadata": {"name": "types"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
                for group, resource in (("apps", "deployments"), ("example.com", "widgets"))
            ]
        },
        "validations": [{"expression": "object.odd == 1"}],
    },
}


async def component(tenancy: LocalCluster, name: str) -> tuple[int, int]:
    """Return pid and start of the process of a hosted control plane; zeros if there is none."""
    state = read_state(tenancy.paths)
    found = state.component(f"hosted@{name}") if state is not None else None
    return (found.pid, found.start_ticks) if found is not None else (0, 0)


async def test_it_runs_controllers_survives_a_kill_and_leaves_nothing(tenancy: LocalCluster, name: str) -> None:
    """H02: a Deployment gets its pods; after SIGKILL the objects are there, at the same address; then all is gone."""
    async with running(tenancy, name) as (place, plane, first), Client(first.connection) as client:
        inside = Api(client)
        labels = {"app": "web"}
        container = {"name": "c", "image": "busybox"}
        await inside.default_account("default")
        await inside.create(
            DEPLOYMENTS,
            {
                "metadata": {"name": "web"},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            },
            "default",
        )

        async def both() -> bool:
            return len(await inside.list(PODS, "default")) == 2

        await until(both, "the Deployment has its pods")
        pid, ticks = await component(tenancy, plane.name)
        assert kill_if_same(pid, ticks, signal.SIGKILL)

        async def noticed() -> bool:
            return (await component(tenancy, plane.name))[1] != ticks

        await until(noticed, "the supervisor has noticed")
        again = await place.start(plane)
        assert (again.server, again.kubeconfig) == (first.server, first.kubeconfig)
        async with Client(again.connection) as later:
            assert (await Api(later).get(DEPLOYMENTS, "web", "default"))["spec"]["replicas"] == 2
    assert not (tenancy.paths.folder / "hosted" / plane.uid).exists()
    assert await component(tenancy, plane.name) == (0, 0)


async def test_credentials_of_one_are_worth_nothing_at_another(tenancy: LocalCluster, name: str) -> None:
    """H02: each has its own authorities, keys and issuer."""
    async with running(tenancy, f"{name}-a") as (_, _, one), running(tenancy, f"{name}-b") as (_, _, other):
        async with Client(one.connection) as client:
            account = await client.request(
                "POST", "/api/v1/namespaces/default/configmaps", body=b'{"metadata": {"name": "mine"}}'
            )
            assert b'"mine"' in account
        mixed = replace(other.connection.detached(), server=one.connection.server, ca=one.connection.ca)
        with pytest.raises(Unauthorized):
            async with Client(mixed) as client:
                await client.request("GET", "/api/v1/namespaces")


def web(**metadata: object) -> Json:
    """A Service."""
    return {"metadata": metadata, "spec": {"ports": [{"port": 80}]}}


async def test_another_process_answers_requests_first(tenancy: LocalCluster, name: str) -> None:
    """H02: its object is stored, its refusal shown; without it, no Service is created, but everything else is."""
    seen: list[AdmissionRequest] = []

    async def answer(request: AdmissionRequest) -> AdmissionAnswer:
        seen.append(request)
        if request.object["metadata"].get("labels", {}).get("refused"):
            raise Forbidden("Services of this name are the host's", status=403, reason="Forbidden")
        changed = {**request.object["metadata"], "labels": {"answered": "yes"}}
        spec = {**request.object["spec"], "clusterIP": "10.96.77.7", "clusterIPs": ["10.96.77.7"]}
        return AdmissionAnswer(object={**request.object, "metadata": changed, "spec": spec})

    async with (
        # It starts without the step: its own Service must not wait for it.
        running(tenancy, name, AdmissionRule(resource="services")) as (place, plane, first),
        Client(first.connection) as client,
    ):
        inside = Api(client)

        async def own() -> Json | None:
            return await inside.find(SERVICES, "kubernetes", "default")

        # The API server creates it after it has become ready.
        assert (await until(own, "the API server has its own Service"))["spec"]["clusterIP"] == "10.96.0.1"
        async with AdmissionServer(place.admission(plane.uid), answer).serve():
            made = await inside.create(SERVICES, web(generateName="web-"), "default")
            assert made["spec"]["clusterIP"] == "10.96.77.7"
            assert made["metadata"]["labels"] == {"answered": "yes"}
            assert seen[0].name == made["metadata"]["name"]
            assert (seen[0].operation, seen[0].user) == (AdmissionOperation.CREATE, "tenantry:operator")
            await inside.patch(SERVICES, seen[0].name, {"metadata": {"labels": {"mine": "1"}}}, "default")
            assert seen[1].operation is AdmissionOperation.UPDATE
            assert seen[1].old is not None
            assert seen[1].old["spec"]["clusterIP"] == "10.96.77.7"
            path = "/api/v1/namespaces/default/services"
            await client.request("POST", f"{path}?dryRun=All", body=msgspec.json.encode(web(name="dry")))
            assert seen[2].is_dry_run
            with pytest.raises(Forbidden, match=r"^Services of this name are the host's$"):
                await inside.create(SERVICES, web(name="refused", labels={"refused": "1"}), "default")
            assert await inside.find(SERVICES, "refused", "default") is None
        late = msgspec.json.encode(web(name="late"))
        with pytest.raises(ServerError, match="the cluster that hosts it does not answer") as caught:
            await client.request("POST", path, body=late, attempts=1)
        assert (caught.value.status, caught.value.retry_after_seconds) == (503, 2)
        # The user name of the API server itself opens nothing: administrators can take it.
        posing = replace(first.connection, impersonate="system:apiserver", impersonate_groups=("system:masters",))
        async with Client(posing) as other:
            with pytest.raises(ServerError, match="does not answer"):
                await other.request("POST", path, body=late, attempts=1)
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "other"}}, "default")


DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
WIDGETS: Json = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"size": {"type": "integer", "description": "How large the widget is."}},
                    }
                },
            }
        ],
    },
}


async def test_documents_of_kinds_are_those_of_a_whole_server(tenancy: LocalCluster, name: str) -> None:
    """H02: built-in kinds come from shared files, custom resources from the server; clients see one document."""
    async with (
        running(tenancy, name) as (place, plane, first),
        Client(first.connection) as client,
        Client(kubeconfig.load([tenancy.paths.kubeconfig("operator")])) as stock,
    ):
        inside = Api(client)
        await inside.create(DEFINITIONS, WIDGETS)

        async def listed() -> bool:
            return "apis/example.com/v1" in (await read(client, "/openapi/v3"))["paths"]

        await until(listed, "the document of the custom resource is listed")
        await _same_documents(client, stock)
        # Requests at the same time share the document that was merged (VCP-35).
        shared_documents = await asyncio.gather(*(client.request("GET", "/openapi/v2") for _ in range(4)))
        assert len(set(shared_documents)) == 1
        # Server-side apply needs the types of both, and knows fields that the kinds do not have.
        for path, body in (
            ("/api/v1/namespaces/default/configmaps/a", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}),
            ("/apis/example.com/v1/namespaces/default/widgets/a", {"apiVersion": "example.com/v1", "kind": "Widget"}),
        ):
            query = {"fieldManager": "test", "fieldValidation": "Strict"}
            content = msgspec.json.encode({**body, "metadata": {"name": "a"}})
            await client.request("PATCH", path, query=query, body=content, content_type=APPLY_PATCH)
            content = msgspec.json.encode({**body, "metadata": {"name": "a"}, "odd": 1})
            with pytest.raises(ApiError, match="odd"):
                await client.request("PATCH", path, query=query, body=content, content_type=APPLY_PATCH)
        for asked, words in (("deployments.spec.replicas", "Number of desired pods"), ("widgets.size", "How large")):
            assert words in await kubectl(tenancy, place, plane, "explain", asked)
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "b"}, "odd": 1}
        applied = await kubectl(tenancy, place, plane, "apply", "--validate=strict", "-f", "-", given=widget)
        assert 'unknown field "odd"' in applied

        # The controller of policies has no schemas of its own: it asks for those of both.
        await inside.create(POLICIES, POLICY)

        async def checked() -> str:
            policy = await inside.get(POLICIES, "types")
            return str(policy.get("status", {}).get("typeChecking", ""))

        warnings = await until(checked, "the types in the policy are checked")
        assert "apps/v1, Kind=Deployment: ERROR" in warnings
        assert "example.com/v1, Kind=Widget: ERROR" in warnings


async def read(of: Client, path: str) -> Json:
    """Return what a server answers."""
    return msgspec.json.decode(await of.request("GET", path))


INVENTORY = tuple(kind.resource.group for kind in (ClusterProperty, ClusterProfile))
"""Groups of other projects that the host has by the installation."""
INVENTORY_MODELS = tuple(".".join(reversed(group.split("."))) for group in INVENTORY)


async def _same_documents(client: Client, stock: Client) -> None:
    """Both servers describe the same kinds; the stock one forgets the kinds of earlier tests a moment later."""
    differing: list[object] = []

    async def equal() -> Json:
        found, others = await read(client, "/openapi/v3"), await read(stock, "/openapi/v3")
        # The hash is that of the document: both use the same words.
        left_out = ("tenantry", *INVENTORY)
        shared = {group: path for group, path in others["paths"].items() if not any(each in group for each in left_out)}
        differing[:] = [group for group, path in shared.items() if found["paths"].get(group) != path]
        return {} if differing or len(shared) <= LEAST_GROUPS else found

    found = await until(equal, "both have the same documents", seen=lambda: differing)
    for group, path in found["paths"].items():
        assert (await read(client, path["serverRelativeURL"]))["openapi"] == "3.0.0", group

    async def merged() -> bool:
        whole, expected = [set((await read(each, "/openapi/v2"))["definitions"]) for each in (client, stock)]
        # Of all layers: built-in kinds, and those of the two servers beside.
        expected = {each for each in expected if not each.startswith(INVENTORY_MODELS)}
        differing[:] = sorted(each for each in whole ^ expected if each.startswith("io.k8s."))
        return "com.example.v1.Widget" in whole and not differing

    await until(merged, "the merged document has the custom resource, too", seen=lambda: differing)


async def kubectl(
    tenancy: LocalCluster, place: LocalPlacement, plane: HostedPlane, *arguments: str, given: Json | None = None
) -> str:
    """Return what kubectl prints.

    Args:
        tenancy: The local cluster.
        place: Where the control plane runs.
        plane: The control plane.
        arguments: Of kubectl.
        given: An object for its standard input.
    """
    programs = build.built()
    assert programs is not None
    credentials = place.gate(plane.uid).with_name("operator.kubeconfig")
    process = await asyncio.create_subprocess_exec(
        programs.kubectl,
        *("--kubeconfig", credentials, *arguments),
        env={"HOME": str(tenancy.paths.folder)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(b"" if given is None else msgspec.json.encode(given))
    return output.decode()
