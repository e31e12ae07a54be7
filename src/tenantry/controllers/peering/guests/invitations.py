"""Invitations: the objects at the peer that make one valid, and what the home checks before it uses one. Pure.

    guest.invitation ─► ServiceAccount "a-invite", which may request tokens of "a-renew", and delete two objects:
                     ─► Secret "a-invite", to which the token of the invitation is bound
                     ─► RoleBinding "a-invite", from which the account has its rights
    home: token of "a-renew" requested ─► Secret "a-invite" deleted: the token of the invitation is not valid any more
                                       ─► RoleBinding "a-invite" deleted: nor has the account any right

The API server itself ends the invitation with its first use, also while the operator of the peer is stopped. It
remembers a token for ten seconds, in which the account has no right any more. The operator sees that the Secret is
gone, and deletes the account.

Source: Kubernetes, "Managing Service Accounts" (bound service account tokens).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from typing import TypeVar

import yaml
from cryptography import x509

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.peercluster import (
    MAX_NAME,
    PEERS_NAMESPACE,
    PREFIX,
    GuestInvitation,
    InvitationPhase,
    InvitationStatus,
    PeerCluster,
    inviter_name,
    is_name,
    renewer_name,
)
from tenantry.api.peerinvitation import MAX_FILE_BYTES, PeerInvitation, PeerRequest, PeerTunnel
from tenantry.api.wording import shortened
from tenantry.controllers.peering.guests import guest
from tenantry.controllers.peering.guests.guest import ACCOUNTS, BINDINGS, ROLES
from tenantry.world import leases, quota
from tenantry.world.structure import read as shaped
from tenantry.world.validation import Problem

EXPIRES = f"{PREFIX}/invitation-expires"
"""An annotation of the Secret of an invitation: which one it is."""

USED = f"{PREFIX}/used-invitation"
"""An annotation of the Secret of the home: the digest of the invitation that its token is from."""

MOST_TOKEN = 16384
"""The longest token."""

F = TypeVar("F", PeerInvitation, PeerRequest, PeerTunnel)

_ASK = "ask the administrator of the peer for another one (`tenantry peer invite`)"


class _Loader(yaml.BaseLoader):
    """YAML without references: a few of them make a value of any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("references are not read")
        return super().compose_node(parent, index)


# -- the file -----------------------------------------------------------------------------------


def read(data: bytes, kind: type[F]) -> F:
    """Return what a file contains.

    Args:
        data: YAML or JSON, one document. Untrusted.
        kind: The expected kind.

    Raises:
        InputError: The file is too long, or is none of the kind; the message names the fields.
    """
    word = kind.resource.kind
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"the file is {len(data)} bytes long; a {word} has at most {MAX_FILE_BYTES}")
    try:
        # All values are strings: YAML 1.1 would read a time, a number and a word such as `no` as something else.
        document: object = yaml.load(data.decode(), Loader=_Loader)  # noqa: S506 - makes only str, list, dict
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f" (line {mark.line + 1})" if mark is not None else ""
        # Without the line itself: it may have the token.
        raise InputError(f"the file is not one document of YAML or JSON{where}; give a {word}") from None
    value, problems = shaped(document, kind)
    if value is not None:
        problems = _problems(value)
    if value is None or problems:
        text = shortened([str(each) for each in problems], separator="; ", in_order=True)
        raise InputError(f"the file is not a valid {word}: {text}")
    return value


def is_token(text: str) -> bool:
    """Return whether a text has the form of a token of a ServiceAccount."""
    return len(text) <= MOST_TOKEN and re.fullmatch(r"[A-Za-z0-9._-]+", text, re.ASCII) is not None


def _problems(value: PeerInvitation | PeerRequest | PeerTunnel) -> list[Problem]:
    """Return what is wrong with the values of a file that has the right fields."""
    found = list[Problem]()
    if not is_name(value.metadata.name):
        found.append(Problem("metadata.name", _NAME))
    if not isinstance(value, PeerTunnel):
        try:
            quota.normal(value.spec.quota.hard)
        except InputError as error:
            found.append(Problem("spec.quota.hard", f"must be a quota: {error}"))
    if isinstance(value, PeerRequest):
        return found
    if not is_name(value.spec.guest):
        found.append(Problem("spec.guest", _NAME))
    if isinstance(value, PeerInvitation):
        try:
            leases.instant(value.spec.expires)
        except InputError as error:
            found.append(Problem("spec.expires", f"must be a time: {error}"))
    try:
        x509.load_pem_x509_certificates(value.spec.ca.encode())
    except ValueError:
        found.append(Problem("spec.ca", "must be certificates in PEM"))
    if not is_token(value.spec.token):
        found.append(Problem("spec.token", "must be a token of a ServiceAccount, as in eyJhb..."))
    return found


