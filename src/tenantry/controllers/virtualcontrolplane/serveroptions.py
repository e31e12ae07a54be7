"""The settings of a control plane's API server that its spec has: pure.

spec.authentication.oidc ─► an entry of the AuthenticationConfiguration; its issuer is reached through the gate
spec.audit, spec.fairness, spec.featureGates ─► flags
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.errors import TerminalError
from tenantry.api.planeserver import AuditLevel, PlaneOidc
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import egress
from tenantry.engine.plan import Blocked
from tenantry.hosting.plane import ServerOptions
from tenantry.world.oidc import Oidc, authenticator

_FIELD = "spec.authentication.oidc"


def of(found: VirtualControlPlane, issuers: Collection[str]) -> ServerOptions:
    """Return the settings of a control plane.

    Args:
        found: The control plane.
        issuers: Of its own ServiceAccounts' tokens.

    Raises:
        TerminalError: The API server would not start with these settings.
    """
    oidc, audit, fairness = found.spec.authentication.oidc, found.spec.audit, found.spec.fairness
    return ServerOptions(
        authenticators=(_entry(oidc, issuers),) if oidc is not UNSET else (),
        audit_level="" if audit.level is AuditLevel.NONE else audit.level.value,
        max_reads=fairness.max_reads,
        max_writes=fairness.max_writes,
        feature_gates=tuple(sorted(each.value for each in found.spec.feature_gates)),
    )


def unreachable(found: VirtualControlPlane) -> Blocked | None:
    """Return why the API server does not reach the issuer of its users' tokens; None if it may, or if it has none."""
    oidc = found.spec.authentication.oidc
    if oidc is UNSET:
        return None
    host = urlsplit(oidc.issuer).hostname or ""
    # Which addresses of the host are never dialled is known only when one is.
    reason = egress.rule(found.spec.egress, ()).refusal_of_host(host)
    message = f"{_FIELD}.issuer: {reason}; until then, no token of this issuer is accepted"
    return Blocked(reason=reasons.INVALID_SPEC, message=message) if reason else None


def _entry(oidc: PlaneOidc, own: Collection[str]) -> dict[str, object]:
    if oidc.issuer in own:
        raise TerminalError(reasons.INVALID_SPEC, f"{_FIELD}.issuer must not be that of the control plane's own tokens")
    _check_authority(oidc.certificate_authority)
    return authenticator(
        Oidc(
            issuer=oidc.issuer,
            client_id=oidc.client_id,
            username_claim=oidc.username_claim,
            username_prefix=oidc.username_prefix,
            groups_claim=oidc.groups_claim,
            groups_prefix=oidc.groups_prefix,
            required_claims=oidc.required_claims,
            ca=oidc.certificate_authority,
        )
    )


def _check_authority(pem: str) -> None:
    if not pem:
        return
    from cryptography import x509  # noqa: PLC0415 - slow to import, and few control planes have a provider

    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        message = f"{_FIELD}.certificateAuthority must be certificates in PEM: {error}"
        raise TerminalError(reasons.INVALID_SPEC, message) from error
    if not found or "PRIVATE KEY" in pem:
        message = f"{_FIELD}.certificateAuthority must have certificates, and no private key"
        raise TerminalError(reasons.INVALID_SPEC, message)
