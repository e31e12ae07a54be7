"""Checks an OIDC provider against the settings of a cluster: the API server reports problems only in its log."""

from __future__ import annotations

import ssl

import aiohttp
import msgspec

from tenantry.local.authentication import DISCOVERY, Oidc

_OK = 200


class _Provider(msgspec.Struct, frozen=True):
    issuer: str = ""
    jwks_uri: str = ""


async def trouble(oidc: Oidc, timeout_seconds: float = 5.0) -> str:
    """Return why the API server would reject every token of a provider now, "" if nothing prevents it.

    Args:
        oidc: The settings; they have passed `check`.
        timeout_seconds: How long the provider may take.
    """
    url = oidc.issuer.rstrip("/") + DISCOVERY
    try:
        found = await _ask(url, oidc.ca, timeout_seconds)
    except TimeoutError:
        return f'"{url}" does not answer in {timeout_seconds:.0f} s'
    except aiohttp.ClientConnectorCertificateError as error:
        return f'"{url}" has a certificate that is not trusted ({error.certificate_error}): give --oidc-ca'
    except (aiohttp.ClientError, OSError) as error:
        return f'"{url}" cannot be reached: {error}'
    except msgspec.MsgspecError:
        return f'"{url}" is no OIDC provider: it does not describe itself in JSON'
    if found.issuer != oidc.issuer:
        return f'"{url}" says that the issuer is {found.issuer!r}: --oidc-issuer must be exactly that'
    return "" if found.jwks_uri else f'"{url}" names no jwks_uri'


async def _ask(url: str, ca: str, timeout_seconds: float) -> _Provider:
    trust = ssl.create_default_context(cadata=ca or None)
    # The API server asks through the proxy of its environment, too.
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_seconds), trust_env=True) as session,
        session.get(url, ssl=trust) as answer,
    ):
        if answer.status != _OK:
            raise aiohttp.ClientError(f"it answers with the status {answer.status}")
        return msgspec.json.decode(await answer.read(), type=_Provider)
