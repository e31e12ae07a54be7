"""People who come by OIDC, from a real provider to a real API server; and those who forge their way in."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import Forbidden, Unauthorized
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.authentication import Oidc
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.components import APISERVER
from testkit.api import CONFIG_MAPS, SECONDS, SECRETS, Api, tenant_json, until
from testkit.installation import install
from testkit.oidc import CLIENT_ID, Provider, new_key, provider, signed_with_public_key, unsigned

Json = dict[str, Any]

REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
PEOPLE: dict[str, Json] = {
    "ada": {"org": "example", "email": "ada@example.com", "email_verified": True},
    "bob": {"org": "example", "email": "bob@example.com", "email_verified": True, "groups": ["team", "others"]},
    "eve": {"org": "example", "email": "eve@example.com", "email_verified": True, "groups": "others"},
}


@pytest_asyncio.fixture(scope="module")
async def idp(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Provider]:
    """The provider, which knows some people."""
    async with provider(tmp_path_factory.mktemp("idp")) as running:
        running.people |= PEOPLE
        yield running


def settings(idp: Provider, **changes: object) -> Oidc:
    """Return the settings of the cluster, by verified addresses and with a claim that is required, but for changes."""
    oidc = Oidc(
        issuer=idp.issuer,
        client_id=CLIENT_ID,
        username_claim="email",
        required_claims={"org": "example"},
        ca=idp.ca.read_text(),
    )
    return msgspec.structs.replace(oidc, **changes)


@pytest_asyncio.fixture(scope="module")
async def local(tenantry_home: Path, idp: Provider) -> AsyncIterator[LocalCluster]:
    """A cluster of its own, whose API server believes the provider."""
    cluster = LocalCluster("oidc", root=tenantry_home)
    await cluster.up(
        UpOptions(throwaway=True, install=install, operator=True, oidc=settings(idp), timeout_seconds=3 * SECONDS)
    )
    await believes(cluster, idp)
    yield cluster
    await cluster.down(purge=True)


@asynccontextmanager
async def bearer(cluster: LocalCluster, token: str) -> AsyncGenerator[Api]:
    """Speak to the API server with nothing but a token."""
    admin = kubeconfig.load([cluster.kubeconfig_path])
    connection = msgspec.structs.replace(admin, certificate=None, key=None, token=token)
    async with Client(connection) as client:
        yield Api(client)


async def who(cluster: LocalCluster, token: str) -> tuple[str, list[str]]:
    """Return the user and the groups that the API server sees in a token.

    Raises:
        Unauthorized: It believes nothing of it.
    """
    async with bearer(cluster, token) as api:
        review = await api.create(REVIEWS, {"metadata": {}})
    user: Json = review["status"]["userInfo"]
    return user["username"], sorted(user.get("groups", []))


async def believes(cluster: LocalCluster, idp: Provider) -> None:
    """Wait until the API server, which asks for the provider's keys in the background, has them."""

    async def so() -> bool:
        try:
            await who(cluster, idp.sign(honest(idp)))
        except Unauthorized:
            return False
        return True

    await until(so, "the API server believes the provider")


async def change(cluster: LocalCluster, oidc: Oidc, idp: Provider) -> None:
    """Give the running cluster other settings."""
    await cluster.up(UpOptions(throwaway=True, operator=True, oidc=oidc))
    await believes(cluster, idp)


def honest(idp: Provider, **claims: object) -> Json:
    return idp.claims(**{"org": "example", **claims})


# -- attacks --------------------------------------------------------------------------------------

Forge = Callable[[Provider], str]


def now() -> int:
    return int(time.time())


def other_payload(idp: Provider) -> str:
    head, _, signature = idp.sign(honest(idp)).split(".")
    _, payload, _ = idp.sign(honest(idp, email="root@example.com")).split(".")
    return f"{head}.{payload}.{signature}"


def key_in_the_header(idp: Provider) -> str:
    own = new_key("own")
    return idp.sign(honest(idp), key=own, header={"jwk": own.as_dict(private=False)})


