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
    """Which credentials are replaced, and how."""

    USERS = "Users"
    ALL = "All"
    GRADUAL = "Gradual"
    """All of them in three phases: those of before are valid until nothing uses them any more."""

    COMPLETE = "Complete"
    """End a gradual replacement in the phase Issuing, whatever still uses the credentials of before."""


class RotationPhase(StrEnum):
    """Where a gradual replacement of credentials is."""

    NONE = ""
    PREPARING = "Preparing"
    """The next authorities are trusted, and sign nothing."""

    ISSUING = "Issuing"
    """They sign, and those of before are trusted."""


class LastRotationPhase(StrEnum):
    """Where a gradual replacement of credentials stops."""

    PREPARING = "Preparing"
    ISSUING = "Issuing"
    COMPLETING = "Completing"


MOST_QUIET_SECONDS = 30 * 86400
MOST_FORMER_CLIENTS = 100
"""In the status; there may be more."""


class PlaneRotation(Model, frozen=True, kw_only=True):
    """When the credentials of a control plane are replaced."""

    request: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^((Users|All|Gradual|Complete)@[-A-Za-z0-9._:]{1,54})?$",
            description="Each new value replaces credentials, once: Users, All, Gradual or Complete, @, and a text that"
            " differs each time, for example the time. Users: kubeconfigs that were handed out, and certificates that"
            " were requested inside, are worth nothing afterwards. All: also the authorities of the control plane and"
            " the key of its ServiceAccounts' tokens. Gradual: all of them in the phases Preparing, Issuing and"
            " Completing; those of before are valid until no client uses them any more. Complete: they end at once in"
            " the phase Issuing, and a request in the phase Preparing leads to Issuing only."
            " See status.credentials and status.lastRotation.",
        ),
    ] = ""
    last_phase: Annotated[
        LastRotationPhase,
        Meta(description="Where a gradual replacement stops: Preparing, Issuing, or Completing, which is its end."),
    ] = LastRotationPhase.COMPLETING
    quiet_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_QUIET_SECONDS,
            description="Seconds without a request of a client with a certificate of before, after which a gradual"
            " replacement ends. Default: 86400, a day. It ends at the earliest when the tokens of before have ended.",
        ),
    ] = 86400


class PlaneRotationOutcome(Model, frozen=True, kw_only=True):
    """The last replacement of credentials that is done."""

    requested: Annotated[str, Meta(description="The value of spec.rotation.request that was answered last.")] = ""
    time: Annotated[str, Meta(description="When it was done.")] = ""
    users: Annotated[int, Meta(ge=0, description="The generation of the users' credentials that is in force.")] = 0
    authorities: Annotated[int, Meta(ge=0, description="The generation of all others that is in force.")] = 0
    phase: Annotated[
        RotationPhase, Meta(description="The phase of a gradual replacement that is in force: Preparing or Issuing.")
    ] = RotationPhase.NONE


class FormerClient(Model, frozen=True, kw_only=True):
    """A client that uses a certificate of an authority that is being replaced."""

    user: Annotated[str, Meta(max_length=253, description="Its user name; that of a node begins with system:node:.")]
    last: Annotated[str, Meta(max_length=32, description="When its last request ended, as RFC 3339.")] = ""


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
    phase: Annotated[
        RotationPhase, Meta(description="The phase of a gradual replacement: Preparing or Issuing; empty for none.")
    ] = RotationPhase.NONE
    issued: Annotated[
        str, Meta(max_length=32, description="When the phase Issuing came into force, as RFC 3339; empty before.")
    ] = ""
    former_clients: Annotated[
        tuple[FormerClient, ...],
        Meta(
            max_length=MOST_FORMER_CLIENTS,
            description="In the phase Issuing: clients with certificates of before, which Completing waits for.",
        ),
    ] = ()
