"""The bootstrap token of one machine: the record on the host, and the token inside. Pure.

    Secret "join-NODE-ID" on the host     the token, until when, and for which request it was used    written first
    Secret "bootstrap-token-ID" inside    what Kubernetes accepts; deleted when its node is there

The record follows from the NodeHandover, and the name of the node from the record: the id of a token stands for one
node. No role of a tenant reads the Secret on the host. Users inside are administrators there, and can read the token;
with it, they can get no other certificate than that of this node of their own cluster.

Source: Kubernetes, "Authenticating with Bootstrap Tokens".
"""

from __future__ import annotations

import base64
import datetime as dt
import re

import msgspec
from msgspec import UNSET

from tenantry.api.contribution import BOOTSTRAPPERS
from tenantry.api.errors import AlreadyExists, Conflict, InputError, NotFound
from tenantry.api.marks import GROUP, MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Json, Model, Resource
from tenantry.api.nodehandover import JOIN_TOKEN, JoinSecret, NodeHandover
from tenantry.engine import request
from tenantry.engine.clock import rfc3339
from tenantry.engine.plan import DirectWrite
from tenantry.world.leases import instant

SECRETS = Resource("", "v1", "secrets", "Secret")

PLACE = "kube-system"
"""The namespace of the tokens inside: the API server accepts no others."""

TYPE = "bootstrap.kubernetes.io/token"
"""The type of their Secrets, which never changes."""

LIFE = dt.timedelta(minutes=10)
"""How long a machine may take to use its token."""

_EXPIRES = f"{GROUP}/join-expires"
_USED = f"{GROUP}/join-used"
_EXPIRATION = "expiration"
_EXTENSION = dt.timedelta(minutes=15)
"""By how much Cluster API may have extended a token inside: the life of its own ones."""

_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_MOST_NODE = 200
"""How much of the name of a node the name of the Secret has."""


class _BootstrapToken(Model, frozen=True, kw_only=True):
    token: str = ""


class _Discovery(Model, frozen=True, kw_only=True):
    bootstrap_token: _BootstrapToken = _BootstrapToken()


class _JoinConfiguration(Model, frozen=True, kw_only=True):
    discovery: _Discovery = _Discovery()


class _KubeadmConfigSpec(Model, frozen=True, kw_only=True):
    join_configuration: _JoinConfiguration = _JoinConfiguration()


class _KubeadmConfig(Model, frozen=True, kw_only=True):
    """What is read of a KubeadmConfig (Cluster API, bootstrap/kubeadm, v1beta2)."""

    spec: _KubeadmConfigSpec = _KubeadmConfigSpec()


_kubeadm_config = msgspec.json.Decoder(_KubeadmConfig)


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """The token of one machine.

    Args:
        id: Six characters, which are no secret.
        secret: Sixteen characters.
        expires: Until when it is accepted.
        used: The uid of the request for a certificate that it was used for; "" for none.
        version: The resourceVersion of its record; "" for none.
        is_given: Whether another client has made it, so that a Secret of its content may be inside.
    """

    id: str
    secret: str
    expires: dt.datetime
    used: str = ""
    version: str = ""
    is_given: bool = False

    @property
    def text(self) -> str:
        """Return the token as clients send it, as in "abcdef.0123456789abcdef"."""
        return f"{self.id}.{self.secret}"

    def is_late(self, now: dt.datetime) -> bool:
        """Return whether it was not used in time."""
        return not self.used and now >= self.expires


def secret_name(node: str, token_id: str) -> str:
    """Return the name of the Secret on the host."""
    return f"join-{node[:_MOST_NODE].rstrip('-.')}-{token_id}"


def id_of(found: NodeHandover) -> str:
    """Return the id of the token that a machine joins with; "" for none."""
    join = found.status.join
    return join.secret.name.rpartition("-")[2] if join is not UNSET else ""


