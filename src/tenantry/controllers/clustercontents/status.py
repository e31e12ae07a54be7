"""The condition about the contents of a control plane: pure."""

from __future__ import annotations

from collections.abc import Mapping

from tenantry.api import reasons
from tenantry.api.clusteraddons import AddOnMode, AddOnName, mode_of
from tenantry.api.wording import shortened
from tenantry.controllers.clustercontents.desired import ContentInputs
from tenantry.controllers.clustercontents.objects import RIGHTS
from tenantry.controllers.clustercontents.reverts import DELETION, RevertRecord
from tenantry.engine.conditions import Wanted


def condition(inputs: ContentInputs, refusals: Mapping[str, str], records: Mapping[str, RevertRecord]) -> Wanted:
    """Return the condition AddOnsReady.

    Args:
        inputs: The inputs.
        refusals: Why the API server inside refuses objects, by `ContentObject.key`.
        records: How often objects were brought back, after the writes.
    """
    by_key = {each.key: each.add_on for each in inputs.wanted}
    stopped = sorted(key for key, each in records.items() if each.stopped and key in by_key)
    if stopped:
        told = shortened(_drifted(key, by_key[key], records[key]) for key in stopped)
        return Wanted(reasons.ADD_ONS_READY, False, reasons.DRIFTED, told)
    if refusals:
        told = shortened(f"{key}: {refusals[key]}" for key in sorted(refusals))
        return Wanted(
            reasons.ADD_ONS_READY,
            False,
            reasons.REFUSED,
            f"the API server inside refuses what the operator keeps there: {told}",
        )
    there = sorted({each.add_on for each in inputs.wanted if each.add_on != RIGHTS})
    kept = [each for each in there if mode_of(inputs.given, AddOnName(each)) is not AddOnMode.NONE]
    named = shortened(kept) if kept else "none"
    return Wanted(reasons.ADD_ONS_READY, True, reasons.ESTABLISHED, f"add-ons are in place: {named}")


def _drifted(key: str, add_on: str, record: RevertRecord) -> str:
    if record.manager == DELETION:
        done = f"{key} is deleted again and again"
        remedy = "end what deletes it, and create it"
    else:
        done = f"{key} is changed again and again by the field manager {record.manager!r}"
        remedy = "end that client, and delete the object"
    other = "" if add_on == RIGHTS else f", or set the mode of {add_on} in spec.addOns to None"
    return f"{done}, and the operator does not bring it back any more: {remedy}{other}"
