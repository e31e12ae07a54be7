"""Being known to a real API server: certificates, tokens, files that change, plugins, other names; and its version."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
import yaml

from tenantry.api.errors import ConfigError, Forbidden, Unauthorized, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.hosting.certificates import LeafCertificate
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.version import require_supported
from tenantry.local import x509
from tenantry.local.cluster import LocalCluster
from testkit.api import SECONDS, SERVICE_ACCOUNTS, Api
from testkit.faults import Fault, FaultyProxy, Rule

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
TOKEN_REQUEST: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}


@pytest.fixture
def server(tenancy: LocalCluster) -> Connection:
    """A kubeconfig with the address of the API server and no user."""
    return kubeconfig.load([tenancy.kubeconfig_path]).anonymous("test")


async def _who(client: Client) -> Json:
    """Ask the API server who we are."""
    answer = await Api(client).create(REVIEWS, {"metadata": {}})
    user: Json = answer["status"]["userInfo"]
    return user


async def _token(api: Api, namespace: str, account: str) -> str:
    request: Json = {"metadata": {"name": account}, "spec": {"expirationSeconds": 600}, **TOKEN_REQUEST}
    answer = await api.create(SERVICE_ACCOUNTS, request, namespace, subresource="token")
    token: str = answer["status"]["token"]
    return token


@pytest_asyncio.fixture
async def accounts(api: Api, name: str) -> AsyncIterator[list[str]]:
    """Tokens of two service accounts, `one` and `two`, in a namespace of their own."""
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    for account in ("one", "two"):
        await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": account}}, name)
    yield [await _token(api, name, account) for account in ("one", "two")]
    await api.delete(Namespace.resource, name)


def _issued(tenancy: LocalCluster, folder: Path, *, days: int) -> tuple[bytes, bytes]:
    """Return a client certificate of the cluster's authority, and its key."""
    for file in ("ca.crt", "ca.key"):
        shutil.copy(tenancy.paths.pki / file, folder / file)
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    x509.write_leaf(folder, "me", LeafCertificate(ca="ca", user="me"), end - dt.timedelta(days=2), end)
    return (folder / "me.crt").read_bytes(), (folder / "me.key").read_bytes()


# -- certificates ---------------------------------------------------------------------------------


async def test_a_certificate_says_who_we_are(server: Connection, tenancy: LocalCluster, tmp_path: Path) -> None:
    certificate, key = _issued(tenancy, tmp_path, days=1)
    async with Client(msgspec.structs.replace(server, certificate=certificate, key=key)) as client:
        assert (await _who(client))["username"] == "me"


async def test_an_expired_certificate_is_named_with_its_date(
    server: Connection, tenancy: LocalCluster, tmp_path: Path
) -> None:
    certificate, key = _issued(tenancy, tmp_path, days=-1)
    async with Client(msgspec.structs.replace(server, certificate=certificate, key=key)) as client:
        with pytest.raises(Unauthorized, match=r"client certificate expired at 20\d\d-.* name another kubeconfig"):
            await client.get(Namespace, "default")