FORGERIES: dict[str, Forge] = {
    "expired": lambda idp: idp.sign(honest(idp, exp=now() - 1)),
    "never ends": lambda idp: idp.sign(honest(idp, exp=None)),
    "not yet": lambda idp: idp.sign(honest(idp, nbf=now() + 3600)),
    "for another client": lambda idp: idp.sign(honest(idp, aud="another")),
    "without an audience": lambda idp: idp.sign(honest(idp, aud=None)),
    "for the API server itself": lambda idp: idp.sign(honest(idp, aud="https://kubernetes.default.svc")),
    "of another issuer": lambda idp: idp.sign(honest(idp, iss="https://issuer.example.com")),
    "of nearly this issuer": lambda idp: idp.sign(honest(idp, iss=f"{idp.issuer}/")),
    "of the cluster's issuer": lambda idp: idp.sign(honest(idp, iss="https://kubernetes.default.svc")),
    "signed with a key of its own": lambda idp: idp.sign(honest(idp), key=new_key("own")),
    "signed with a key of the same id": lambda idp: idp.sign(honest(idp), key=new_key(idp.key.kid or "")),
    "key in the header": key_in_the_header,
    "not signed": lambda idp: unsigned(honest(idp)),
    "signed with the public key": lambda idp: signed_with_public_key(honest(idp), idp.key),
    "another's signature": other_payload,
    "address not verified": lambda idp: idp.sign(honest(idp, email_verified=False)),
    "address perhaps verified": lambda idp: idp.sign(honest(idp, email_verified=None)),
    "address said to be verified": lambda idp: idp.sign(honest(idp, email_verified="true")),
    "no address": lambda idp: idp.sign(honest(idp, email=None)),
    "empty address": lambda idp: idp.sign(honest(idp, email="")),
    "an address that is a list": lambda idp: idp.sign(honest(idp, email=["ada@example.com"])),
    "of another organisation": lambda idp: idp.sign(honest(idp, org="other")),
    "of no organisation": lambda idp: idp.sign(honest(idp, org=None)),
    "groups that are a number": lambda idp: idp.sign(honest(idp, groups=0)),
    "a file": lambda _: "ada@example.com",
    "nothing in it": lambda _: "..",
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
async def test_an_invalid_token_is_refused(local: LocalCluster, idp: Provider, forge: Forge) -> None:
    """E17: an honest token is believed at the same moment, so it is this one that is refused."""
    assert (await who(local, idp.sign(honest(idp))))[0] == "oidc:ada@example.com"
    with pytest.raises(Unauthorized):
        await who(local, forge(idp))


async def test_a_key_that_was_replaced_signs_nothing_any_more(local: LocalCluster, idp: Provider) -> None:
    """E17: the new one is believed at once, and the old one no more from then on."""
    old = idp.rotate()
    with_old = idp.sign(honest(idp), key=old)
    assert (await who(local, idp.sign(honest(idp))))[0] == "oidc:ada@example.com"
    with pytest.raises(Unauthorized):
        await who(local, with_old)


async def test_groups_that_mean_something_to_kubernetes_mean_nothing_with_a_prefix(
    local: LocalCluster, idp: Provider
) -> None:
    """E17: the provider cannot make an administrator."""
    token = idp.sign(honest(idp, groups=["system:masters", "tenantry:operators"]))
    assert await who(local, token) == (
        "oidc:ada@example.com",
        ["oidc:system:masters", "oidc:tenantry:operators", "system:authenticated"],
    )
    async with bearer(local, token) as ada:
        with pytest.raises(Forbidden):
            await ada.list(SECRETS, "kube-system")


@pytest.mark.long
async def test_reserved_names_without_a_prefix_are_refused(local: LocalCluster, idp: Provider) -> None:
    """E17: neither as a user nor among the groups, whichever way they come to begin so; the others come as they are."""
    await change(local, settings(idp, username_prefix="", groups_prefix=""), idp)
    try:
        for claims in (
            {"email": "system:admin"},
            {"email": "tenantry:operator"},
            {"email": "system:serviceaccount:kube-system:namespace-controller"},
            {"groups": ["team", "system:masters"]},
            {"groups": "system:masters"},
            {"groups": ["tenantry:operators"]},
        ):
            with pytest.raises(Unauthorized):
                await who(local, idp.sign(honest(idp, **claims)))
        found = await who(local, idp.sign(honest(idp, groups=["team", "subsystem:x"])))
        assert found == ("ada@example.com", ["subsystem:x", "system:authenticated", "team"])
        await change(local, settings(idp, groups_prefix="system"), idp)
        with pytest.raises(Unauthorized):
            await who(local, idp.sign(honest(idp, groups=[":masters"])))
    finally:
        await change(local, settings(idp), idp)


# -- people ---------------------------------------------------------------------------------------


async def test_users_and_groups_of_the_provider_own_tenants(local: LocalCluster, idp: Provider) -> None:
    """E17, E01: by name and by group, with tokens of real logins: inside what is theirs, and nowhere else."""
    ada, bob, eve = [await idp.login(person) for person in PEOPLE]
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        admin = Api(client)
        await admin.make_tenant("adas", owners=[{"kind": "User", "name": "oidc:ada@example.com"}])
        await admin.make_tenant("teams", owners=[{"kind": "Group", "name": "oidc:team"}])
    for token, own, other in ((ada, "adas", "teams"), (bob, "teams", "adas")):
        async with bearer(local, token) as person:
            await person.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, own)
            await person.get(Namespace.resource, own)
            for attempt in (
                person.list(CONFIG_MAPS, other),
                person.get(Namespace.resource, other),
                person.create(CONFIG_MAPS, {"metadata": {"name": "theirs"}}, other),
                person.list(SECRETS, "kube-system"),
                person.list(Namespace.resource),
                person.create(Tenant.resource, tenant_json("another")),
            ):
                with pytest.raises(Forbidden):
                    await attempt
    assert (await who(local, eve))[1] == ["oidc:others", "system:authenticated"]
    async with bearer(local, eve) as stranger:
        for tenant in ("adas", "teams"):
            with pytest.raises(Forbidden):
                await stranger.list(CONFIG_MAPS, tenant)


