"""What a running lower Pod must change to follow its upper one: pure.

    pods.down(upper) ─► the pod                   labels, annotations, images, tolerations, gates, deadline
        lower live   ─► pods/ephemeralcontainers  additions only
                     ─► pods/resize               cpu and memory of containers, and of the whole pod

Source: Kubernetes, "Pods" (pod update and replacement), "Ephemeral Containers", "Resize CPU and Memory Resources
assigned to Containers".
"""

from __future__ import annotations

import msgspec

from tenantry.api.model import Json
from tenantry.mirror import marking
from tenantry.mirror.pods import GIVEN_GATES, Down, gates, name_of
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part

_RESIZED = ("cpu", "memory")
_CONTAINERS = ("containers", "initContainers")


class PodChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The merge patches with which a lower pod follows its upper one; {} for none.

    Args:
        pod: Of the pod itself.
        ephemeral: Of its subresource `ephemeralcontainers`.
        resize: Of its subresource `resize`.
        refusal: Why a part of the upper pod cannot go down; "" if all of it can.
    """

    pod: Json = {}
    ephemeral: Json = {}
    resize: Json = {}
    refusal: str = ""

    @property
    def is_current(self) -> bool:
        """Return whether the lower pod has the spec of the upper one."""
        return not self.refusal and "spec" not in self.pod and not self.ephemeral and not self.resize


def changes(made: Down, lower: Json, profile: Profile) -> PodChanges:
    """Return what a lower pod must change.

    Labels and annotations are removed only if they came from the upper pod: programs of the lower side add their own.

    Args:
        made: What `pods.down` makes of the upper Pod as it is now. A refused one causes no changes.
        lower: The lower Pod that was made of it before. One of another uid gets no changes: it must be replaced.
        profile: The configuration.
    """
    if made.refusal:
        return PodChanges(refusal=made.refusal)
    wanted, spec = part(made.object, "metadata"), part(made.object, "spec")
    lower_metadata, lower_spec = part(lower, "metadata"), part(lower, "spec")
    annotations = part(lower_metadata, "annotations")
    if annotations.get(profile.mark("uid")) != wanted["annotations"][profile.mark("uid")]:
        return PodChanges()
    meta = marking.changed(lower_metadata, wanted, profile, (GIVEN_GATES,))
    changed = _changed_spec(spec, lower_spec, marking.listed(annotations, GIVEN_GATES, profile))
    return PodChanges(
        pod=({"metadata": meta} if meta else {}) | _of_spec(changed),
        ephemeral=_of_spec(_added(made.ephemeral, lower_spec)),
        # With the images of the other patch, which is sent before: a merge patch replaces lists.
        resize=_of_spec(_resized(spec, {**lower_spec, **changed})),
        refusal=made.ephemeral_refusal,
    )


def _of_spec(changed: Json) -> Json:
    return {"spec": changed} if changed else {}


def _changed_spec(spec: Json, live: Json, given_gates: list[str]) -> Json:
    patch: Json = {}
    deadline, running = spec.get("activeDeadlineSeconds"), live.get("activeDeadlineSeconds")
    # The API server only accepts a shorter deadline.
    if deadline is not None and (not isinstance(running, int) or deadline < running):
        patch["activeDeadlineSeconds"] = deadline
    for field in _CONTAINERS:
        images = {each["name"]: each["image"] for each in spec.get(field, ()) if each.get("name") and each.get("image")}
        have = items(live, field)
        changed = [{**each, "image": images[name_of(each)]} if name_of(each) in images else each for each in have]
        if changed != have:
            patch[field] = changed
    tolerations = _tolerations(spec.get("tolerations", []), items(live, "tolerations"))
    if tolerations != items(live, "tolerations"):
        patch["tolerations"] = tolerations
    open_gates = set(given_gates).difference(gates(spec))
    left = [gate for gate in items(live, "schedulingGates") if name_of(gate) not in open_gates]
    if left != items(live, "schedulingGates"):
        patch["schedulingGates"] = left
    return patch


def _tolerations(wanted: list[Json], live: list[Json]) -> list[Json]:
    """Return the tolerations that a lower pod must have: the API server accepts additions and other seconds."""
    missing = {_identified(each): each for each in wanted}
    kept = [missing.pop(_identified(each), each) for each in live]
    return [*kept, *missing.values()]


def _identified(toleration: Json) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, str(value)) for key, value in toleration.items() if key != "tolerationSeconds"))


def _added(wanted: tuple[Json, ...], live: Json) -> Json:
    have = items(live, "ephemeralContainers")
    names = {name_of(each) for each in have}
    missing = {name_of(each): each for each in wanted if name_of(each) not in names}
    # The whole list, as a merge patch replaces it. The API server refuses it if another one was added meanwhile.
    return {"ephemeralContainers": [*have, *missing.values()]} if missing else {}


def _resized(spec: Json, live: Json) -> Json:
    patch: Json = {}
    for field in _CONTAINERS:
        wanted = {each["name"]: part(each, "resources") for each in spec.get(field, ()) if each.get("name")}
        have = items(live, field)
        resized = [_with_resources(each, wanted.get(name_of(each), {})) for each in have]
        if resized != have:
            patch[field] = resized
    whole = _with_resources(live, part(spec, "resources"))
    return patch if whole is live else {**patch, "resources": whole["resources"]}


def _with_resources(live: Json, wanted: Json) -> Json:
    """Return a container or spec with the quantities that the upper one names; the others are the lower side's."""
    have = part(live, "resources")
    differing: Json = {}
    for side in ("requests", "limits"):
        there, named = part(have, side), part(wanted, side)
        other = {key: named[key] for key in _RESIZED if key in named and str(there.get(key)) != str(named[key])}
        if other:
            differing[side] = {**there, **other}
    return {**live, "resources": {**have, **differing}} if differing else live