async def test_a_server_of_another_authority_is_not_trusted(server: Connection, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    x509.write_authority(tmp_path, "other", now, now + dt.timedelta(days=1))
    async with Client(msgspec.structs.replace(server, ca=(tmp_path / "other.crt").read_bytes())) as client:
        with pytest.raises(Unreachable, match=r"certificate does not verify.*check certificate-authority"):
            await client.get(Namespace, "default")


@pytest.mark.parametrize(("field", "why"), [("ca", "authority does not parse"), ("key", "does not load")])
async def test_rubbish_instead_of_a_certificate_is_said_before_anything_is_sent(
    server: Connection, tenancy: LocalCluster, tmp_path: Path, field: str, why: str
) -> None:
    certificate, key = _issued(tenancy, tmp_path, days=1)
    fields: dict[str, bytes] = {"certificate": certificate, "key": key, field: b"rubbish"}
    with pytest.raises(ConfigError, match=why):
        async with Client(msgspec.structs.replace(server, **fields)):
            pass


@pytest.mark.parametrize(("tls_name", "trusted"), [("kubernetes.default.svc", True), ("example.com", False)])
async def test_the_servers_certificate_may_be_for_another_name(
    server: Connection,
    accounts: list[str],
    tls_name: str,
    trusted: bool,  # noqa: FBT001 - a table
) -> None:
    """What tls-server-name is for: a tunnel, or an address that is not in the certificate."""
    connection = msgspec.structs.replace(server, tls_server_name=tls_name, token=accounts[0])
    async with Client(connection) as client:
        if trusted:
            assert (await _who(client))["username"].endswith(":one")
        else:
            with pytest.raises(Unreachable, match="certificate"):
                await _who(client)


# -- tokens ---------------------------------------------------------------------------------------


async def test_a_wrong_token_is_refused_with_what_to_do(server: Connection) -> None:
    async with Client(msgspec.structs.replace(server, token="wrong")) as client:
        with pytest.raises(Unauthorized, match="the API server does not know them; get new ones"):
            await client.get(Namespace, "default")


async def test_a_token_file_is_read_again_when_its_token_is_refused(
    server: Connection, accounts: list[str], tmp_path: Path
) -> None:
    """Kubernetes changes a pod's token while it runs."""
    file = tmp_path / "token"
    file.write_text(accounts[0])
    async with Client(msgspec.structs.replace(server, token_file=file)) as client:
        assert (await _who(client))["username"].endswith(":one")
        client.transport.credentials._token = "expired"  # pyright: ignore[reportPrivateUsage] - as time would do
        file.write_text(accounts[1] + "\n")
        with pytest.raises(Unauthorized):
            await _who(client)
        assert (await _who(client))["username"].endswith(":two")


async def test_a_token_file_that_is_away_for_a_moment_leaves_the_last_token_in_use(
    server: Connection, accounts: list[str], tmp_path: Path
) -> None:
    """As client-go does: a file that is being replaced must not end the operator."""
    file = tmp_path / "token"
    file.write_text(accounts[0])
    async with Client(msgspec.structs.replace(server, token_file=file)) as client:
        await _who(client)
        file.unlink()
        client.transport.credentials.expire()  # pyright: ignore[reportPrivateUsage] - as time would do
        assert (await _who(client))["username"].endswith(":one")
        file.write_text(accounts[1])
        client.transport.credentials.expire()  # pyright: ignore[reportPrivateUsage] - the same
        assert (await _who(client))["username"].endswith(":two")


async def test_other_credentials_are_used_for_requests_from_now_on_while_a_watch_goes_on(
    tenancy: LocalCluster, server: Connection, accounts: list[str], api: Api, name: str
) -> None:
    """L01: a node identity changes its certificate; a connection that was opened with the last one is not used."""
    async with Client(kubeconfig.load([tenancy.kubeconfig_path])) as client:
        before = (await _who(client))["username"]
        watch = client.open(
            "GET",
            wire.path(SERVICE_ACCOUNTS, name),
            query={"watch": "true"},
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with watch as events:
            await client.transport.use(msgspec.structs.replace(server, token=accounts[0]))
            assert (await _who(client))["username"] == f"system:serviceaccount:{name}:one" != before
            await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "seen"}}, name)
            async with asyncio.timeout(SECONDS):
                async for line in events.content:
                    if msgspec.json.decode(line)["object"]["metadata"]["name"] == "seen":
                        break
        with pytest.raises(ConfigError):
            await client.transport.use(msgspec.structs.replace(server, certificate=b"none", key=b"none"))
        assert (await _who(client))["username"].endswith(":one"), "those of before stay"


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_token_file_that_never_was_there_is_said_at_once(
    server: Connection, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match="token file"):
        async with Client(msgspec.structs.replace(server, token_file=file)):
            pass


async def test_a_pods_service_account_is_used(
    tenancy: LocalCluster, api: Api, accounts: list[str], name: str, tmp_path: Path
) -> None:
    """E01: what the Deployment relies on."""
    port = str(api.client.connection.server.rpartition(":")[2])
    shutil.copy(tenancy.paths.pki / "ca.crt", tmp_path / "ca.crt")
    (tmp_path / "token").write_text(accounts[0])
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    connection = kubeconfig.in_cluster(environment, tmp_path)
    assert connection is not None
    async with Client(connection) as client:
        assert (await _who(client))["username"] == f"system:serviceaccount:{name}:one"
        with pytest.raises(Forbidden):
            await client.list(Namespace)


# -- exec plugins ---------------------------------------------------------------------------------

PLUGIN = """\
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with (folder / "calls").open("a") as calls:
    calls.write(os.environ["KUBERNETES_EXEC_INFO"] + os.environ["EXTRA"] + "\\n")
print((folder / "answer").read_text())
"""


def _with_plugin(server: Connection, folder: Path, answer: Json | str) -> Connection:
    """Return a connection whose credentials come from a command."""
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "answer").write_text(answer if isinstance(answer, str) else msgspec.json.encode(answer).decode())
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(folder / "plugin.py"), str(folder)],
        "env": [{"name": "EXTRA", "value": "more"}],
        "interactiveMode": "Never",
        "installHint": "install the plugin",
    }
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server.server}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return msgspec.structs.replace(kubeconfig.load([path]), ca=server.ca)


def _credential(**status: str) -> Json:
    return {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}


async def test_a_plugins_token_is_used_until_it_ends(server: Connection, accounts: list[str], tmp_path: Path) -> None:
    """It is asked once, with what Kubernetes says a plugin is told, and again when its token is refused."""
    later = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).isoformat()
    answer = _credential(token=accounts[0], expirationTimestamp=later)
    async with Client(_with_plugin(server, tmp_path, answer)) as client:
        for _ in range(3):
            assert (await _who(client))["username"].endswith(":one")
        calls = (tmp_path / "calls").read_text().splitlines()
        assert len(calls) == 1
        assert '"kind":"ExecCredential"' in calls[0]
        assert calls[0].endswith("more")
        client.transport.credentials.expire()  # pyright: ignore[reportPrivateUsage] - as a refusal does
        (tmp_path / "answer").write_text(msgspec.json.encode(_credential(token=accounts[1])).decode())
        assert (await _who(client))["username"].endswith(":two")