async def test_kubectl_and_tenantry_log_in_as_the_printed_kubeconfig_says(
    local: LocalCluster, idp: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E17: by kubectl's plugin oidc-login, whose place a script takes that has a token of a real login."""
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    token = await idp.login("ada")
    (tmp_path / "credential").write_bytes(msgspec.json.encode({**credential, "status": {"token": token}}))
    login = tmp_path / "kubectl-oidc_login"
    login.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\ncat "{tmp_path}/credential"\n')
    login.chmod(0o700)
    (tmp_path / "kubectl").symlink_to(Path(local.spec().binaries) / "kubectl")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "people.kubeconfig"
    file.write_text((await tenantry("oidc", "kubeconfig", "--cluster", local.name, "--scope", "groups"))[0])
    assert "certificate-data" not in file.read_text()
    said = await asyncio.to_thread(local.kubectl, "--kubeconfig", str(file), "auth", "whoami", "-o", "json")
    assert said.returncode == 0, said.stderr
    assert msgspec.json.decode(said.stdout)["status"]["userInfo"]["username"] == "oidc:ada@example.com"
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"get-token --oidc-issuer-url={idp.issuer} --oidc-client-id={CLIENT_ID} ")
    assert "--oidc-extra-scope=email --oidc-extra-scope=groups --certificate-authority-data=" in asked
    async with Client(kubeconfig.load([file])) as client:
        with pytest.raises(Forbidden, match=r"oidc:ada@example\.com"):
            await Api(client).list(SECRETS, "kube-system")


# -- the settings of a cluster --------------------------------------------------------------------


