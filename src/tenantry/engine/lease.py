"""Leader election on a Lease: one replica of the operator writes at a time.

A replica that sees another one named in the annotation `tenantry.dev/preferred-holder` lets go of the lease, so that
`tenantry bench` (and an administrator, for maintenance) can hold the operator still without stopping it. A holder that
is gone loses the lease after `DURATION_SECONDS`.

Source: Kubernetes, "Leases"; the times are client-go's.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import ClassVar

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from tenantry.api.model import KubernetesObject, Model, ObjectMeta, Resource
from tenantry.engine.clock import Clock, rfc3339_micro
from tenantry.engine.observed import Observed
from tenantry.engine.reader import Reader
from tenantry.engine.writer import Writer
from tenantry.kube.client import Client

DURATION_SECONDS = 15
RENEW_SECONDS = 2.0
DEADLINE_SECONDS = 10.0
"""A holder that could not renew for so long stops acting, before another replica may begin."""

PREFERRED_HOLDER = "tenantry.dev/preferred-holder"
HOLDER_VERSION = "tenantry.dev/holder-version"
"""`VERSION/IDENTITY` of a holder. A holder of an older release does not write it, so that the identity must match."""

NAME = "tenantry-operator"

log = logging.getLogger(__name__)


class LeaseSpec(Model, frozen=True, kw_only=True):
    """Who holds it since when."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubernetesObject, frozen=True, kw_only=True):
    """A lease of coordination.k8s.io."""

    resource: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "leases", "Lease")

    spec: LeaseSpec = LeaseSpec()


