"""Owners: the users, groups and ServiceAccounts that own a tenant or a child namespace."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Rule
from tenantry.api.model import Model
from tenantry.api.names import DNS_LABEL, DNS_SUBDOMAIN, PLAIN


class OwnerKind(StrEnum):
    """What an owner is, in RBAC's words."""

    USER = "User"
    GROUP = "Group"
    SERVICE_ACCOUNT = "ServiceAccount"


class Owner(Model, frozen=True, kw_only=True):
    """A user, group or ServiceAccount with the rights of an owner in the tenant's namespaces."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.kind == 'ServiceAccount') == has(self.__namespace__)",
            "must name a namespace for a ServiceAccount, and for nothing else",
            field="namespace",
        ),
        Rule(
            "self.kind == 'ServiceAccount' || !(self.name.startsWith('system:') || self.name.startsWith('tenantry:'))",
            "must not begin with system: or tenantry:, which name users and groups of Kubernetes and of Tenantry",
            field="name",
        ),
        Rule(
            f"self.kind != 'ServiceAccount' || self.name.matches('{DNS_SUBDOMAIN}')",
            "must be a ServiceAccount's name: lower-case letters, digits, - and .",
            field="name",
        ),
        Rule(
            f"!has(self.__namespace__) || self.__namespace__.matches('{DNS_LABEL}')",
            "must be a namespace's name: lower-case letters, digits and -",
            field="namespace",
        ),
    )

    kind: Annotated[OwnerKind, Meta(description="User, Group or ServiceAccount.")]
    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=PLAIN, description="As the API server knows it.")]
    namespace: Annotated[
        str, Meta(min_length=1, max_length=63, description="The namespace of a ServiceAccount; only for that.")
    ] = ""


class InnerOwnerKind(StrEnum):
    """What an owner inside a cluster is, in RBAC's words; ServiceAccounts are bound inside."""

    USER = "User"
    GROUP = "Group"


class InnerOwner(Model, frozen=True, kw_only=True):
    """A user or group that is an administrator inside a cluster."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.name.startsWith('system:') || self.name.startsWith('tenantry:'))",
            "must not begin with system: or tenantry:, which name users and groups of Kubernetes and of Tenantry",
            field="name",
        ),
    )

    kind: Annotated[InnerOwnerKind, Meta(description="User or Group.")]
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            pattern=PLAIN,
            description="As the API server inside knows it: of OIDC with the prefix, as in oidc:alice.",
        ),
    ]


MOST_INNER_OWNERS = 32


def owner_line(kind: str, name: str, namespace: str = "") -> str:
    """Return an owner as the annotation of its namespaces lists it: the kind, a space and the name.

    Args:
        kind: As in `OwnerKind`.
        name: The name.
        namespace: Of a ServiceAccount. It is part of the name: two accounts of one name are two owners.
    """
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
