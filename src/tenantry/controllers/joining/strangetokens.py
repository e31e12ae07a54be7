"""Deletes bootstrap tokens inside one control plane that none of its machines joins with. The glue.

Users inside are administrators there. A token of their own, without expiration and bound to rights, would outlive the
replacement of all credentials: it is an object, and signed by no authority. What stays is exactly what the operator has
offered to a machine, until it expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Conflict
from tenantry.api.model import object_key
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.conclusion import is_refusal
from tenantry.controllers.joining import tokens
from tenantry.controllers.joining.tokens import SECRETS, OfferedTokens
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind

RETRY_SECONDS = 30.0
"""When to try again what a webhook or a policy inside refuses: no event reports the end of it."""

_MOST_TOLD = 16
"""How many tokens that cannot be deleted get an event: users inside create as many as they like."""


class TokenHead(msgspec.Struct, frozen=True, gc=False):
    """A Secret of a token, without its content, labels and annotations, which users inside choose.

    Args:
        key: `namespace/name`.
        uid: Its uid.
        version: The resourceVersion.
    """

    key: str
    uid: str
    version: int


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata


_object = msgspec.json.Decoder(_Object)


def head(data: msgspec.Raw) -> TokenHead:
    """Return what identifies a Secret."""
    meta = _object.decode(data).metadata
    return TokenHead(object_key(meta.namespace, meta.name), meta.uid, int(meta.resource_version or 0))


class StrangeTokenController:
    """Reconciles the Secrets of bootstrap tokens inside of one control plane; the keys are theirs.

    Args:
        plane: The key of the VirtualControlPlane.
        uid: Its uid.
        home: The host: its caches have the NodeHandovers and the VirtualControlPlane.
        offered: The tokens that this process has offered inside, which no status may name yet.
    """

    name = "strangetokens"
    kind = TokenHead

    def __init__(self, plane: str, uid: str, home: Cluster, offered: OfferedTokens) -> None:
        self._plane = plane
        self._uid = uid
        self._home = home
        self._offered = offered
        self._told: set[str] = set()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller: tokens of which only the heads are cached, and what may name them."""
        selectors = {"fieldSelector": f"metadata.namespace={tokens.PLACE},type={tokens.TYPE}"}
        handovers = watched.node_handovers(self._of_handover)
        return [
            Watch(resource=SECRETS, decode=head, keys=_own_key, selectors=selectors),
            msgspec.structs.replace(handovers, cluster=self._home),
        ]

    def _of_handover(self, change: Change[NodeHandover]) -> Iterable[str]:
        before = change.before
        if before is None or before.spec.plane.uid != self._uid:
            return ()
        named = tokens.id_of(before)
        return [object_key(tokens.PLACE, tokens.inside_name(named))] if named else ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Delete a token unless a machine joins with it; return in how many seconds to look again, None for never.

        Raises:
            ApiError: One of both API servers does not answer; the queue tries again.
        """
        # A NodeHandover that is not known yet is not gone.
        await self._home.listed(NodeHandover.resource)
        found: TokenHead | None = cluster.cache(SECRETS).get(key)
        if found is None:
            self._told.discard(key)
            return None
        namespace, _, name = key.partition("/")
        left = await self._left(cluster, namespace, name)
        if left > 0:
            return left
        try:
            await cluster.writer.remove(SECRETS, namespace, name, uid=found.uid)
        except Conflict:
            return 0.0  # another one has its name now
        except ApiError as error:
            if not is_refusal(error):
                raise
            self._tell(key, error)
            return RETRY_SECONDS
        return None

    async def _left(self, cluster: Cluster, namespace: str, name: str) -> float:
        """Return for how many seconds a token is what a machine joins with; 0 if it is not."""
        expected = await self._expected(name)
        if expected is None:
            return 0.0
        node, token = expected
        left = (token.expires - cluster.clock.now()).total_seconds()
        # Users inside may have put another token under the name, or have taken its expiration off.
        data = await cluster.live.find(SECRETS, namespace, name) if left > 0 else None
        return left if data is not None and tokens.is_offered(node, token, data) else 0.0

    async def _expected(self, name: str) -> tuple[str, tokens.JoinToken] | None:
        """Return the node and the token that a Secret may have; None if no machine joins with a token of its name."""
        recent = self._offered.get(name)
        if recent is not None:
            return recent
        for each in self._home.cache(NodeHandover.resource):
            join = each.status.join
            if join is UNSET or each.spec.plane.uid != self._uid or tokens.inside_name(tokens.id_of(each)) != name:
                continue
            data = await self._home.live.find(SECRETS, join.secret.namespace, join.secret.name)
            token = tokens.read(join.secret, data) if data is not None else None
            if token is not None:
                return each.metadata.name, token
        return None

    def _tell(self, key: str, error: ApiError) -> None:
        plane: VirtualControlPlane | None = self._home.cache(VirtualControlPlane.resource).get(self._plane)
        if plane is None or key in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(key)
        message = (
            f"the Secret {key!r} inside is a bootstrap token of no machine of this cluster, with which its creator gets"
            f" in after the credentials are replaced, and the API server inside refuses its deletion: {error}"
        )
        self._home.recorder.say(plane, EventKind.WARNING, reasons.REFUSED, message)


def _own_key(change: Change[TokenHead]) -> Iterable[str]:
    return [change.after.key] if change.after is not None else ()