async def tenantry(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Run the command, and return what it prints on stdout and stderr."""
    command = [sys.executable, "-m", "tenantry", *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    assert process.returncode == code, err.decode()
    return out.decode(), err.decode()


async def up(local: LocalCluster, *flags: str) -> str:
    """Run `tenantry up` on the cluster, and return what it says."""
    return (await tenantry("up", "--cluster", local.name, "--throwaway", *flags))[1]


def flags(idp: Provider, *more: str) -> tuple[str, ...]:
    return ("--oidc-issuer", idp.issuer, "--oidc-client-id", CLIENT_ID, "--oidc-ca", str(idp.ca), *more)


def process_of_api_server(local: LocalCluster) -> int:
    component = local.status().component(APISERVER)
    assert component is not None
    return component.pid


@pytest_asyncio.fixture
async def restored(local: LocalCluster, idp: Provider) -> AsyncIterator[LocalCluster]:
    """The cluster; it has its settings again afterwards."""
    yield local
    await change(local, settings(idp), idp)


@pytest.mark.long
async def test_a_cluster_keeps_its_provider_until_it_is_given_another(restored: LocalCluster, idp: Provider) -> None:
    """E17: over another `up`, which restarts nothing, and over a stop."""
    before = process_of_api_server(restored)
    assert "warning" not in await up(restored)
    assert process_of_api_server(restored) == before
    assert (await who(restored, idp.sign(honest(idp))))[0] == "oidc:ada@example.com"
    await restored.down()
    await up(restored)
    await believes(restored, idp)
    await up(restored, *flags(idp, "--oidc-groups-claim", 'https://example.com/"roles"', "--oidc-groups-prefix", "g:"))
    await believes(restored, idp)
    token = idp.sign(idp.claims(**{'https://example.com/"roles"': ["one"], "groups": ["two"]}))
    assert await who(restored, token) == ("oidc:ada", ["g:one", "system:authenticated"])
    await up(restored, *flags(idp, "--oidc-username-claim", 'https://example.com/\\"name'))
    token = idp.sign(idp.claims(**{'https://example.com/\\"name': "Ada"}))

    async def named() -> bool:
        try:
            return (await who(restored, token))[0] == "oidc:Ada"
        except Unauthorized:
            return False

    await until(named, "the name comes from the claim")


@pytest.mark.long
async def test_a_silent_provider_gives_a_warning_and_the_old_one_is_refused(
    restored: LocalCluster, idp: Provider, tmp_path: Path
) -> None:
    """E17: the cluster runs, and what the one before says counts no more from the end of `up` on."""
    async with provider(tmp_path) as other:
        gone = flags(other)
    said = await up(restored, *gone)
    assert "warning: no user can log in by OIDC yet" in said
    assert "cannot be reached" in said
    assert idp.issuer not in restored.paths.authentication.read_text()
    for token in (idp.sign(honest(idp)), other.sign(honest(other))):
        with pytest.raises(Unauthorized):
            await who(restored, token)


@pytest.mark.long
async def test_without_a_provider_no_token_of_one_is_believed(restored: LocalCluster, idp: Provider) -> None:
    """E17: from the end of `up` on."""
    await up(restored, "--no-oidc")
    assert restored.spec().oidc is None
    assert idp.issuer not in restored.paths.authentication.read_text()
    with pytest.raises(Unauthorized):
        await who(restored, idp.sign(honest(idp)))
    said = (await tenantry("oidc", "kubeconfig", "--cluster", restored.name, code=2))[1]
    assert "has no OIDC provider" in said


async def test_settings_that_no_api_server_starts_with_change_nothing(local: LocalCluster, idp: Provider) -> None:
    """E17: neither the process nor what it believes."""
    before = process_of_api_server(local)
    refused = ("up", "--cluster", local.name, "--throwaway", "--oidc-client-id", CLIENT_ID, "--oidc-issuer")
    said = (await tenantry(*refused, "http://login.example.com", code=2))[1]
    assert "tenantry: --oidc-issuer 'http://login.example.com' must begin with https://" in said
    assert process_of_api_server(local) == before
    assert (await who(local, idp.sign(honest(idp))))[0] == "oidc:ada@example.com"
