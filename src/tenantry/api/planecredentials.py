"""Credentials of a VirtualControlPlane: the fields by which they are replaced."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tenantry.api.model import Model

KUBECONFIGS_NAMESPACE = "tenantry-kubeconfigs"
"""The namespace of the kubeconfigs of Tenants and Subnamespaces: a Secret with the name of the namespace of each.

No user of a tenant ever has a list or a watch in this namespace.
"""


class RotationScope(StrEnum):
    """Which credentials are replaced."""

    USERS = "Users"
    ALL = "All"


class PlaneRotation(Model, frozen=True, kw_only=True):
    """When the credentials of a control plane are replaced."""

    request: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^((Users|All)@[-A-Za-z0-9._:]{1,58})?$",
            description="Each new value replaces credentials, once: Users or All, @, and a text that differs each time,"
            " for example the time. Users: kubeconfigs that were handed out, and certificates that were requested"
            " inside, are worth nothing afterwards. All: also the authorities of the control plane and the key of its"
            " ServiceAccounts' tokens. See status.lastRotation.",
        ),
    ] = ""


class PlaneRotationOutcome(Model, frozen=True, kw_only=True):
    """The last replacement of credentials that is done."""

    requested: Annotated[str, Meta(description="The value of spec.rotation.request that was answered last.")] = ""
    time: Annotated[str, Meta(description="When it was done.")] = ""
    users: Annotated[int, Meta(ge=0, description="The generation of the users' credentials that is in force.")] = 0
    authorities: Annotated[int, Meta(ge=0, description="The generation of all others that is in force.")] = 0


class PlaneCredentials(Model, frozen=True, kw_only=True):
    """Which credentials of a control plane are to be in force."""

    requested: Annotated[str, Meta(description="The value of spec.rotation.request that is answered.")] = ""
    users: Annotated[int, Meta(ge=0, description="How often the credentials of the users were replaced.")] = 0
    authorities: Annotated[int, Meta(ge=0, description="How often all others were replaced.")] = 0
    owners: Annotated[
        tuple[str, ...],
        Meta(max_length=1024, description="Digests of the owners of the namespace; without one, they are replaced."),
    ] = ()
    again: Annotated[
        str,
        Meta(description="When the users' are replaced once more: until then, a removed owner may have a watch open."),
    ] = ""
