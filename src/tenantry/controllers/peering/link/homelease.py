"""The Lease by which one home at a time writes at a peer: it detects a home that exists twice.

A cluster that was cloned, or restored from a backup beside the original, has the credentials of the original, and would
write the same objects at the peer. Each replica of the home's operator that connects names itself as

    <cluster id of the home>/<replica>

in the Lease of the guest, every ten seconds, and writes nothing at the peer without it:

    the Lease is free, has expired, is ours, or names a replica that this cluster has recorded ─► take it
    another replica has renewed it ─► write nothing, report HomeTwice, wait for its end

A write has a deadline, so that one that began with the Lease ends with it. What the network delivers later cannot be
taken back: the mirror and the shares name uids and resourceVersions in what they change.

A replica is recorded in the PeerCluster before it takes the Lease, so that the next leader takes over at once. A home
that waits leaves its name in an annotation, by which the holder and the peer report it, too.

The Lease catches copies of a home, and no thieves: these can write whatever it says. It is in `tenantry-peers`, with
the name of the guest: in the guest's own namespaces, a guest that is suspended for its silence could not come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

import msgspec

from tenantry.api.errors import Conflict, RetryableError, TenantryError
from tenantry.api.model import Json
from tenantry.api.peercluster import CONTENDER, PEERS_NAMESPACE
from tenantry.engine.clock import Clock, rfc3339_micro
from tenantry.engine.lease import Lease
from tenantry.engine.pace import Pace
from tenantry.engine.reader import Reader
from tenantry.engine.writer import Writer

DURATION_SECONDS = 40
RENEW_SECONDS = 10.0
DEADLINE_SECONDS = 30.0
"""A home that could not renew the Lease for so long writes nothing, before another one may begin."""

WRITE_SECONDS = 10.0
"""The deadline of a write that began before, with all its attempts: it ends before another home may begin."""

CONTENDED_SECONDS = 60.0
"""How long a name in the annotation that does not change is shown."""

WAIT_SECONDS = 5.0
"""When a write is tried again that had to wait for the Lease."""

log = logging.getLogger(__name__)


class HomeLease:
    """One replica's part in the Lease of its home at one peer.

    Args:
        identity: `<cluster id>/<replica>`.
        guest: The PeerCluster at the peer: the name of the Lease.
        reader: Reads at the peer.
        writer: Writes at the peer; nothing but this class uses it.
        clock: The clock.
        changed: Called when `twice` or `is_held` changes.
    """

    def __init__(
        self,
        identity: str,
        guest: str,
        *,
        reader: Reader,
        writer: Writer,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.identity = identity
        self._guest = guest
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._changed = changed
        self._predecessors: Collection[str] = ()
        self._held: Lease | None = None
        self._renewed = float("-inf")
        # What was seen of another holder and of a contender, and since when by our own clock; whether the name of the
        # contender was removed since.
        self._seen: tuple[object, float] = (None, 0.0)
        self._contender: tuple[str, float, bool] = ("", 0.0, False)
        self.twice = ""
        """The identity of another home that uses the Lease; "" for none."""

    @property
    def is_held(self) -> bool:
        """Return whether this home may write at the peer."""
        return self._clock.monotonic() - self._renewed < DEADLINE_SECONDS

    async def take(self, predecessors: Collection[str]) -> None:
        """Wait until the Lease is ours.

        Args:
            predecessors: Replicas of this home that may have it: they write no more.

        Raises:
            TenantryError: The peer refuses, or does not answer.
        """
        self._predecessors = predecessors
        while not await self.attempt():  # noqa: ASYNC110 - nothing reports that a Lease is free
            await asyncio.sleep(RENEW_SECONDS / 2)

    async def keep(self) -> None:
        """Renew the Lease until cancelled; take it again when it was lost."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            was_held = self.is_held
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self.attempt()
            except (TenantryError, TimeoutError) as error:
                log.debug("the Lease of a home is not renewed", extra={"error": str(error)})
            if was_held != self.is_held:
                self._changed()

    async def attempt(self) -> bool:
        """Take or renew the Lease if it is ours to take; return whether it is ours."""
        now = self._clock.monotonic()
        before = self.twice
        try:
            return await self._try(now)
        finally:
            if before != self.twice:
                self._changed()

    async def _try(self, now: float) -> bool:
        if self._held is not None:
            try:
                # At the resourceVersion of our last write: if it succeeds, nothing else has been written since.
                return await self._write(self._held, now)
            except Conflict:
                self._held = None
        lease = await self._reader.get(Lease, self._guest, PEERS_NAMESPACE)
        holder = lease.spec.holder_identity or ""
        if self._seen[0] != lease.spec:
            self._seen = (lease.spec, now)
        is_ours = holder in {"", self.identity, *self._predecessors}
        if not is_ours and now - self._seen[1] <= DURATION_SECONDS:
            self.twice, self._renewed = holder, float("-inf")
            contender: Json = {"metadata": {"annotations": {CONTENDER: self.identity}}}
            await self._writer.patch(Lease.resource, PEERS_NAMESPACE, self._guest, contender)
            return False
        try:
            return await self._write(lease, now)
        except Conflict:
            return False  # the next try looks at what was written in between

    async def _write(self, lease: Lease, now: float) -> bool:
        body = self._body(version=lease.metadata.resource_version, now=now, lease=lease)
        found = await self._writer.patch(Lease.resource, PEERS_NAMESPACE, self._guest, body)
        metadata = msgspec.structs.replace(
            lease.metadata, resource_version=str(found.version), annotations=_annotations(lease, body)
        )
        self._held = msgspec.structs.replace(lease, metadata=metadata)
        self._renewed, self._predecessors, self.twice = now, (), self._contender[0]
        return True

    def _body(self, *, now: float, version: str, lease: Lease) -> Json:
        """Return the patch that renews the Lease at a resourceVersion."""
        spec: Json = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": rfc3339_micro(self._clock.now()),
        }
        if lease.spec.holder_identity != self.identity:
            spec["acquireTime"] = spec["renewTime"]
        metadata: Json = {"resourceVersion": version}
        if self._looks_for_contender(lease.metadata.annotations.get(CONTENDER, ""), now):
            metadata["annotations"] = {CONTENDER: None}
        return {"metadata": metadata, "spec": spec}

    def _looks_for_contender(self, name: str, now: float) -> bool:
        """Take in who waits for the Lease; return whether to remove the name: who still waits writes it again."""
        known, since, is_removed = self._contender
        if name in {self.identity, *self._predecessors}:
            self._contender = ("", now, False)
            return True
        if name and (name != known or is_removed):
            self._contender = (name, now, False)
        elif name and now - since > CONTENDED_SECONDS:
            self._contender = (name, now, True)
            return True
        elif not name and (not is_removed or now - since > 2 * RENEW_SECONDS):
            self._contender = ("", now, False)
        return False


def _annotations(lease: Lease, body: Json) -> dict[str, str]:
    """Return the annotations that a Lease has after a patch."""
    changed: Json = body["metadata"].get("annotations") or {}
    return {key: value for key, value in lease.metadata.annotations.items() if key not in changed}


class LeasedPace(Pace):
    """Lets writes at a peer pass at a bounded rate while the home has its Lease.

    Args:
        lease: The Lease.
        per_second: The steady rate.
        burst: How many pass at once after a time without any.
    """

    def __init__(self, lease: HomeLease, per_second: float, burst: int) -> None:
        super().__init__(per_second, burst)
        self._lease = lease

    async def turn(self) -> None:
        """Wait until the caller may go on.

        Raises:
            RetryableError: The home does not have its Lease: it must not write.
        """
        await super().turn()
        if not self._lease.is_held:
            raise RetryableError("this home does not have its Lease at the peer", after_seconds=WAIT_SECONDS)
