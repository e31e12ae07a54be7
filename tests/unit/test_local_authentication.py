"""The API server's configuration of an OIDC provider, and settings that are refused."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import InputError
from tenantry.cli.local import up
from tenantry.cli.oidc import config, plugin
from tenantry.local import authentication, issuer, x509
from tenantry.local.authentication import Oidc, check
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import ClusterSpec, Ports, read_spec, write_spec
from testkit.api import SECONDS
from testkit.oidc import Provider, provider

Json = dict[str, Any]

OIDC = Oidc(issuer="https://login.example.com", client_id="kubernetes")
ISSUER = ("--oidc-issuer", OIDC.issuer)
BOTH = (*ISSUER, "--oidc-client-id", OIDC.client_id)


def changed(**changes: object) -> Oidc:
    return msgspec.structs.replace(OIDC, **changes)


def printed(*arguments: str) -> Json:
    done = CliRunner().invoke(config, [*arguments, "-o", "json"], catch_exceptions=False)
    return msgspec.json.decode(done.stdout)


def test_a_cluster_without_a_provider_believes_no_tokens_but_its_own() -> None:
    """E17: and the anonymous may ask whether it is well, with a provider or without."""
    alone, together = (yaml.safe_load(authentication.text(oidc)) for oidc in (None, OIDC))
    assert "jwt" not in alone
    assert alone["anonymous"]["conditions"] == [{"path": path} for path in ("/livez", "/readyz", "/healthz")]
    assert together == {**alone, "jwt": [authentication.authenticator(OIDC)]}


def test_what_is_printed_for_other_clusters_is_what_a_local_one_has() -> None:
    """E17: but for the anonymous, whom kubeadm needs for joining."""
    found = printed(*BOTH, "--oidc-username-claim", "email", "--oidc-required-claim", "hd=example.com")
    expected = changed(username_claim="email", required_claims={"hd": "example.com"})
    assert found == authentication.configuration(expected)
    assert found.keys() == {"apiVersion", "kind", "jwt"}
    assert found["jwt"] == yaml.safe_load(authentication.text(expected))["jwt"]


def test_flags_say_everything() -> None:
    found = printed(
        *(*BOTH, "--oidc-username-claim", "email", "--oidc-username-prefix", "a:", "--oidc-groups-claim", "roles"),
        *("--oidc-groups-prefix", "", "--oidc-required-claim", "x=1", "--oidc-required-claim", "a=b=c"),
    )["jwt"][0]
    assert found["issuer"] == {"url": "https://login.example.com", "audiences": ["kubernetes"]}
    assert found["claimMappings"] == {
        "username": {"claim": "email", "prefix": "a:"},
        "groups": {"claim": "roles", "prefix": ""},
    }
    assert found["claimValidationRules"][:2] == [
        {"claim": "a", "requiredValue": "b=c"},
        {"claim": "x", "requiredValue": "1"},
    ]


def test_only_an_address_has_to_be_verified() -> None:
    """E17: sub is the provider's own."""
    expressions = {
        claim: [rule.get("expression") for rule in authentication.authenticator(oidc)["claimValidationRules"]]
        for claim, oidc in (("sub", OIDC), ("email", changed(username_claim="email")))
    }
    assert not any("email_verified" in each for each in expressions["sub"])
    assert any("email_verified" in each for each in expressions["email"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"issuer": "http://login.example.com"}, "must begin with https://"),
        ({"issuer": "login.example.com"}, "must begin with https://"),
        ({"issuer": ""}, "must begin with https://"),
        ({"issuer": "https://"}, "must be a URL"),
        ({"issuer": "https://login.example.com:port"}, "must be a URL"),
        ({"issuer": "https://login.example.com:70000"}, "must be a URL"),
        ({"issuer": "https://[::1"}, "must be a URL"),
        ({"issuer": "https://login example.com"}, "must be a URL"),
        ({"issuer": "https://login.example.com/\n"}, "must be a URL"),
        ({"issuer": "https://me:secret@login.example.com"}, "no user, query or fragment"),
        ({"issuer": "https://login.example.com?a=b"}, "no user, query or fragment"),
        ({"issuer": "https://login.example.com/?"}, "no user, query or fragment"),
        ({"issuer": "https://login.example.com#a"}, "no user, query or fragment"),
        ({"issuer": "https://kubernetes.default.svc"}, "own service accounts"),
        ({"client_id": ""}, "--oidc-client-id"),
        ({"client_id": "a b"}, "--oidc-client-id"),
        ({"username_claim": ""}, "--oidc-username-claim"),
        ({"username_claim": "e mail"}, "--oidc-username-claim"),
        ({"groups_claim": ""}, "--oidc-groups-claim"),
        ({"groups_claim": "gr\u00fcppchen"}, "--oidc-groups-claim"),
        ({"username_prefix": "system:"}, "--oidc-username-prefix"),
        ({"username_prefix": "tenantry:people:"}, "--oidc-username-prefix"),
        ({"groups_prefix": "system:x"}, "--oidc-groups-prefix"),
        ({"groups_prefix": "a\x1b"}, "--oidc-groups-prefix"),
        ({"required_claims": {"": "a"}}, "--oidc-required-claim"),
        ({"required_claims": {"a": ""}}, "--oidc-required-claim"),
        ({"ca": "no certificate"}, "--oidc-ca"),
        ({"ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, "--oidc-ca"),
        ({"ca": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}, "no private key"),
    ],
)
def test_what_no_api_server_would_start_with_or_should_is_refused(changes: Json, told: str) -> None:
    """E17: before anything is written."""
    with pytest.raises(InputError, match=told):
        check(changed(**changes))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (ISSUER, "--oidc-issuer needs --oidc-client-id"),
        (("--oidc-client-id", "a"), "--oidc-client-id needs --oidc-issuer"),
        (("--oidc-groups-claim", "a"), "--oidc-groups-claim needs --oidc-issuer and --oidc-client-id"),
        (("--oidc-required-claim", "a=b"), "--oidc-required-claim needs --oidc-issuer and --oidc-client-id"),
        ((*BOTH, "--oidc-required-claim", "a"), "must be KEY=VALUE"),
        ((*BOTH, "--oidc-required-claim", "a=b", "--oidc-required-claim", "a=c"), "twice"),
        ((*BOTH, "--oidc-required-claim", "a="), "neither of them empty"),
        ((*BOTH, "--oidc-username-claim", ""), "--oidc-username-claim '' must be"),
        ((*BOTH, "--no-oidc"), "--no-oidc may not be given"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(arguments: tuple[str, ...], told: str) -> None:
    """E17: nothing is started, nor changed."""
    with pytest.raises(InputError, match=told):
        CliRunner().invoke(up.up, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"hello"])
