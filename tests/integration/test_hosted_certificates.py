"""Certificates of a hosted control plane are renewed while it runs, and credentials are replaced (H02)."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import shutil
import ssl
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import Forbidden, TenantryError, Unauthorized
from tenantry.api.planecredentials import RotationPhase
from tenantry.cli import certificates
from tenantry.hosting import activity
from tenantry.hosting.placement import RunningPlane
from tenantry.hosting.plane import CredentialGenerations, HostedPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.watch import watch
from tenantry.local import build, hostedpki
from tenantry.local.cluster import LocalCluster
from tenantry.local.hosted import LocalPlacement
from tenantry.local.progress import SilentProgress
from tenantry.local.state import read_state
from testkit.api import CONFIG_MAPS, SECONDS, Api, until

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
PATH = "/api/v1/namespaces/default/configmaps"


def ago(**given: float) -> Callable[[], dt.datetime]:
    """Return a clock that is slow."""
    return lambda: dt.datetime.now(dt.UTC) - dt.timedelta(**given)


@asynccontextmanager
async def made(tenancy: LocalCluster, name: str) -> AsyncGenerator[HostedPlane]:
    """A control plane that has not been started."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    plane = HostedPlane(uid=str(uuid.uuid4()), name=name, issuer=f"https://{name}.example", owner=f"owner:{name}")
    try:
        yield plane
    finally:
        await LocalPlacement(tenancy.paths).remove(plane.uid)


def process(tenancy: LocalCluster, plane: HostedPlane) -> int:
    """Return the pid of its process."""
    state = read_state(tenancy.paths)
    found = state.component(f"hosted@{plane.name}") if state is not None else None
    assert found is not None
    return found.pid


async def served(running: RunningPlane) -> str:
    """Return the certificate with which its API server answers."""
    port = int(running.server.rpartition(":")[2])
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def is_known(connection: Connection) -> bool:
    """Return whether the API server knows a client, with or without rights."""
    async with Client(connection.detached()) as client:
        try:
            await client.request("GET", PATH)
        except Unauthorized:
            return False
        except Forbidden:
            return True
        return True


def users(running: RunningPlane, folder: Path) -> Connection:
    """Return how its users reach it."""
    file = folder / f"{uuid.uuid4()}.kubeconfig"
    file.write_text(running.kubeconfig)
    return kubeconfig.load([file])


async def watched(connection: Connection, is_open: asyncio.Event) -> None:
    """Watch until the API server ends it."""
    async with Client(connection.detached()) as client:
        # The API server answers with what exists.
        with suppress(TenantryError, OSError):
            async for _ in watch(client, CONFIG_MAPS, resource_version=""):
                is_open.set()


async def test_certificates_are_renewed_without_losing_clients(tenancy: LocalCluster, name: str) -> None:
    """H02: at two thirds of their life while it runs, and after a sleep longer than their life."""
    async with made(tenancy, name) as plane:
        first = await LocalPlacement(tenancy.paths, now=ago(days=275)).start(plane)
        assert first.renewal is not None
        assert first.renewal < dt.datetime.now(dt.UTC)
        old, pid = await served(first), process(tenancy, plane)
        async with Client(first.connection.detached()) as client:
            await Api(client).create(CONFIG_MAPS, {"metadata": {"name": "one"}}, "default")
            place = LocalPlacement(tenancy.paths)
            again = await place.start(plane)
            assert again.renewal is not None
            assert again.renewal > dt.datetime.now(dt.UTC) + dt.timedelta(days=240)
            assert again.kubeconfig != first.kubeconfig

            async def is_new() -> bool:
                return await served(again) != old

            await until(is_new, "the API server answers with the new certificate")
            assert process(tenancy, plane) == pid
            # Over the connection that was open, with the certificate from before.
            await Api(client).create(CONFIG_MAPS, {"metadata": {"name": "two"}}, "default")
        await place.stop(plane.uid)
        folder = tenancy.paths.folder / "hosted" / plane.uid / "pki"
        shutil.rmtree(folder)
        hostedpki.issue(folder, plane, ago(days=400)())
        later = await place.start(plane)
        async with Client(later.connection) as client:
            assert {"one", "two"} <= {
                each["metadata"]["name"] for each in await Api(client).list(CONFIG_MAPS, "default")
            }


async def token_of(client: Client) -> str:
    """Return a token of a ServiceAccount."""
    await Api(client).default_account("default")
    asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    made = msgspec.json.decode(await client.request("POST", path, body=msgspec.json.encode(asked)))
    return str(made["status"]["token"])


