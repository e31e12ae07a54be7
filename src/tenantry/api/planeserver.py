"""Settings of the API server of a VirtualControlPlane: its users, its audit log, and how much it serves at once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import Rule
from tenantry.api.model import Model

ISSUER_PATTERN = r'^https://[a-z0-9.-]+(:[0-9]{1,5})?(/[!"$->@-~]*)?$'
MOST_ISSUERS = 16

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
            pattern=ISSUER_PATTERN,
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


class FeatureGate(StrEnum):
    """Features of Kubernetes that are off by default and concern only the API and the controllers of one cluster.

    Each version that control planes can have knows them, off by default and not locked (pkg/features/kube_features.go).
    None of them lets a program reach anything outside of its cluster, or changes what nodes do.
    """

    HPA_SCALE_TO_ZERO = "HPAScaleToZero"
    MAX_UNAVAILABLE_STATEFUL_SET = "MaxUnavailableStatefulSet"
    MUTABLE_PV_NODE_AFFINITY = "MutablePVNodeAffinity"
    STORAGE_CAPACITY_SCORING = "StorageCapacityScoring"


FeatureGates = Annotated[
    tuple[FeatureGate, ...],
    Meta(
        max_length=len(FeatureGate),
        description="Features of Kubernetes that are on, besides those that are on by default.",
        extra_json_schema={"x-kubernetes-list-type": "set"},
    ),
]


class ClusterApiServer(Model, frozen=True, kw_only=True):
    """The API server of a cluster; there are no free flags."""

    oidc: (
        Annotated[
            PlaneOidc,
            Meta(
                description="An OIDC provider whose tokens the API server accepts. The API server reaches it if"
                " spec.limits.oidcIssuers of the template has its URL, or an administrator allows its host in"
                " spec.egress of the VirtualControlPlane."
            ),
        ]
        | UnsetType
    ) = UNSET
    audit_level: Annotated[
        AuditLevel,
        Meta(
            description="What the audit log has of a request: None, Metadata, Request or RequestResponse; see"
            " spec.audit of VirtualControlPlane."
        ),
    ] = AuditLevel.NONE
    feature_gates: FeatureGates = ()


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