def test_a_file_that_holds_no_authority_is_refused(tmp_path: Path, content: bytes) -> None:
    """E17: with the flag's name."""
    file = tmp_path / "ca.crt"
    file.write_bytes(content)
    with pytest.raises(InputError, match="--oidc-ca"):
        CliRunner().invoke(up.up, [*BOTH, "--oidc-ca", str(file)], catch_exceptions=False)


def test_an_authority_is_kept_by_content(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    x509.write_authority(tmp_path, "ca", now, now + dt.timedelta(days=1))
    pem = (tmp_path / "ca.crt").read_text()
    assert printed(*BOTH, "--oidc-ca", str(tmp_path / "ca.crt"))["jwt"][0]["issuer"]["certificateAuthority"] == pem


def test_what_is_unwise_is_said() -> None:
    """E17: prefixes keep the provider from naming those who have rights; some claims any user may set."""
    assert authentication.warnings(OIDC) == []
    unwise = changed(username_prefix="", groups_prefix="", username_claim="preferred_username")
    assert len(authentication.warnings(unwise)) == 3


def test_a_cluster_keeps_its_provider(tmp_path: Path) -> None:
    """E17: and one that was made before there were providers has none."""
    paths = ClusterPaths(tmp_path)
    ports = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5, kwok=6, operator=7)
    spec = ClusterSpec(name="a", ports=ports, binaries="/b", oidc=changed(required_claims={"a": "b"}))
    write_spec(paths, spec)
    assert read_spec(paths) == spec
    old: Json = msgspec.json.decode(paths.spec.read_bytes())
    del old["oidc"]
    paths.spec.write_bytes(msgspec.json.encode(old))
    assert read_spec(paths) == msgspec.structs.replace(spec, oidc=None)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20))
def test_no_name_of_a_claim_escapes_from_its_rule(claim: str) -> None:
    """E17: a quote or a backslash in it stays inside the string."""
    first = authentication.authenticator(check(changed(username_claim=claim)))["claimValidationRules"][0]["expression"]
    quoted = first.removeprefix("claims[").removesuffix('] != ""')
    assert msgspec.json.decode(quoted) == claim


def test_kubelogin_is_asked_for_what_names_need() -> None:
    arguments = plugin(changed(username_claim="email", ca="PEM"), ("groups", "email"))["args"]
    assert arguments == [
        "oidc-login",
        "get-token",
        "--oidc-issuer-url=https://login.example.com",
        "--oidc-client-id=kubernetes",
        "--oidc-extra-scope=email",
        "--oidc-extra-scope=groups",
        "--certificate-authority-data=UEVN",
    ]


# -- asking the provider --------------------------------------------------------------------------


def settings(idp: Provider, **changes: object) -> Oidc:
    return changed(issuer=idp.issuer, ca=idp.ca.read_text(), **changes)


async def test_a_provider_that_answers_is_no_trouble(tmp_path: Path) -> None:
    async with provider(tmp_path) as idp:
        assert await issuer.trouble(settings(idp), SECONDS) == ""


async def test_what_keeps_a_provider_from_being_believed_is_told(tmp_path: Path) -> None:
    """E17: an authority of another, a name that it does not give itself, a page that is not there."""
    now = dt.datetime.now(dt.UTC)
    x509.write_authority(tmp_path, "other", now, now + dt.timedelta(days=1))
    async with provider(tmp_path) as idp:
        oidc = settings(idp)
        other = (tmp_path / "other.crt").read_text()
        for changes, told in (
            ({"ca": other}, "not trusted"),
            ({"issuer": f"{idp.issuer}/"}, "must be exactly that"),
            ({"issuer": f"{idp.issuer}/realm"}, "the status 404"),
        ):
            assert told in await issuer.trouble(msgspec.structs.replace(oidc, **changes), SECONDS)
    assert "cannot be reached" in await issuer.trouble(oidc, SECONDS)


async def test_a_provider_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        oidc = changed(issuer=f"https://127.0.0.1:{silent.getsockname()[1]}")
        async with asyncio.timeout(SECONDS):
            assert "does not answer in" in await issuer.trouble(oidc, timeout_seconds=0.2)