async def test_a_plugins_token_that_ended_is_asked_for_again(
    server: Connection, accounts: list[str], tmp_path: Path
) -> None:
    past = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).isoformat()
    answer = _credential(token=accounts[0], expirationTimestamp=past)
    async with Client(_with_plugin(server, tmp_path, answer)) as client:
        await _who(client)
        await _who(client)
    assert len((tmp_path / "calls").read_text().splitlines()) == 3, "at the start, and for each request"


async def test_a_plugin_that_fails_for_a_while_fails_requests_and_not_the_client(
    server: Connection, accounts: list[str], tmp_path: Path
) -> None:
    """An operator waits for it to work again, as it waits for an API server."""
    async with Client(_with_plugin(server, tmp_path, _credential(token=accounts[0]))) as client:
        await _who(client)
        client.transport.credentials.expire()  # pyright: ignore[reportPrivateUsage] - as a refusal does
        (tmp_path / "answer").write_text("no network")
        with pytest.raises(Unauthorized, match=r"exec plugin .* printed no ExecCredential"):
            await _who(client)
        (tmp_path / "answer").write_text(msgspec.json.encode(_credential(token=accounts[1])).decode())
        assert (await _who(client))["username"].endswith(":two")


async def test_a_plugins_certificate_is_used(server: Connection, tenancy: LocalCluster, tmp_path: Path) -> None:
    certificate, key = _issued(tenancy, tmp_path, days=1)
    answer = _credential(clientCertificateData=certificate.decode(), clientKeyData=key.decode())
    async with Client(_with_plugin(server, tmp_path, answer)) as client:
        assert (await _who(client))["username"] == "me"


BROKEN: list[tuple[str, type[Exception], str]] = [
    ("{}", Unauthorized, "the API server does not know them"),
    ("not json", ConfigError, "printed no ExecCredential"),
    ("", ConfigError, "printed no ExecCredential"),
]


@pytest.mark.parametrize(("answer", "error", "why"), BROKEN)
async def test_a_plugin_that_says_nothing_useful_is_named(
    server: Connection, tmp_path: Path, answer: str, error: type[Exception], why: str
) -> None:
    connection = _with_plugin(server, tmp_path, answer)
    with pytest.raises(error, match=why):
        async with Client(connection) as client:
            await client.get(Namespace, "default")


@pytest.mark.parametrize("command", ["no-such-command-anywhere", "false"])
async def test_a_plugin_that_does_not_run_is_named_with_its_hint(
    server: Connection, tmp_path: Path, command: str
) -> None:
    plugin = _with_plugin(server, tmp_path, {}).exec_plugin
    assert plugin is not None
    broken = msgspec.structs.replace(plugin, command=command, args=None)
    with pytest.raises(ConfigError, match=rf"exec plugin '{command}' .*install the plugin"):
        async with Client(msgspec.structs.replace(server, exec_plugin=broken)):
            pass


# -- other names ----------------------------------------------------------------------------------


async def test_one_acts_as_another_with_their_groups(tenancy: LocalCluster) -> None:
    connection = kubeconfig.load([tenancy.kubeconfig_path])
    as_zoe = msgspec.structs.replace(connection, impersonate="zoe", impersonate_groups=("devs", "ops"))
    async with Client(as_zoe) as client:
        who = await _who(client)
    assert who["username"] == "zoe"
    assert {"devs", "ops"} <= set(who["groups"])
    assert "system:masters" not in who["groups"]


# -- the server -----------------------------------------------------------------------------------


async def test_the_servers_version_is_new_enough(api: Api) -> None:
    assert (await require_supported(api.client)).minor >= (1, 36)


@pytest.mark.parametrize("version", ["v1.33.9", "v1.9.0", "rubbish", ""])
async def test_an_older_server_is_named_with_what_is_needed(
    tenancy: LocalCluster, tmp_path: Path, version: str
) -> None:
    """What was found, what is needed."""
    async with FaultyProxy(tenancy.kubeconfig_path).running() as proxy:
        body = msgspec.json.encode({"gitVersion": version})
        proxy.fail(Rule(fault=Fault.REFUSE, path="/version", status=200, body=body))
        async with Client(kubeconfig.load([proxy.kubeconfig(tmp_path / "config")])) as client:
            with pytest.raises(ConfigError, match=rf"is Kubernetes '{version}'; Tenantry needs 1\.34 or newer"):
                await require_supported(client)


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c"}}
    path.write_text(yaml.safe_dump({"clusters": [cluster], "contexts": [context], "current-context": "x"}))
    async with Client(kubeconfig.load([path])) as client:
        with pytest.raises(
            Unreachable, match=r"the API server https://127\.0\.0\.1:1 of kubeconfig .* cannot be reached"
        ):
            await client.get(Namespace, "default")
