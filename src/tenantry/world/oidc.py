"""The OIDC provider of an API server as an entry of its AuthenticationConfiguration: pure.

The provider names users and groups, but cannot grant rights that Kubernetes or Tenantry gives by name: no token yields
a user or group that begins with `system:` or `tenantry:`.

Source: Kubernetes, "Authenticating", section "Using Authentication Configuration"; OpenID Connect Core 1.0, section 5.
"""

from __future__ import annotations

import json

import msgspec

from tenantry.api.model import Json

RESERVED = ("system:", "tenantry:")
"""Prefixes of names that have rights in Kubernetes or Tenantry."""


class Oidc(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The OIDC provider of a cluster, and how its claims become users and groups.

    Args:
        issuer: An https URL, exactly as in the tokens' `iss`.
        client_id: The required audience of tokens (`aud`).
        username_claim: The claim with the user's name.
        username_prefix: Its prefix, so that the provider cannot name users of other origins.
        groups_claim: The claim with the list of groups; a token may lack it.
        groups_prefix: The prefix of each group.
        required_claims: Required values by claim.
        ca: The certificate authorities of the provider in PEM; "" for those of the machine.
    """

    issuer: str
    client_id: str
    username_claim: str = "sub"
    username_prefix: str = "oidc:"
    groups_claim: str = "groups"
    groups_prefix: str = "oidc:"
    required_claims: dict[str, str] = {}
    ca: str = ""


def authenticator(oidc: Oidc) -> Json:
    """Return the entry of `jwt` in an AuthenticationConfiguration."""
    issuer: Json = {"url": oidc.issuer, "audiences": [oidc.client_id]}
    if oidc.ca:
        issuer["certificateAuthority"] = oidc.ca
    return {
        "issuer": issuer,
        "claimValidationRules": [
            *({"claim": claim, "requiredValue": value} for claim, value in sorted(oidc.required_claims.items())),
            *_claim_rules(oidc),
        ],
        "claimMappings": {
            "username": {"claim": oidc.username_claim, "prefix": oidc.username_prefix},
            "groups": {"claim": oidc.groups_claim, "prefix": oidc.groups_prefix},
        },
        "userValidationRules": [
            {"expression": _unreserved("user.username"), "message": f"users must not begin with {_prefixes()}"},
            {
                "expression": f"user.groups.all(group, {_unreserved('group')})",
                "message": f"groups must not begin with {_prefixes()}",
            },
        ],
    }


def _claim_rules(oidc: Oidc) -> list[Json]:
    # JSON's strings of printable ASCII are CEL's.
    rules = [
        {
            "expression": f'claims[{json.dumps(oidc.username_claim)}] != ""',
            "message": f"the claim {oidc.username_claim} must not be empty",
        }
    ]
    if oidc.username_claim == "email":
        # By default the API server rejects only an explicit false, and a provider that does not verify may omit it.
        rules.append(
            {
                "expression": "claims.?email_verified.orValue(false) == true",
                "message": "the claim email_verified must be true",
            }
        )
    return rules


def _unreserved(name: str) -> str:
    return " && ".join(f'!{name}.startsWith("{prefix}")' for prefix in RESERVED)


def _prefixes() -> str:
    return " or ".join(RESERVED)
