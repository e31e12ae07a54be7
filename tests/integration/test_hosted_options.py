"""Users of an OIDC provider, the audit log, limits and address families of a hosted API server (H02)."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import Forbidden, Invalid, Unauthorized
from tenantry.api.kubernetes import RBAC_GROUP, Namespace
from tenantry.api.model import Resource
from tenantry.hosting.destinations import Destination, Outside, Refused
from tenantry.hosting.dialling import OutsideInputs
from tenantry.hosting.gate import Gate
from tenantry.hosting.resolver import NameResolver
from tenantry.hosting.serveroptions import ServerOptions
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local import hostedfolders
from tenantry.local.cluster import LocalCluster
from tenantry.world.oidc import Oidc, authenticator
from testkit.api import SECONDS, SECRETS, Api, until
from testkit.hosted import running
from testkit.oidc import CLIENT_ID, Provider, provider

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
SERVICES = Resource("", "v1", "services", "Service")
BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)


class Door:
    """The gate of a control plane, which admits the provider of the test if it is open."""

    def __init__(self, path: Path, issuer: str) -> None:
        self.asked: list[tuple[str, int]] = []
        self.is_open = False
        url = urlsplit(issuer)
        self._provider = (url.hostname, url.port)
        inputs = OutsideInputs(
            refusal=lambda _host, _address: "", resolve=NameResolver().addresses, is_own=lambda _: False
        )
        self.gate = Gate(path, self._decide, outside=inputs)

    def _decide(self, host: str, port: int) -> Destination:
        self.asked.append((host, port))
        if self.is_open and (host, port) == self._provider:
            return Outside(host=host, port=port)
        return Refused(reason="it is not allowed")


async def who(connection: Connection, token: str) -> tuple[str, list[str]] | None:
    """Return the user and the groups of a token; None if it is not accepted."""
    async with Client(replace(connection.detached(), certificate=None, key=None, token=token)) as client:
        try:
            found = (await Api(client).create(REVIEWS, {"metadata": {}}))["status"]["userInfo"]
        except Unauthorized:
            return None
        return found["username"], found["groups"]


async def written(client: Client) -> bool:
    """Return whether a Secret and a Namespace were created."""
    value = {"metadata": {"generateName": "s-"}, "stringData": {"k": "confidential"}}
    try:
        await Api(client).create(SECRETS, value, "default")
        await Api(client).create(Namespace.resource, {"metadata": {"generateName": "visible-"}})
    except Forbidden:
        return False
    return True


async def logged(tenancy: LocalCluster, uid: str, text: str) -> str:
    """Return the audit log as far as it is whole if it has a text; "" if it has not."""
    files = await asyncio.to_thread(hostedfolders.audit_files, tenancy.paths, uid)
    found = "".join(file.read_text() for file in files)
    return found if text in found and found.endswith("\n") else ""


def options(issuer: Provider) -> ServerOptions:
    """Return settings with a provider."""
    oidc = Oidc(issuer=issuer.issuer, client_id=CLIENT_ID, ca=issuer.ca.read_text())
    return ServerOptions(
        authenticators=(authenticator(oidc),), audit_level="RequestResponse", max_reads=20, max_writes=10
    )


async def test_users_of_a_provider_log_in_and_are_in_the_audit_log(
    tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """H02: the provider is reached through the gate only; names with rights are refused; Secrets are not logged."""
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(provider(tmp_path))
        place, plane, first = await stack.enter_async_context(running(tenancy, name))
        token = issuer.sign(issuer.claims(groups=["team"]))
        assert await who(first.connection, token) is None
        door = Door(place.gate(plane.uid), issuer.issuer)
        await stack.enter_async_context(door.gate.serve())
        again = await place.start(replace(plane, options=options(issuer)))
        url = urlsplit(issuer.issuer)

        async def has_asked() -> bool:
            return (url.hostname, url.port) in door.asked

        await until(has_asked, "the API server asks the gate for the provider", seconds=SECONDS)
        assert await who(again.connection, token) is None
        door.is_open = True
        found = await until(lambda: who(again.connection, token), "the token is accepted", seconds=SECONDS)
        assert found == ("oidc:ada", ["oidc:team", "system:authenticated"])
        forged = issuer.sign(issuer.claims(groups=["team"], aud="another"))
        assert await who(again.connection, forged) is None
        async with Client(again.connection.detached()) as client:
            subjects = [{"kind": "User", "name": "oidc:ada", "apiGroup": RBAC_GROUP}]
            role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC_GROUP}
            bound = {"metadata": {"name": "ada"}, "subjects": subjects, "roleRef": role}
            await Api(client).create(BINDINGS, bound)
            metrics = (await client.request("GET", "/metrics")).decode()
        (seats,) = re.findall(r'nominal_limit_seats{priority_level="workload-low"} (\d+)', metrics)
        assert int(seats) == math.ceil(30 * 100 / 245)
        as_ada = replace(again.connection.detached(), certificate=None, key=None, token=token)
        async with Client(as_ada) as client:
            await until(partial(written, client), "ada may write")
        # An event is written at the end of its request.
        text = await until(lambda: logged(tenancy, plane.uid, "visible-"), "the audit log has the namespace")
        events: list[Json] = [msgspec.json.decode(line) for line in text.splitlines()]
        assert "oidc:ada" in {each["user"].get("username") for each in events}
        assert "confidential" not in text
        # Without the provider, its users are gone; the process reads the file again by itself.
        later = await place.start(replace(plane, options=replace(options(issuer), authenticators=())))

        async def is_gone() -> bool:
            return await who(later.connection, issuer.sign(issuer.claims())) is None

        await until(is_gone, "no token of the provider is accepted", seconds=2 * SECONDS)


@pytest.mark.parametrize("ranges", ["10.96.0.0/16,fd00:10:96::/108", "fd00:10:96::/108"], ids=["dual-stack", "IPv6"])
async def test_services_have_addresses_of_both_families(tenancy: LocalCluster, name: str, ranges: str) -> None:
    """H02: the primary family is that of the API server's own Service; a family that is missing is refused."""
    async with (
        running(tenancy, name, service_range=ranges) as (_, _, first),
        Client(first.connection) as client,
    ):
        inside = Api(client)

        async def own() -> Json | None:
            return await inside.find(SERVICES, "kubernetes", "default")

        families = [f"IPv{ipaddress.ip_network(each).version}" for each in ranges.split(",")]
        assert (await until(own, "the API server has its own Service"))["spec"]["ipFamilies"] == families[:1]
        spec = {"ports": [{"port": 80}], "ipFamilyPolicy": "PreferDualStack"}
        made = await inside.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec}, "default")
        assert made["spec"]["ipFamilies"] == families
        both = {"metadata": {"name": "both"}, "spec": {**spec, "ipFamilyPolicy": "RequireDualStack"}}
        if len(families) == 1:
            with pytest.raises(Invalid, match="not configured for dual-stack"):
                await inside.create(SERVICES, both, "default")
        else:
            assert len((await inside.create(SERVICES, both, "default"))["spec"]["clusterIPs"]) == len(families)
