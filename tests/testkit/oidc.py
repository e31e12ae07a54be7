"""An OIDC provider on loopback: discovery, keys, logins by authorization code with PKCE, and forged tokens.

Source: OpenID Connect Core 1.0; OpenID Connect Discovery 1.0; RFC 7636 (PKCE). Signatures are joserfc's.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import secrets
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey
from yarl import URL

from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.local import x509

Json = dict[str, Any]

CLIENT_ID = "tenantry-tests"
REDIRECT = "http://localhost:8000"
SECONDS = 300
"""The lifetime of a token."""


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def new_key(kid: str) -> RSAKey:
    """Return a signing key that calls itself so."""
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})


class Provider:
    """One that runs.

    Args:
        issuer: Its URL.
        ca: The file of the authority that vouches for it, PEM.
    """

    def __init__(self, issuer: str, ca: Path) -> None:
        self.issuer = issuer
        self.ca = ca
        self.people: dict[str, Json] = {}
        self.key = new_key("first")
        self._codes: dict[str, dict[str, str]] = {}

    def claims(self, **claims: object) -> Json:
        """Return what an honest token says, but for what is given; None leaves a claim out."""
        now = int(time.time())
        honest: Json = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + SECONDS, "sub": "ada"}
        # No two tokens are the same: the API server remembers for some seconds which ones were good.
        honest |= {"email": "ada@example.com", "email_verified": True, "jti": secrets.token_hex(8)}
        return {name: value for name, value in (honest | claims).items() if value is not None}

    def sign(self, claims: Json, *, key: RSAKey | None = None, header: Mapping[str, object] | None = None) -> str:
        """Return a signed token."""
        used = key or self.key
        return jwt.encode({"alg": "RS256", "kid": used.kid, **(header or {})}, claims, used)

    def rotate(self) -> RSAKey:
        """Sign with another key from now on and publish only that; the old one is returned."""
        old, self.key = self.key, new_key(secrets.token_hex(4))
        return old

    async def login(self, person: str) -> str:
        """Log in as `kubectl oidc-login` does, as a user of the provider, and return the ID token."""
        verifier, state, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        asked = {
            "response_type": "code",
            "scope": "openid email groups",
            "client_id": CLIENT_ID,
            "redirect_uri": REDIRECT,
            "state": state,
            "nonce": nonce,
            "login_hint": person,
            "code_challenge": _b64(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        trust = ssl.create_default_context(cafile=self.ca)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
            async with session.get(f"{self.issuer}/.well-known/openid-configuration") as answer:
                found = await answer.json()
            async with session.get(
                URL(found["authorization_endpoint"]).with_query(asked), allow_redirects=False
            ) as answer:
                given = parse_qs(urlsplit(answer.headers["Location"]).query)
            if given["state"] != [state]:
                raise AssertionError("the provider answers another question")
            form = {"grant_type": "authorization_code", "client_id": CLIENT_ID, "redirect_uri": REDIRECT}
            form |= {"code": given["code"][0], "code_verifier": verifier}
            async with session.post(found["token_endpoint"], data=form) as answer:
                answer.raise_for_status()
                return (await answer.json())["id_token"]

    # -- what it answers --------------------------------------------------------------------------

    async def discovery(self, _: web.Request) -> web.Response:
        """Serve the discovery document."""
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def keys(self, _: web.Request) -> web.Response:
        """Serve the public half of the current key."""
        return web.json_response({"keys": [self.key.as_dict(private=False)]})

    async def authorize(self, request: web.Request) -> web.Response:
        """Give a code to a known user; a browser would have logged the user in."""
        asked = dict(request.query)
        if (
            asked["client_id"] != CLIENT_ID
            or asked["redirect_uri"] != REDIRECT
            or asked["login_hint"] not in self.people
        ):
            raise web.HTTPForbidden
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        raise web.HTTPFound(URL(REDIRECT).with_query(code=code, state=asked["state"]))

    async def token(self, request: web.Request) -> web.Response:
        """Give a token for a code once, to the client that requested the code."""
        form = await request.post()
        asked = self._codes.pop(str(form["code"]), None)
        challenge = _b64(hashlib.sha256(str(form["code_verifier"]).encode()).digest())
        if asked is None or challenge != asked["code_challenge"] or form["client_id"] != asked["client_id"]:
            raise web.HTTPBadRequest
        person = asked["login_hint"]
        claims = self.claims(sub=person, email=None, email_verified=None, nonce=asked["nonce"])
        token = self.sign(claims | self.people[person])
        return web.json_response({"id_token": token, "token_type": "Bearer", "expires_in": SECONDS})


def unsigned(claims: Json) -> str:
    """Return a token whose header says that it needs no signature."""
    return f"{_unsigned({'alg': 'none'}, claims)}."


def signed_with_public_key(claims: Json, key: RSAKey) -> str:
    """Return a token signed with a public value as the secret; joserfc refuses to do that."""
    body = _unsigned({"alg": "HS256", "kid": key.kid}, claims)
    return f"{body}.{_b64(hmac.digest(key.as_pem(private=False), body.encode(), 'sha256'))}"


def _unsigned(header: Json, claims: Json) -> str:
    return ".".join(_b64(msgspec.json.encode(part)) for part in (header, claims))


@asynccontextmanager
async def provider(folder: Path) -> AsyncGenerator[Provider]:
    """Run a provider with a certificate of an authority of its own.

    Args:
        folder: For the certificates.
    """
    now = dt.datetime.now(dt.UTC)
    x509.write_authority(folder, "issuer-ca", now, now + dt.timedelta(days=1))
    names = ("localhost", "127.0.0.1")
    leaf = LeafCertificate(ca="issuer-ca", user="issuer", use=CertificateUse.SERVER, names=names)
    x509.write_leaf(folder, "issuer", leaf, now, now + dt.timedelta(days=1))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "issuer.crt", folder / "issuer.key")
    running = Provider("", folder / "issuer-ca.crt")
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", running.discovery)
    app.router.add_get("/keys", running.keys)
    app.router.add_get("/authorize", running.authorize)
    app.router.add_post("/token", running.token)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        running.issuer = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield running
    finally:
        await runner.cleanup()
