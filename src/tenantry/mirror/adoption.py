"""Lower objects that were there before their upper ones, and are adopted instead of replaced: pure.

An adopted object keeps its name, which is that of its upper object, so that pods do not restart and Services and
volumes stay. Another program marks it, and creates the upper object:

    lower  web: marks owner, namespace, name and `adopted`, no uid    it waits: nothing deletes it
    upper  web is created                                             the mirror writes the mark uid
    lower  web: mark uid                                              a lower object like any other, of another name

When an adopted object is gone, its upper one gets a lower object with a computed name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenantry.api.model import Json, Resource, object_key
from tenantry.engine.cache import Cache
from tenantry.mirror import things
from tenantry.mirror.kinds.table import KINDS
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part
from tenantry.mirror.things import COPIED, PODS, Copy

ADOPTED = "adopted"
"""The mark of a lower object that keeps its name; of a Secret, its value is the type, which never changes."""

RESOURCES = {PODS.kind: PODS, **COPIED, **{each.resource.kind: each.resource for each in KINDS}}
"""The kinds of which objects can be adopted."""


def waits(annotations: Mapping[str, Any], profile: Profile) -> bool:
    """Return whether an adopted object waits for its upper one.

    Args:
        annotations: Of the lower object.
        profile: The configuration.
    """
    return bool(annotations.get(profile.mark(ADOPTED))) and not annotations.get(profile.mark("uid"))


def marks(kind: str, namespace: str, name: str, profile: Profile, secret_type: str = "") -> Json:
    """Return the merge patch of the metadata by which a lower object waits for an upper one of its name.

    Args:
        kind: The kind of both; see `RESOURCES`.
        namespace: The namespace of the upper object.
        name: The name of both.
        profile: The configuration.
        secret_type: The type of a Secret.

    Raises:
        ValueError: Objects of this kind cannot be adopted.
    """
    if kind not in RESOURCES:
        raise ValueError(f"objects of kind {kind} cannot be adopted")
    given = {"namespace": namespace, "name": name, ADOPTED: secret_type or "true"}
    return {
        "labels": profile.labels(namespace),
        "annotations": {profile.mark(mark): value for mark, value in given.items()},
    }


def adopted_names(
    profile: Profile, cache_of: Callable[[Resource], Cache[Any] | None]
) -> Callable[[str, str, str], bool]:
    """Return `Profile.is_adopted`: it looks into caches of the lower side.

    Args:
        profile: The configuration.
        cache_of: Returns the cache of the marked objects of a kind; None if it is not watched.
    """

    def is_adopted(kind: str, namespace: str, name: str) -> bool:
        resource = RESOURCES.get(kind)
        cache = cache_of(resource) if resource is not None else None
        found = cache.get(object_key(profile.namespace, name)) if cache is not None else None
        if found is None:
            return False
        labels, annotations = _marked(found)
        is_of = things.is_of(profile, found.key, labels) and bool(annotations.get(profile.mark(ADOPTED)))
        return is_of and things.upper_key(profile, annotations) == object_key(namespace, name)

    return is_adopted


def _marked(found: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - each kind is cached in its form
    if isinstance(found, Copy):
        return found.labels, found.annotations
    meta: Json = found.meta
    return part(meta, "labels"), part(meta, "annotations")