class Election:
    """One replica's part in the election.

    Args:
        client: Any; a holder sends one request in `RENEW_SECONDS`, others one, or two when they acquire the lease.
        clock: For the times in the lease, and for judging our own.
        namespace: Where the lease is.
        identity: Who we are; unique among the replicas.
        name: The name of the lease.
        version: Of this replica, for `tenantry status`; "" writes none.
    """

    def __init__(
        self, client: Client, clock: Clock, *, namespace: str, identity: str, name: str = NAME, version: str = ""
    ) -> None:
        self._reader = Reader(client)
        self._writer = Writer(client)
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._marks = {HOLDER_VERSION: f"{version}/{identity}"} if version else {}
        self.holder = ""
        # The record that was seen and when by our own clock: others' clocks are never compared with ours.
        self._seen: tuple[LeaseSpec, float] | None = None
        self._renewed = 0.0
        # How often in a row the API server has refused a request.
        self._refusals = 0
        # The lease as we wrote it last, while it is ours.
        self._held: Lease | None = None

    async def attempt(self) -> bool:
        """Take the lease if it is ours to take, and return whether it is ours."""
        try:
            is_ours = await self._try()
            self._refusals = 0
            if is_ours:
                log.info("became the leader", extra={"identity": self.identity, "lease": self._name})
                return True
            if self.holder == self.identity:
                await self.release()  # it is not ours to have any more, and was not let go of when it was lost
        except ApiError as error:
            self._report("lease not read", error)
        return False

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        while not await self.attempt():  # noqa: ASYNC110 - nothing reports that a lease is free
            await asyncio.sleep(RENEW_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret

    async def hold(self) -> None:
        """Renew the lease; returns once it is lost, or another holder is preferred, and it is to be released."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            left = DEADLINE_SECONDS - (self._clock.monotonic() - self._renewed)
            if left <= 0:
                log.warning("lost the lease: it could not be renewed in time", extra={"identity": self.identity})
                return
            try:
                async with asyncio.timeout(left):
                    if not await self._try():
                        log.warning("lost the lease", extra={"holder": self.holder})
                        return
                self._refusals = 0
            except (ApiError, TimeoutError) as error:
                self._report("lease not renewed", error)

    async def release(self) -> None:
        """Release the lease, so that another replica can acquire it at once."""
        self._held = None
        try:
            lease = await self._reader.get(Lease, self._name, self._namespace)
            if lease.spec.holder_identity == self.identity:
                # Without a holder, another replica acquires the lease at once instead of after DURATION_SECONDS.
                await self._write(lease, msgspec.structs.replace(lease.spec, holder_identity=None, renew_time=None))
        except ApiError as error:
            log.warning("lease not released", extra={"error": str(error)})

    async def request(self) -> None:
        """Name ourselves as the preferred holder: the current one releases the lease within `RENEW_SECONDS`."""
        patch = {"metadata": {"annotations": {PREFERRED_HOLDER: self.identity}}}
        await self._writer.patch(Lease.resource, self._namespace, self._name, patch)

    def _report(self, message: str, error: Exception) -> None:
        """Log a failure, but not a single refusal: just after its start, an API server knows no roles yet."""
        self._refusals = self._refusals + 1 if isinstance(error, Forbidden) else 0
        log.log(logging.DEBUG if self._refusals == 1 else logging.WARNING, message, extra={"error": str(error)})

    async def _try(self) -> bool:
        """Take or renew the lease if it is ours to take, and return whether it is ours now."""
        now = self._clock.monotonic()
        if self._held is not None:
            # As client-go does, a holder writes without reading first: usually it is the only writer. Another write,
            # such as a preference for another holder, makes this one a Conflict, and then the lease is read.
            try:
                return await self._take(self._held, now)
            except Conflict:
                self._held = None
        try:
            lease = await self._reader.get(Lease, self._name, self._namespace)
        except NotFound:
            return await self._create(now)
        self.holder = lease.spec.holder_identity or ""
        if self._seen is None or self._seen[0] != lease.spec:
            self._seen = (lease.spec, now)
        if not self._may_hold(lease, now):
            return False  # who has it lets go of it once what is under way is ended; see `release`
        try:
            return await self._take(lease, now)
        except Conflict:
            # Another client wrote it in between. If we held it, we still do in this round; else the next round decides.
            return self._mine(lease)

    def _may_hold(self, lease: Lease, now: float) -> bool:
        assert self._seen is not None  # noqa: S101 - set by the caller
        quiet = now - self._seen[1]
        expired = quiet > (lease.spec.lease_duration_seconds or DURATION_SECONDS)
        preferred = lease.metadata.annotations.get(PREFERRED_HOLDER, "")
        if preferred and preferred != self.identity:
            return expired  # its turn, unless it does not come
        return self._mine(lease) or expired or not self.holder

    async def _take(self, lease: Lease, now: float) -> bool:
        """Write the lease as ours.

        Raises:
            Conflict: Another client wrote it since it was read.
        """
        mine = self._mine(lease)
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=DURATION_SECONDS,
            acquire_time=lease.spec.acquire_time if mine else self._now(),
            renew_time=self._now(),
            lease_transitions=(lease.spec.lease_transitions or 0) + (0 if mine else 1),
        )
        self._held = await self._write(lease, spec)
        self.holder = self.identity
        self._renewed = now
        return True

    async def _write(self, lease: Lease, spec: LeaseSpec) -> Lease:
        metadata: dict[str, object] = {"resourceVersion": lease.metadata.resource_version}
        if spec.holder_identity and not self._mine(lease):
            # The preference has served its purpose.
            metadata["annotations"] = {PREFERRED_HOLDER: None, **self._marks}
        patch = {"metadata": metadata, "spec": _spec_patch(spec)}
        written: Observed = await self._writer.patch(Lease.resource, self._namespace, self._name, patch)
        return msgspec.structs.replace(
            lease, spec=spec, metadata=msgspec.structs.replace(lease.metadata, resource_version=str(written.version))
        )

    def _mine(self, lease: Lease) -> bool:
        return lease.spec.holder_identity == self.identity

    async def _create(self, now: float) -> bool:
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=DURATION_SECONDS,
            acquire_time=self._now(),
            renew_time=self._now(),
            lease_transitions=0,
        )
        try:
            meta = ObjectMeta(name=self._name, namespace=self._namespace, annotations=self._marks)
            await self._writer.create(Lease(metadata=meta, spec=spec))
        except AlreadyExists:
            return False
        self._renewed = now
        return True

    def _now(self) -> str:
        return rfc3339_micro(self._clock.now())


def version_of(lease: Lease) -> str:
    """Return the version of the holder of a lease; "" if the holder has not written it."""
    version, _, identity = lease.metadata.annotations.get(HOLDER_VERSION, "").partition("/")
    return version if identity == lease.spec.holder_identity else ""


# Written out: the model leaves None out, but a merge patch removes a field only by an explicit null.
def _spec_patch(spec: LeaseSpec) -> dict[str, object]:
    return {
        "holderIdentity": spec.holder_identity,
        "leaseDurationSeconds": spec.lease_duration_seconds,
        "acquireTime": spec.acquire_time,
        "renewTime": spec.renew_time,
        "leaseTransitions": spec.lease_transitions,
    }
