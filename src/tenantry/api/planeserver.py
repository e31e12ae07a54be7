"""Settings of the API server of a VirtualControlPlane: its users, its audit log, and how much it serves at once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import Rule
from tenantry.api.model import Model

_CLAIM = r"^[!-~]{1,512}$"
_PREFIX = r"^[ -~]{0,128}$"
_UNRESERVED = "!{0}.startsWith('system:') && !{0}.startsWith('tenantry:')"


class PlaneOidc(Model, frozen=True, kw_only=True):
    """An OIDC provider whose tokens the API server accepts."""

    validations: ClassVar[tuple[Rule, ...]] = tuple(
        Rule(
            f"!has(self.{field}) || ({_UNRESERVED.format(f'self.{field}')})",
            "must not begin with system: or tenantry:, because such names have rights",
            field=field,
        )
        for field in ("usernamePrefix", "groupsPrefix")
    )

    issuer: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=r'^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[!"$->@-~]*)?$',
            description="The https URL of the provider, exactly as in `iss` of its tokens; without query and fragment."
            " spec.egress must allow its host.",
        ),
    ]
    client_id: Annotated[str, Meta(pattern=_CLAIM, description="The audience that tokens must have (`aud`).")]
    username_claim: Annotated[str, Meta(pattern=_CLAIM, description="The claim with the name of the user.")] = "sub"
    username_prefix: Annotated[str, Meta(pattern=_PREFIX, description="The prefix of the names of users.")] = "oidc:"
    groups_claim: Annotated[str, Meta(pattern=_CLAIM, description="The claim with the list of groups.")] = "groups"
    groups_prefix: Annotated[str, Meta(pattern=_PREFIX, description="The prefix of the names of groups.")] = "oidc:"
    required_claims: Annotated[
        dict[str, Annotated[str, Meta(min_length=1, max_length=512)]],
        Meta(max_length=16, description="Claims that tokens must have, with their values."),
    ] = {}
    certificate_authority: Annotated[
        str,
        Meta(
            max_length=65536,
            description="The authorities of the provider in PEM; without them, those of the operator's machine.",
        ),
    ] = ""


class PlaneAuthentication(Model, frozen=True, kw_only=True):
    """How users prove who they are, besides the certificate in the kubeconfig."""

    oidc: Annotated[PlaneOidc, Meta(description="An OIDC provider.")] | UnsetType = UNSET


class AuditLevel(StrEnum):
    """What the audit log has of a request."""

    NONE = "None"
    METADATA = "Metadata"
    REQUEST = "Request"
    REQUEST_RESPONSE = "RequestResponse"


class PlaneAudit(Model, frozen=True, kw_only=True):
    """The audit log of the API server."""

    level: Annotated[
        AuditLevel,
        Meta(
            description="None: no log. Metadata: who requested what, when, and the answer's code. Request: also objects"
            " that are written. RequestResponse: also those that are returned. Of Secrets, ConfigMaps and tokens, never"
            " more than Metadata."
        ),
    ] = AuditLevel.NONE


class PlaneFairness(Model, frozen=True, kw_only=True):
    """How many requests the API server serves at once: Priority and Fairness divides them among users."""

    max_reads: Annotated[int, Meta(ge=10, le=4000, description="Requests that only read.")] = 400
    max_writes: Annotated[int, Meta(ge=5, le=2000, description="Requests that write.")] = 200


class PlaneTokens(Model, frozen=True, kw_only=True):
    """The tokens of the ServiceAccounts inside."""

    issuer: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=r'^(https://[a-z0-9.-]+(:[0-9]{1,5})?(/[!"$->@-~]*)?)?$',
            description="The https URL that tokens name as their issuer (`iss`), for workload identity: publish the"
            " documents /.well-known/openid-configuration and /openid/v1/jwks of the API server there. Without one, it"
            " is a URL that no program resolves.",
        ),
    ] = ""
