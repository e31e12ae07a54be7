"""Which objects of a control plane differ from what they should be, and what is written: pure.

    wanted ─┐
    seen  ──┴─► outdated() ─► who has changed them (a read of the glue) ─► plan() ─► objects to apply, records

An object differs if one of the fields that the operator owns does. Other fields, such as defaults, are not compared.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from tenantry.api.clusteraddons import AddOnMode, AddOnName, ClusterAddOn, mode_of
from tenantry.api.marks import ADD_ON, FIELD_MANAGER, MANAGED_BY, MANAGER
from tenantry.api.model import Json
from tenantry.controllers.clustercontents import reverts
from tenantry.controllers.clustercontents.objects import CONFIG_MAPS, RECORD, RIGHTS, SYSTEM, ContentObject
from tenantry.controllers.clustercontents.reverts import RevertRecord


class ContentInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about the contents of one control plane.

    Args:
        wanted: All objects, whatever the modes are.
        given: The modes of the spec.
        seen: The objects of the operator that are there, by `ContentObject.key`.
        created: The add-ons that were created once.
        records: How often objects were brought back, by key.
        now: The time.
    """

    wanted: Sequence[ContentObject]
    given: tuple[ClusterAddOn, ...] = ()
    seen: Mapping[str, Json] = {}
    created: frozenset[AddOnName] = frozenset()
    records: Mapping[str, RevertRecord] = {}
    now: dt.datetime


class ContentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done.

    Args:
        apply: Objects to apply, in this order.
        records: How often objects were brought back, afterwards.
    """

    apply: tuple[ContentObject, ...] = ()
    records: Mapping[str, RevertRecord] = {}


def outdated(inputs: ContentInputs) -> tuple[ContentObject, ...]:
    """Return the objects that the operator would bring to what they should be."""
    return tuple(each for each in inputs.wanted if _is_kept(inputs, each) and differs(each.body, _found(inputs, each)))


def _found(inputs: ContentInputs, each: ContentObject) -> Json:
    return inputs.seen.get(each.key, {})


def _is_kept(inputs: ContentInputs, each: ContentObject) -> bool:
    """Return whether the operator creates an object, or brings it back."""
    if each.add_on == RIGHTS:
        return True
    name = AddOnName(each.add_on)
    mode = mode_of(inputs.given, name)
    return mode is AddOnMode.MANAGED or (mode is AddOnMode.ONCE and name not in inputs.created)


def plan(inputs: ContentInputs, changed_by: Mapping[str, str]) -> ContentPlan:
    """Return what is to be done about the objects that differ.

    Args:
        inputs: The inputs.
        changed_by: The field managers of objects that were as they should be before, by key: `reverts.DELETION` for
            one that is gone. An object that is not here was never as it should be, or the operator itself has other
            wishes now.
    """
    records = {key: each for key, each in inputs.records.items() if not _is_over(inputs, key, each)}
    todo: list[ContentObject] = []
    for each in outdated(inputs):
        if each.key in changed_by:
            records[each.key] = reverts.changed(records.get(each.key), changed_by[each.key], inputs.now)
        record = records.get(each.key)
        if record is None or not record.stopped:
            todo.append(each)
    return ContentPlan(apply=tuple(todo), records=records)


def _is_over(inputs: ContentInputs, key: str, record: RevertRecord) -> bool:
    """Return whether nothing has to be remembered of an object: a person has ended the quarrel about it."""
    wanted = next((each for each in inputs.wanted if each.key == key), None)
    if wanted is None or not _is_kept(inputs, wanted):
        return True
    return record.stopped and not differs(wanted.body, _found(inputs, wanted))


def created_once(inputs: ContentInputs) -> ContentObject | None:
    """Return the ConfigMap that names the add-ons that were created once; None if it is as it should be.

    An add-on of another mode is not named, so that it is created again when its mode becomes Once.
    """
    once = {each for each in AddOnName if mode_of(inputs.given, each) is AddOnMode.ONCE}
    there = {each for each in once if _is_there(inputs, _of(inputs, each))}
    names = sorted(once & (inputs.created | there))
    if frozenset(names) == inputs.created:
        return None
    meta = {"name": RECORD, "namespace": SYSTEM, "labels": {MANAGED_BY: MANAGER, ADD_ON: RIGHTS}}
    body: Json = {"metadata": meta, "data": dict.fromkeys(map(str, names), str(AddOnMode.ONCE))}
    return ContentObject(add_on=RIGHTS, resource=CONFIG_MAPS, body=body)


def _is_there(inputs: ContentInputs, wanted: Sequence[ContentObject]) -> bool:
    """Return whether an add-on was created: one without objects, as before the first real node, is still to come."""
    return bool(wanted) and not any(differs(each.body, _found(inputs, each)) for each in wanted)


def _of(inputs: ContentInputs, name: AddOnName) -> Sequence[ContentObject]:
    return [each for each in inputs.wanted if each.add_on == name]


# -- comparison -----------------------------------------------------------------------------------


def differs(wanted: object, found: object) -> bool:
    """Return whether a value lacks something that is wanted; more fields than wanted are no difference.

    Elements of lists are compared by their names if they have some, as server-side apply merges them, else in order.
    """
    if isinstance(wanted, dict):
        fields, there = cast("Json", wanted), cast("Json", found) if isinstance(found, dict) else {}
        return any(differs(value, there.get(key)) for key, value in fields.items())
    if isinstance(wanted, list):
        listed = cast("list[object]", wanted)
        seen = cast("list[object]", found) if isinstance(found, list) else []
        if _are_named(listed):
            by_name = {each.get("name"): each for each in _maps(seen)}
            return any(differs(each, by_name.get(each["name"])) for each in _maps(listed))
        return len(listed) != len(seen) or any(differs(*both) for both in zip(listed, seen, strict=True))
    return bool(wanted != found)


def _are_named(wanted: Sequence[object]) -> bool:
    """Return whether elements of a list are merged by name; subjects are not: one that was added has rights."""
    maps = _maps(wanted)
    return bool(wanted) and len(maps) == len(wanted) and all("name" in each and "kind" not in each for each in maps)


def _maps(values: Sequence[object]) -> list[Json]:
    return [cast("Json", each) for each in values if isinstance(each, dict)]


def changer(managed: Sequence[Json]) -> str:
    """Return the field manager that has changed an object last; the operator's own if no other has since.

    Args:
        managed: The managedFields of the object. Writes of a status do not count.
    """
    writes = [each for each in managed if not each.get("subresource")]
    last = max((str(each.get("time", "")) for each in writes), default="")
    # Times have seconds: another client's write in the same second counts as the later one.
    others = [str(each.get("manager", "")) for each in writes if str(each.get("time", "")) == last]
    return next((each for each in sorted(others) if each != FIELD_MANAGER), FIELD_MANAGER)
