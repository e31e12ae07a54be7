"""How the API server's work is shared out between tenants, as an administrator decides it in TenancyDefaults."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tenantry.api.crd import list_map
from tenantry.api.model import Model


class TrustedKind(StrEnum):
    """The kind of a subject outside the tenants' priority level."""

    USER = "User"
    GROUP = "Group"
    NAMESPACE = "Namespace"
    """All ServiceAccounts of a namespace."""


class Trusted(Model, frozen=True, kw_only=True):
    """A subject outside the tenants' priority level."""

    kind: Annotated[TrustedKind, Meta(description="User, Group, or Namespace for all ServiceAccounts of one.")]
    name: Annotated[str, Meta(min_length=1, max_length=253, description="As the API server knows it.")]


class ReservedLevel(Model, frozen=True, kw_only=True):
    """A priority level of its own for one tenant."""

    tenant: Annotated[str, Meta(min_length=1, max_length=63, description="The tenant's name.")]
    shares: Annotated[
        int,
        Meta(ge=1, le=100, description="Of the API server's seats, in proportion to the shares of all levels."),
    ] = 1


class Fairness(Model, frozen=True, kw_only=True):
    """The priority level of all tenants, and the subjects that are outside of it."""

    shares: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="The shares of the API server's seats for all tenants together; Kubernetes' own levels have"
            " 245. As many seats as the server's machine has spare processors keep a flood of requests"
            " unnoticeable.",
        ),
    ] = 1
    reserved: Annotated[
        tuple[ReservedLevel, ...],
        Meta(
            max_length=4,
            description="Tenants that have a level of their own: their owners, and the ServiceAccounts of their"
            " namespaces. Every level takes seats from all others.",
            extra_json_schema=list_map("tenant"),
        ),
    ] = ()
    trusted: Annotated[
        tuple[Trusted, ...],
        Meta(
            max_length=64,
            description="Subjects outside the tenants' priority level that no FlowSchema of Kubernetes covers:"
            " administrators, and what runs for the whole cluster outside kube-system.",
            extra_json_schema=list_map("kind", "name"),
        ),
    ] = ()