def recorded(found: NodeHandover, token: JoinToken) -> DirectWrite:
    """Return the creation of the record of a token, which ends with its NodeHandover."""
    meta = found.metadata
    owner: Json = {
        "apiVersion": found.resource.api_version,
        "kind": found.resource.kind,
        "name": meta.name,
        "uid": meta.uid,
    }
    value: Json = {
        "metadata": {
            "name": secret_name(meta.name, token.id),
            "namespace": SYSTEM_NAMESPACE,
            "labels": {MANAGED_BY: MANAGER},
            "annotations": {_EXPIRES: rfc3339(token.expires)},
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "data": {JOIN_TOKEN: _encoded(token.text)},
    }
    return DirectWrite(request=request.create_json(SECRETS, value), ignores=(AlreadyExists,))


def used(secret: JoinSecret, token: JoinToken, uid: str) -> DirectWrite:
    """Return the change of a record by which its token is used for one request.

    Only of the record that was read: two operators, while one takes over from the other, must not each use the token
    for a request of their own. After a Conflict, the record is read again before anything is approved.

    The token stays in the record: with it, a kubelet waits for its certificate, and gets no other one.
    """
    body: Json = {"metadata": {"resourceVersion": token.version, "annotations": {_USED: uid}}}
    asked = request.patch(SECRETS, secret.namespace, secret.name, body)
    return DirectWrite(request=asked, ignores=(Conflict, NotFound))


def removed(secret: JoinSecret) -> DirectWrite:
    """Return the deletion of a record."""
    return DirectWrite(request=request.delete(SECRETS, secret.namespace, secret.name), ignores=(NotFound,))


def read(secret: JoinSecret, text: bytes) -> JoinToken | None:
    """Return the token of a record; None if another client has made it unreadable.

    Args:
        secret: Its name.
        text: The Secret as JSON.
    """
    found: Json = msgspec.json.decode(text)
    notes: Json = found["metadata"].get("annotations") or {}
    data: Json = found.get("data") or {}
    try:
        expires = instant(str(notes.get(_EXPIRES, "")))
        whole = base64.b64decode(str(data.get(JOIN_TOKEN, ""))).decode()
    except (InputError, ValueError):
        return None
    token_id, _, value = whole.partition(".")
    named = secret.name.rpartition("-")[2]
    taken = str(notes.get(_USED, ""))
    if not taken and token_id != named:
        return None
    version = str(found["metadata"].get("resourceVersion", ""))
    return JoinToken(id=named, secret=value, expires=expires, used=taken, version=version)


def offered(node: str, token: JoinToken) -> DirectWrite:
    """Return the creation of a token inside."""
    value: Json = {
        "metadata": {"name": inside_name(token.id), "namespace": PLACE, "labels": {MANAGED_BY: MANAGER}},
        "type": TYPE,
        "data": _content(node, token),
    }
    return DirectWrite(request=request.create_json(SECRETS, value), ignores=(AlreadyExists,))


def is_offered(node: str, token: JoinToken, data: bytes) -> bool:
    """Return whether a Secret inside has the content of the one that was offered to a node.

    Cluster API's kubeadm bootstrap provider extends a token until its Machine has a Node. The record does not change.

    Args:
        node: The node.
        token: Its token.
        data: The Secret as JSON.
    """
    found: Json = msgspec.json.decode(data)
    given: Json = dict(found.get("data") or {})
    wanted = _content(node, token)
    expires, _ = given.pop(_EXPIRATION, ""), wanted.pop(_EXPIRATION)
    try:
        until = instant(base64.b64decode(str(expires)).decode())
    except (InputError, ValueError):
        return False
    return given == wanted and until <= token.expires + _EXTENSION


def given_by(config: bytes, expires: dt.datetime) -> JoinToken | None:
    """Return the token that a KubeadmConfig of Cluster API has; None if it has none.

    Args:
        config: The KubeadmConfig as JSON.
        expires: Until when the record holds.
    """
    try:
        found = _kubeadm_config.decode(config).spec.join_configuration.discovery.bootstrap_token.token
    except msgspec.MsgspecError:
        return None
    matched = _TOKEN.fullmatch(found)
    if matched is None:
        return None
    return JoinToken(id=matched[1], secret=matched[2], expires=expires, is_given=True)


class OfferedTokens:
    """The tokens that this process has offered inside: the status of a NodeHandover names them a moment later."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[str, JoinToken]] = {}

    def put(self, node: str, token: JoinToken, now: dt.datetime) -> None:
        """Remember a token until it is late."""
        kept = {name: each for name, each in self._tokens.items() if now < each[1].expires}
        self._tokens = {**kept, inside_name(token.id): (node, token)}

    def get(self, name: str) -> tuple[str, JoinToken] | None:
        """Return the node and the token of a Secret inside; None if it has none of them."""
        return self._tokens.get(name)


def withdrawn(token_id: str) -> DirectWrite:
    """Return the deletion of a token inside."""
    return DirectWrite(request=request.delete(SECRETS, PLACE, inside_name(token_id)), ignores=(NotFound,))


def inside_name(token_id: str) -> str:
    """Return the name of the Secret inside."""
    return f"bootstrap-token-{token_id}"


def _content(node: str, token: JoinToken) -> dict[str, str]:
    data = {
        "token-id": token.id,
        "token-secret": token.secret,
        _EXPIRATION: rfc3339(token.expires),
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": BOOTSTRAPPERS,
        "description": f"for the node {node}, by Tenantry",
    }
    return {key: _encoded(each) for key, each in data.items()}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
