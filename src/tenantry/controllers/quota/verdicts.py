"""What the division of quota says of Subnamespaces and claims: the word of the quota controller to theirs."""

from __future__ import annotations

import msgspec

from tenantry.api.subnamespace import SubnamespaceQuota
from tenantry.engine.plan import Blocked


class ShareVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the share of one Subnamespace, or one claim.

    Args:
        generation: The generation of its spec that this is about.
        blocked: Why it may not be made or grown; None where it may.
        in_force: Its namespace's ResourceQuota is in force for every key that the tenant limits; of a claim:
            it is reserved.
        settled: Its own share is what it should be, and in force: nothing of it is on the way.
        totals: Of it and everything below.
    """

    generation: int
    blocked: Blocked | None = None
    in_force: bool = True
    settled: bool = True
    totals: SubnamespaceQuota = SubnamespaceQuota()


class Verdicts:
    """The verdicts, by the uid of the Subnamespace, or of the claim's Slice."""

    def __init__(self) -> None:
        self._by_uid: dict[str, ShareVerdict] = {}

    def get(self, uid: str) -> ShareVerdict | None:
        """Return the verdict on a Subnamespace, None where none was given yet."""
        return self._by_uid.get(uid)

    def set(self, uid: str, verdict: ShareVerdict) -> None:
        """Give a verdict."""
        self._by_uid[uid] = verdict

    def drop(self, uid: str) -> None:
        """Forget a Subnamespace that is gone."""
        self._by_uid.pop(uid, None)
