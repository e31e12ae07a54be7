"""Gives stored upper objects what the lower API server chooses, when that cannot be what they have; see `Readdressing`.

lower side refuses the address of the upper object, or has another one ─► `begin` ─► `go_on` ─► the upper object has it

Both steps are writes of the upper object, and the second one passes the step that makes the lower object first. Between
them, no lower object changes; an operator that starts then takes the second one.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.model import Json, object_key
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.request import ApiRequest
from tenantry.mirror.kinds.kind import MirroredKind
from tenantry.mirror.profile import Profile
from tenantry.mirror.refusals import REFUSALS
from tenantry.mirror.shapes import part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import Thing

RELEASE_SECONDS = 3.0
"""How long an address must be refused: that of a lower object which was deleted is given back a moment later."""

RETRY_SECONDS = 0.5

PAUSE_SECONDS = 60.0
"""How long the address of an object stays: a webhook of the upper side may write another one each time."""


class AddressChange:
    """The changes of the objects of one kind; it does nothing for kinds without `Readdressing`.

    Args:
        mirrored: The kind.
        profile: The configuration.
        upper: The upper cluster.
        lower: The lower side.
    """

    def __init__(self, mirrored: MirroredKind, profile: Profile, upper: Cluster, lower: LowerSide) -> None:
        self._resource = mirrored.resource
        self._steps = mirrored.readdressing
        self._mark = profile.mark(self._steps.mark) if self._steps is not None else ""
        self._upper = upper
        self._lower = lower
        # By key: when the last change began.
        self._begun: dict[str, float] = {}
        # By key: since when the lower side has refused the address.
        self._refused: dict[str, float] = {}

    def is_between(self, upper: Json) -> bool:
        """Return whether an upper object is between both steps."""
        return self._steps is not None and self._steps.is_emptied(upper, self._mark)

    def is_replaceable(self, upper: Thing, lower: Thing) -> bool:
        """Return whether a lower object can never become what an upper one is."""
        return self._steps is not None and self._steps.is_replaceable(upper.spec, lower.spec)

    def freed(self, upper: Json) -> Json | None:
        """Return an upper object without what the lower API server chooses; None if it has nothing of that."""
        found = self._steps.freed(upper) if self._steps is not None else upper
        return found if found != upper else None

    async def accepts(self, asked: ApiRequest | None) -> bool:
        """Return whether the lower side accepts a request, which it does not carry out; None is always accepted.

        Raises:
            ApiError: It does not answer.
        """
        if asked is None:
            return True
        try:
            await self._lower.writer.send(replace(asked, is_dry_run=True))
        except REFUSALS:
            return False
        return True

    def left(self, key: str) -> float:
        """Take note that the lower side refuses an address; return in how many seconds to try it again, 0 for never."""
        now = self._upper.clock.monotonic()
        left = self._refused.setdefault(key, now) + RELEASE_SECONDS - now
        return min(max(left, 0.0), RETRY_SECONDS)

    def accepted(self, key: str) -> None:
        """Take note that the lower side does not refuse an object any more, or that there is no such object."""
        self._refused.pop(key, None)

    async def go_on(self, upper: Json, lower: Thing | None) -> bool:
        """Take the next step of an upper object, if one is due; return whether one was.

        Args:
            upper: The upper object, whole.
            lower: The lower object; None if there is none.

        Raises:
            ApiError: The upper side refuses it, or does not answer.
        """
        if self._steps is None:
            return False
        if patch := self._steps.filled(upper, self._mark):
            await self._send(upper, patch)
            return True
        if lower is None or lower.is_deleting or not self._steps.differs(part(upper, "spec"), lower.spec):
            return False
        return await self.begin(upper)

    async def begin(self, upper: Json) -> bool:
        """Take the first step of an upper object; return whether it was taken, which is seldom.

        Raises:
            ApiError: As in `go_on`.
        """
        meta, now = part(upper, "metadata"), self._upper.clock.monotonic()
        key = object_key(meta["namespace"], meta["name"])
        self._begun = {each: since for each, since in self._begun.items() if now - since < PAUSE_SECONDS}
        if self._steps is None or key in self._begun:
            return False
        await self._send(upper, self._steps.emptied(upper, self._mark))
        self._begun[key] = now
        self.accepted(key)
        return True

    async def _send(self, upper: Json, patch: Json) -> None:
        meta = part(upper, "metadata")
        # At its version: users may be changing the same fields.
        about = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], **patch["metadata"]}
        asked = request.patch(self._resource, meta["namespace"], meta["name"], {**patch, "metadata": about})
        # Its event wakes the key.
        with suppress(NotFound, Conflict):
            await self._upper.writer.own(asked)
