"""The verdicts of the quota controller on Subnamespaces and claims, which their controllers read."""

from __future__ import annotations

import msgspec

from tenantry.api.subnamespace import SubnamespaceQuota
from tenantry.engine.plan import Blocked


class ShareVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the share of one Subnamespace, or of one claim.

    Args:
        generation: The generation of the spec that was judged.
        round: See `ShareRequest.round`: a verdict on an earlier claim says nothing about this one.
        blocked: The reason why it may not be created or grow; None if it may.
        idle: The keys of its share because of which no pod can start in it or below; None if one can.
        in_force: Kubernetes enforces its ResourceQuota for every key that the tenant limits. For a claim: it is
            reserved.
        settled: Its own share is as divided and enforced, so that no batch changes it.
        totals: The totals of the share and everything below it.
    """

    generation: int
    round: int = 0
    blocked: Blocked | None = None
    idle: Blocked | None = None
    in_force: bool = True
    settled: bool = True
    totals: SubnamespaceQuota = SubnamespaceQuota()


class Verdicts:
    """The verdicts, by the uid of the Subnamespace, of the claim's Slice, or of the VirtualControlPlane."""

    def __init__(self) -> None:
        self._by_uid: dict[str, ShareVerdict] = {}
        self._adding: dict[str, frozenset[str]] = {}

    def get(self, uid: str) -> ShareVerdict | None:
        """Return the verdict on a Subnamespace; None before the first one."""
        return self._by_uid.get(uid)

    def set(self, uid: str, verdict: ShareVerdict) -> None:
        """Set the verdict."""
        self._by_uid[uid] = verdict

    def drop(self, uid: str) -> None:
        """Forget a Subnamespace that is gone."""
        self._by_uid.pop(uid, None)

    def set_adding(self, tenant: str, slices: frozenset[str] | None) -> None:
        """Set the slices whose contributed nodes may have added to a ResourceQuota of a tenant; None if not known."""
        if slices is None:
            self._adding.pop(tenant, None)
        else:
            self._adding[tenant] = slices

    def adding(self, tenant: str) -> frozenset[str] | None:
        """Return the slices of a tenant that may have added to a ResourceQuota; None if that is not known."""
        return self._adding.get(tenant)