_NAME = f"must be at most {MAX_NAME} lower-case letters, digits and -"


def refusal(invitation: PeerInvitation, home_id: str, now: dt.datetime) -> str:
    """Return why a home does not use an invitation; "" if it does.

    Args:
        invitation: The invitation.
        home_id: The uid of the namespace kube-system of this cluster.
        now: The time.
    """
    spec = invitation.spec
    if spec.cluster_id == home_id:
        return (
            "spec.clusterId must not be the id of this cluster, which cannot be its own peer: accept the invitation at"
            " the cluster whose pods are to run at the peer"
        )
    if spec.home_id and spec.home_id != home_id:
        return (
            f"spec.homeId must be the id of this cluster, {home_id!r}, and is {spec.home_id!r}: the invitation is meant"
            f" for another cluster; accept it there, or {_ASK} with the file of `tenantry peer request`"
        )
    if leases.instant(spec.expires) <= now:
        return f"spec.expires must not be past: the invitation expired at {spec.expires}; {_ASK}"
    return ""


def used(invitation: PeerInvitation) -> str:
    """Return the message about an invitation that the peer does not accept any more."""
    return (
        f"spec.token is not valid at {invitation.spec.server} any more: the invitation was used, withdrawn, or has"
        f" expired; {_ASK}. If you have not used it, another cluster has: the peer must delete ServiceAccount"
        f" {renewer_name(invitation.spec.guest)!r} of namespace {PEERS_NAMESPACE!r}, which ends its tokens"
    )


def digest(file: PeerInvitation | PeerTunnel) -> str:
    """Return by what a cluster remembers a file that it has used."""
    return hashlib.sha256(file.spec.token.encode()).hexdigest()[:32]


# -- at the peer --------------------------------------------------------------------------------


def objects(found: PeerCluster) -> tuple[tuple[Resource, Json], ...]:
    """Return the account of an invitation and its rights, in the order in which they are written.

    Args:
        found: The PeerCluster that serves the home.
    """
    name = found.metadata.name
    account = inviter_name(name)
    rules: list[Json] = [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "verbs": ["create"],
            "resourceNames": [renewer_name(name)],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"], "resourceNames": [account]},
        {"apiGroups": [RBAC_GROUP], "resources": [BINDINGS.plural], "verbs": ["delete"], "resourceNames": [account]},
    ]
    binding: Json = {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": ROLES.kind, "name": account},
        "subjects": [{"kind": ACCOUNTS.kind, "name": account, "namespace": PEERS_NAMESPACE}],
    }
    return (
        (ACCOUNTS, {**guest.meta(found, account), "automountServiceAccountToken": False}),
        (ROLES, {**guest.meta(found, account), "rules": rules}),
        (BINDINGS, {**guest.meta(found, account), **binding}),
    )


def secret(found: PeerCluster, asked: GuestInvitation) -> Json:
    """Return the Secret with which the token of an invitation ends. Its data is empty."""
    value = guest.meta(found, inviter_name(found.metadata.name))
    value["metadata"]["annotations"] = {EXPIRES: asked.expires}
    return value


def phase(
    asked: GuestInvitation, before: InvitationStatus | None, live: Json | None, now: dt.datetime
) -> InvitationPhase:
    """Return the phase of an invitation.

    Args:
        asked: The invitation in the spec.
        before: What the status says of it or of an earlier one; None for nothing.
        live: Its Secret; None if there is none.
        now: The time.
    """
    known = before if before is not None and before.expires == asked.expires else None
    if known is not None and known.phase is not InvitationPhase.OPEN:
        return known.phase
    if leases.instant(asked.expires) <= now:
        return InvitationPhase.EXPIRED
    if known is not None and not is_for(asked, live):
        return InvitationPhase.USED
    return InvitationPhase.OPEN


def is_for(asked: GuestInvitation, live: Json | None) -> bool:
    """Return whether a Secret is that of this invitation."""
    annotations: Json = (live or {}).get("metadata", {}).get("annotations") or {}
    return annotations.get(EXPIRES) == asked.expires
