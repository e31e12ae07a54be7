"""Charges a control plane to its tenant's quota: no process starts before the quota covers it: pure.

spec.resources         ─►  the quota controller makes room in the tree of shares
─►  its verdict        ─►  status.charged records the share, and then the process starts
spec asks for less     ─►  status.charged gives it back, and then others get it
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.virtualcontrolplane import DatastoreKind, VirtualControlPlane, VirtualControlPlaneSpec
from tenantry.controllers.quota.objects import ETCD_CHARGE, plane_charge
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.engine import request
from tenantry.engine.plan import Blocked
from tenantry.engine.request import ApiRequest
from tenantry.world.shares.amounts import fits, lower, read, spelled

_MAKING_ROOM = Blocked(reason=reasons.PROGRESSING, message="room is made for it in the tenant's quota", passing=True)


class PlaneCharge(msgspec.Struct, frozen=True):
    """How far the charge of a control plane is.

    Args:
        write: The next write; None if there is none.
        waits: Why it does not have what its spec requests; None if it has.
        may_run: Its process may run, perhaps with less than its spec requests.
    """

    write: ApiRequest | None = None
    waits: Blocked | None = None
    may_run: bool = False


def find(found: VirtualControlPlane, verdict: ShareVerdict | None) -> PlaneCharge:
    """Return how far the charge of a control plane is.

    Args:
        found: The control plane.
        verdict: Of the quota controller; None before the first one.
    """
    charged = read(found.status.charged)
    try:
        wanted = plane_charge(found.spec)
    except InputError as error:
        problem = Blocked(reason=reasons.INVALID_SPEC, message=f"spec.resources: {error}")
        return PlaneCharge(waits=problem, may_run=bool(charged))
    if not fits(charged, wanted):
        # What it no longer requests must be given back before the quota controller gives it to others.
        return PlaneCharge(write=_record(found, lower(charged, wanted)))
    if charged == wanted:
        return PlaneCharge(may_run=True)
    # A verdict on an earlier spec says nothing about this one.
    about = (found.metadata.generation, found.status.wakes)
    known = verdict if verdict is not None and (verdict.generation, verdict.round) == about else None
    if known is None or (known.blocked is None and not known.in_force):
        return PlaneCharge(waits=_MAKING_ROOM, may_run=bool(charged))
    if known.blocked is not None:
        return PlaneCharge(waits=_short(found.spec, known.blocked, is_running=bool(charged)), may_run=bool(charged))
    return PlaneCharge(write=_record(found, wanted))


def _short(spec: VirtualControlPlaneSpec, blocked: Blocked, *, is_running: bool) -> Blocked:
    state = "the process keeps the resources that it has" if is_running else "the process is not started"
    beside = ""
    if spec.datastore.kind is DatastoreKind.OWN_ETCD:
        amounts = ", ".join(f"{key} {amount}" for key, amount in spelled(ETCD_CHARGE).items())
        beside = f" and an etcd of its own ({amounts})"
    message = (
        f"the tenant's quota does not cover spec.resources{beside}, and {state}: {blocked.message}; lower"
        " spec.resources, free some, or have an administrator raise spec.quota.hard of the Tenant"
    )
    return Blocked(reason=blocked.reason, message=message)


def _record(found: VirtualControlPlane, amounts: Mapping[str, int]) -> ApiRequest:
    # At the resourceVersion that it was read at: a change of the spec in between makes a new verdict necessary.
    status = replace(found.status, charged=spelled(amounts))
    return request.replace(replace(found, status=status), subresource="status")
