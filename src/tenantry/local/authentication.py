"""The API server's AuthenticationConfiguration, with tokens of an OIDC provider; pure.

    Oidc ─► check ─► authenticator ─► configuration   for any cluster
                                   └► text            for a local one

The provider names users and groups, but cannot grant rights that Kubernetes or Tenantry gives by name: no token yields
a user or group that begins with `system:` or `tenantry:`.

Source: Kubernetes, "Authenticating", section "Using Authentication Configuration"; OpenID Connect Core 1.0, section 5.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from tenantry.api.errors import InputError
from tenantry.api.model import Json
from tenantry.world.oidc import RESERVED, Oidc, authenticator

SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc"

DISCOVERY = "/.well-known/openid-configuration"

_API_VERSION = "apiserver.config.k8s.io/v1"
_KIND = "AuthenticationConfiguration"

# The name of a claim appears in CEL, and an issuer in messages: no blanks, no control characters.
_PLAIN = re.compile(r"[!-~]{1,512}")
_PRINTABLE = re.compile(r"[ -~]{0,512}")

_CHANGEABLE = frozenset({"preferred_username", "name", "nickname", "given_name", "family_name"})
"""Claims that people may change at many providers (OpenID Connect Core 1.0, section 5.7)."""

# Anonymous requests may only read the health endpoints. Written as text: a cluster without a provider starts without
# loading a YAML library.
_LOCAL = f"""\
apiVersion: {_API_VERSION}
kind: {_KIND}
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
  - path: /healthz
"""


def check(oidc: Oidc) -> Oidc:
    """Return the settings if the API server accepts them.

    Raises:
        InputError: A flag is invalid or unsafe.
    """
    _check_issuer(oidc.issuer)
    if not _PLAIN.fullmatch(oidc.client_id):
        raise InputError(f"--oidc-client-id {oidc.client_id!r} must be the client's id at the provider, without blanks")
    for flag, claim in (("--oidc-username-claim", oidc.username_claim), ("--oidc-groups-claim", oidc.groups_claim)):
        if not _PLAIN.fullmatch(claim):
            raise InputError(f"{flag} {claim!r} must be the name of a claim, such as email, and not empty")
    for claim, value in oidc.required_claims.items():
        if not _PLAIN.fullmatch(claim) or not value:
            raise InputError(f"--oidc-required-claim '{claim}={value}' must be CLAIM=VALUE, neither of them empty")
    for flag, prefix in (
        ("--oidc-username-prefix", oidc.username_prefix),
        ("--oidc-groups-prefix", oidc.groups_prefix),
    ):
        if prefix.startswith(RESERVED):
            raise InputError(f"{flag} {prefix!r} must not begin with {' or '.join(RESERVED)}: such names have rights")
        if not _PRINTABLE.fullmatch(prefix):
            raise InputError(f"{flag} {prefix!r} must be printable ASCII")
    if oidc.ca:
        _check_authorities(oidc.ca)
    return oidc


def _check_issuer(issuer: str) -> None:
    told = f"--oidc-issuer {issuer!r}"
    try:
        url = urlsplit(issuer)
        port_is_right = url.port is None or url.port > 0
    except ValueError as error:
        raise InputError(f"{told} must be a URL: {error}") from error
    if url.scheme != "https":
        raise InputError(f"{told} must begin with https://, because its answers decide which users get in")
    if not _PLAIN.fullmatch(issuer) or not url.hostname or not port_is_right:
        raise InputError(f"{told} must be a URL, as in https://login.example.com")
    if "@" in url.netloc or "?" in issuer or "#" in issuer:
        raise InputError(f"{told} must have no user, query or fragment: it is the issuer, as tokens name it")
    if issuer == SERVICE_ACCOUNT_ISSUER:
        raise InputError(f"{told} must not be the issuer of the cluster's own service accounts")


def _check_authorities(pem: str) -> None:
    if "PRIVATE KEY" in pem:
        raise InputError("--oidc-ca must hold certificates only, and no private key")
    # Imported here: most clusters have no provider.
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise InputError(f"--oidc-ca must be a file of certificates in PEM: {error}") from error
    if not found:
        raise InputError("--oidc-ca must hold a certificate")


def warnings(oidc: Oidc) -> list[str]:
    """Return warnings about settings that are valid but risky."""
    found: list[str] = []
    if not oidc.username_prefix:
        found.append("without --oidc-username-prefix the provider can name users that have rights already")
    if not oidc.groups_prefix:
        found.append("without --oidc-groups-prefix the provider can name groups that have rights already")
    if oidc.username_claim in _CHANGEABLE:
        found.append(f"at many providers people may change their {oidc.username_claim!r}: sub and email are safer")
    return found


def configuration(oidc: Oidc) -> Json:
    """Return the AuthenticationConfiguration for any cluster; it leaves anonymous requests as the cluster has them."""
    return {"apiVersion": _API_VERSION, "kind": _KIND, "jwt": [authenticator(oidc)]}


def text(oidc: Oidc | None) -> str:
    """Return a local cluster's AuthenticationConfiguration as YAML.

    Args:
        oidc: The provider; None for client certificates and service accounts only.
    """
    if oidc is None:
        return _LOCAL
    import yaml

    return _LOCAL + yaml.safe_dump({"jwt": [authenticator(oidc)]}, sort_keys=False, width=2**16)
