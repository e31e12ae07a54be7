"""The write that makes one installed object what this version ships: pure.

A missing object is applied by name, because RBAC cannot limit a POST to names. One that differs is replaced, because a
merge would keep what another client added. Custom kinds that are being deleted come back afterwards.
"""

from __future__ import annotations

import msgspec

from tenantry.api.marks import INSTALLED_VERSION
from tenantry.api.model import Json
from tenantry.api.versionorder import is_later
from tenantry.api.wording import shortened
from tenantry.controllers.installation.comparison import differing, exact, marks_of
from tenantry.controllers.installation.release import HelmRelease, marked
from tenantry.controllers.installation.shipment import ShippedObject
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite, Plan


class RepairInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides about one object.

    Args:
        shipped: The object as this version ships it.
        version: This version.
        live: The object as it is; None if there is none.
        release: The release of Helm that has the installation; None for none.
    """

    shipped: ShippedObject
    version: str
    live: Json | None
    release: HelmRelease | None = None


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about one object.

    Args:
        plan: The write; empty if the object is as shipped, newer, or being deleted.
        what: What was wrong, for people.
        writer: The field manager that wrote the object last; "" if it is not known.
        version: The resourceVersion of the object as it was; 0 if there was none.
    """

    plan: Plan = Plan()
    what: str = ""
    writer: str = ""
    version: int = 0


def plan(inputs: RepairInputs) -> Repair:
    """Return what is done about one object."""
    shipped, live = inputs.shipped, inputs.live
    wanted = shipped.value()
    if live is None:
        # With the marks of its release: Helm deletes nothing else, and refuses to upgrade it.
        made = marked(wanted, inputs.release) if inputs.release is not None else wanted
        create = DirectWrite(request=request.apply(shipped.resource, made), ignores=())
        return Repair(plan=Plan(writes=(create,)), what="was missing")
    meta = live["metadata"]
    if meta.get("deletionTimestamp") or is_later(marks_of(meta, "labels").get(INSTALLED_VERSION, ""), inputs.version):
        return Repair()
    wrong = differing(wanted, live)
    if not wrong:
        return Repair()
    return Repair(
        plan=Plan(writes=(DirectWrite(request=request.replace_json(shipped.resource, exact(wanted, live))),)),
        what=f"differed in {shortened(wrong)}",
        writer=_last_writer(meta),
        version=int(meta["resourceVersion"]),
    )


def _last_writer(meta: Json) -> str:
    entries: list[Json] = [each for each in meta.get("managedFields") or () if not each.get("subresource")]
    times = {str(each.get("time", "")): str(each.get("manager", "")) for each in entries}
    return times[max(times)] if times else ""
