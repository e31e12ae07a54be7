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

    ENCRYPTION = "Encryption"
    """The key with which its datastore is encrypted; no credentials change."""


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
LEAST_KEY_SECONDS, MOST_KEY_SECONDS = 3600, 3650 * 86400
MOST_KEYS = 64
"""Of an encryption: the current one, and former ones that snapshots need."""

MOST_FORMER_CLIENTS = 100
"""In the status; there may be more."""


class PlaneRotation(Model, frozen=True, kw_only=True):
    """When the credentials of a control plane are replaced."""

    request: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^((Users|All|Gradual|Complete|Encryption)@[-A-Za-z0-9._:]{1,54})?$",
            description="Each new value replaces credentials, once: Users, All, Gradual, Complete or Encryption, @, and"
            " a text that differs each time, for example the time. Users: kubeconfigs that were handed out, and"
            " certificates that were requested inside, are worth nothing afterwards. All: also the authorities of the"
            " control plane and the key of its ServiceAccounts' tokens. Gradual: all of them in the phases Preparing,"
            " Issuing and Completing; those of before are valid until no client uses them any more. Complete: they end"
            " at once in the phase Issuing, and a request in the phase Preparing leads to Issuing only. Encryption: the"
            " key with which Secrets and ConfigMaps are stored, under which everything is stored again; credentials"
            " stay. See status.credentials and status.lastRotation.",
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
    encryption_key_seconds: Annotated[
        int,
        Meta(
            ge=LEAST_KEY_SECONDS,
            le=MOST_KEY_SECONDS,
            description="Age in seconds at which the key that encrypts its Secrets and ConfigMaps is replaced, while"
            " it is awake. Default: 7776000, 90 days.",
        ),
    ] = 90 * 86400


class PlaneRotationOutcome(Model, frozen=True, kw_only=True):
    """The last replacement of credentials that is done."""

    requested: Annotated[str, Meta(description="The value of spec.rotation.request that was answered last.")] = ""
    time: Annotated[str, Meta(description="When it was done.")] = ""
    users: Annotated[int, Meta(ge=0, description="The generation of the users' credentials that is in force.")] = 0
    authorities: Annotated[int, Meta(ge=0, description="The generation of all others that is in force.")] = 0
    phase: Annotated[
        RotationPhase, Meta(description="The phase of a gradual replacement that is in force: Preparing or Issuing.")
    ] = RotationPhase.NONE
    encryption: Annotated[int, Meta(ge=0, description="The generation of the encryption key that is in force.")] = 0


class FormerClient(Model, frozen=True, kw_only=True):
    """A client that uses a certificate of an authority that is being replaced."""

    user: Annotated[str, Meta(max_length=253, description="Its user name; that of a node begins with system:node:.")]
    last: Annotated[str, Meta(max_length=32, description="When its last request ended, as RFC 3339.")] = ""


class PlaneCredentials(Model, frozen=True, kw_only=True):
    """Which credentials of a control plane are to be in force."""

    requested: Annotated[str, Meta(description="The value of spec.rotation.request that is answered.")] = ""
    users: Annotated[int, Meta(ge=0, description="How often the credentials of the users were replaced.")] = 0
    authorities: Annotated[int, Meta(ge=0, description="How often all others were replaced.")] = 0
    encryption: Annotated[int, Meta(ge=0, description="How often the encryption key was replaced.")] = 0
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


class EncryptionKeyRecord(Model, frozen=True, kw_only=True):
    """A key that encrypts what a control plane stores, or did."""

    name: Annotated[str, Meta(max_length=63, description="Its name, which is stored with each value.")]
    digest: Annotated[str, Meta(max_length=64, description="A digest of it, by which an edited key is found.")]
    created: Annotated[str, Meta(max_length=32, description="When it was made, as RFC 3339.")]
    until: Annotated[
        str,
        Meta(
            max_length=32,
            description="When nothing was stored under it any more, as RFC 3339; empty for the current key. A former"
            " key is kept while a snapshot from before that time is kept.",
        ),
    ] = ""


class PlaneEncryption(Model, frozen=True, kw_only=True):
    """How a control plane stores its Secrets and ConfigMaps."""

    keys: Annotated[
        tuple[EncryptionKeyRecord, ...],
        Meta(max_length=MOST_KEYS, description="Its keys, the current one first; none before its first start."),
    ] = ()
    generation: Annotated[int, Meta(ge=0, description="The generation of the current key.")] = 0
    reads_plain: Annotated[
        bool,
        Meta(
            description="Whether values that are not encrypted are read: until all of an earlier version are encrypted,"
            " and while a snapshot from before that is kept."
        ),
    ] = False
    plain_until: Annotated[
        str,
        Meta(max_length=32, description="When nothing was stored unencrypted any more; empty if nothing ever was."),
    ] = ""