@pytest.mark.long
async def test_replaced_credentials_are_worth_nothing_and_pods_keep_theirs(
    tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """H02: kubeconfigs, certificates that were requested inside, and open watches end; tokens after an overlap."""
    async with made(tenancy, name) as plane:
        before = LocalPlacement(tenancy.paths, now=ago(hours=26))
        first = await before.start(plane)
        user = users(first, tmp_path)
        async with Client(first.connection.detached()) as client:
            token = await token_of(client)
            issued = await certificates.issue(client, "", "mallory", seconds=3600)
        pod = replace(first.connection.detached(), certificate=None, key=None, token=token)
        requested = replace(user.detached(), certificate=issued.certificate, key=issued.key)
        for each in (user, pod, requested):
            assert await is_known(each)
        is_open = asyncio.Event()
        watching = asyncio.create_task(watched(first.connection, is_open))
        await is_open.wait()
        second = await before.start(replace(plane, credentials=CredentialGenerations(users=1)))
        async with asyncio.timeout(SECONDS):
            await watching
        # The authority of the API server is the same one.
        assert [await is_known(each) for each in (user, requested, pod)] == [False, False, True]
        assert await is_known(users(second, tmp_path))
        whole = replace(plane, credentials=CredentialGenerations(users=2, authorities=1))
        third = await before.start(whole)
        # The pod trusts the authority from before; the operator's certificate was of it.
        assert [await is_known(each) for each in (users(second, tmp_path), pod)] == [False, True]
        assert await is_known(users(third, tmp_path))
        with pytest.raises(Unauthorized):
            async with Client(first.connection.detached()) as client:
                await client.request("GET", PATH)
        async with Client(third.connection.detached()) as client:
            following = replace(pod, ca=third.connection.ca, token=await token_of(client))
            about = msgspec.json.decode(await client.request("GET", "/.well-known/openid-configuration"))
            assert about["jwks_uri"] == f"{plane.issuer}/openid/v1/jwks"
        assert third.renewal is not None
        assert third.renewal < dt.datetime.now(dt.UTC)
        last = await LocalPlacement(tenancy.paths).start(whole)
        assert [await is_known(replace(pod, ca=last.connection.ca)), await is_known(following)] == [False, True]
        with pytest.raises((TenantryError, OSError)):
            await is_known(pod)
        assert last.renewal is not None
        assert last.renewal > dt.datetime.now(dt.UTC) + dt.timedelta(days=200)
        text = base64.b64encode((tenancy.paths.folder / "hosted" / plane.uid / "pki" / "ca.crt").read_bytes()).decode()
        assert text in last.kubeconfig


@pytest.mark.long
async def test_credentials_of_before_are_known_in_every_phase_but_the_last(
    tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """H04: kubeconfigs, certificates that were requested inside, and tokens; a pod trusts the server all the time."""
    async with made(tenancy, name) as plane:
        place = LocalPlacement(tenancy.paths)
        first = await place.start(plane)
        user = users(first, tmp_path).detached()
        async with Client(first.connection.detached()) as client:
            token = await token_of(client)
            issued = await certificates.issue(client, "", "mallory", seconds=3600)
        pod = replace(first.connection.detached(), certificate=None, key=None, token=token)
        requested = replace(user, certificate=issued.certificate, key=issued.key)
        former = (user, requested, pod)
        for users_, authorities, phase in (
            (0, 0, RotationPhase.PREPARING),
            (1, 1, RotationPhase.ISSUING),
        ):
            wanted = CredentialGenerations(users=users_, authorities=authorities, phase=phase)
            running = await place.start(replace(plane, credentials=wanted))
            assert [await is_known(each) for each in former] == [True, True, True]
            present = users(running, tmp_path).detached()
            assert await is_known(present)
        # Those without any right are not listed.
        async with Client(first.connection.detached()) as client:
            await client.request("GET", PATH)
        reported = await activity.ask(place.activity(plane.uid)[0], None)
        assert [each.user for each in reported.former_clients] == ["tenantry:operator"]
        async with Client(running.connection.detached()) as client:
            following = replace(pod, ca=running.connection.ca, token=await token_of(client))
        await place.start(replace(plane, credentials=CredentialGenerations(users=1, authorities=1)))
        assert [await is_known(each) for each in (*former, present, following)] == [False, False, True, True, True]
