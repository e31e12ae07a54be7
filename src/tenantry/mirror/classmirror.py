"""Shows classes of the lower side on the upper one: a controller of the upper cluster for each kind.

    lower class, rules ─► allowed? ─► upper class, marked         it follows the lower one, and comes back

upper                       allowed     next
──────────────────────────────────────────────────────────────────────
none                        yes         create it
made by the mirror          yes         bring it to what it should be
made by the mirror          no          delete it
made by users               yes         leave it alone, and record an event
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, Conflict, Invalid, NotFound
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind, NamedObject
from tenantry.mirror import classes, things
from tenantry.mirror.classes import LowerClass, MirroredClass, UpperClass
from tenantry.mirror.profile import Profile

ORIGIN = "origin"
"""The index of upper classes: those of the mirror, and the defaults of users."""

LISTED_SECONDS = 5.0
"""When to look again at a class of an optional kind that the upper side does not have yet."""

_OURS, _USERS_DEFAULT = "mirror", "default of users"


class ClassRules(Protocol):
    """What decides which classes of the lower side users may name."""

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """Return the watches of what decides.

        Args:
            keys: Returns the keys of all classes, for a change that may concern any of them.
        """
        ...

    def allows(self, resource: Resource, lower: LowerClass) -> bool:
        """Return whether users may name a class."""
        ...

    def default(self, resource: Resource) -> str:
        """Return the class that is the default whatever the lower side's own is; "" for that one."""
        ...


def lower_watch(mirrored: MirroredClass, keys: Callable[[Change[LowerClass]], Iterable[str]]) -> Watch:
    """Return the watch of the lower classes of a kind.

    Args:
        mirrored: The kind.
        keys: As in `Watch`.
    """
    return Watch(
        resource=mirrored.resource,
        decode=mirrored.lower,
        keys=keys,
        optional=mirrored.is_optional,
        awaited=not mirrored.is_optional,
    )


class ClassMirror:
    """Shows the classes of one kind; the key is the name.

    Args:
        mirrored: The kind.
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower cluster.
        rules: Which classes are shown.
    """

    kind = UpperClass

    def __init__(
        self, mirrored: MirroredClass, profile: Profile, upper: Cluster, lower: Cluster, rules: ClassRules
    ) -> None:
        self.name = mirrored.resource.plural
        self._mirrored = mirrored
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._rules = rules
        # By name: the uid of a class that the mirror has made, for one whose label users have removed.
        self._made: dict[str, str] = {}

    @property
    def resource(self) -> Resource:
        """Return the kind."""
        return self._mirrored.resource

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(
                resource=self.resource,
                decode=self._seen,
                keys=self._of_upper,
                indexes={ORIGIN: _origin},
                optional=self._mirrored.is_optional,
                awaited=not self._mirrored.is_optional,
            ),
            replace(lower_watch(self._mirrored, things.own_key), cluster=self._lower),
            *self._rules.watches(self._every_key),
        ]

    def _seen(self, data: msgspec.Raw) -> UpperClass:
        return self._mirrored.upper(data, self._profile.mark(classes.MARK))

    def _of_upper(self, change: Change[UpperClass]) -> Iterable[str]:
        """Return the names that a change concerns: of most classes of users, none."""
        both = [each for each in (change.before, change.after) if each is not None]
        was, is_now = (each is not None and _USERS_DEFAULT in _origin(each) for each in (change.before, change.after))
        if was != is_now:
            return {*self._every_key(), both[0].key}
        lower = self._lower.cache_of(self.resource)
        is_known = both[0].key in self._made or (lower is not None and lower.get(both[0].key) is not None)
        return [both[0].key] if is_known or any(each.is_marked for each in both) else ()

    def _every_key(self) -> Iterable[str]:
        upper, lower = self._upper.cache_of(self.resource), self._lower.cache_of(self.resource)
        ours = [each.key for each in upper.by_index(ORIGIN, _OURS)] if upper is not None else []
        return {*ours, *(each.key for each in lower or ())}

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one class of the upper side to what it should be.

        Raises:
            ApiError: The upper side refuses, as by a webhook of users; the queue tries again.
        """
        if not self._is_known():
            return LISTED_SECONDS if self._lower.cache_of(self.resource) is not None else None
        upper: UpperClass | None = cluster.cache(self.resource).get(key)
        wanted = self._wanted(key)
        if upper is None:
            self._made.pop(key, None)
            if wanted is None:
                cluster.forget(self.name, key)
                return None
            await self._create(wanted)
            return None
        if upper.is_marked:
            self._made[key] = upper.uid
        if self._made.get(key) != upper.uid:
            if wanted is not None:
                self._report_hidden(upper)
            return None
        if wanted is None:
            await self._delete(upper)
        elif classes.digest(wanted) != upper.digest:
            await self._replace(upper, wanted)
        return None

    def _is_known(self) -> bool:
        """Return whether the classes of both sides are known; a side need not have an optional kind."""
        sides = (self._upper, self._lower)
        return not self._mirrored.is_optional or all(each.is_listed(self.resource) for each in sides)

    def _wanted(self, name: str) -> Json | None:
        """Return the upper class of a name; None if there is to be none."""
        lower: LowerClass | None = self._lower.cache(self.resource).get(name)
        if lower is None or self._mirrored.is_built_in(name) or not self._rules.allows(self.resource, lower):
            return None
        default = self._rules.default(self.resource)
        is_default = lower.key == default if default else lower.is_default
        return self._mirrored.shown(lower, self._profile, is_default=is_default and not self._has_users_default())

    def _has_users_default(self) -> bool:
        """Return whether users have made a class of theirs the default.

        Of two defaults, Kubernetes refuses one, or objects that name none: the users' choice counts.
        """
        found: Iterable[UpperClass] = self._upper.cache(self.resource).by_index(ORIGIN, _USERS_DEFAULT)
        return any(self._made.get(each.key) != each.uid for each in found)

    # -- writes -----------------------------------------------------------------------------------

    async def _create(self, wanted: Json) -> None:
        # AlreadyExists: the watch is about to report it, and wakes this key.
        with suppress(AlreadyExists):
            made: UpperClass = await self._upper.writer.own(request.create_json(self.resource, wanted), quiet=True)
            self._made[made.key] = made.uid

    async def _replace(self, upper: UpperClass, wanted: Json) -> None:
        """Write a class whole: what users have added goes, and their finalizers, too."""
        meta: Json = {**wanted["metadata"], "uid": upper.uid, "resourceVersion": str(upper.version)}
        asked = request.replace_json(self.resource, {**wanted, "metadata": meta})
        try:
            # NotFound, Conflict: its event wakes this key.
            with suppress(NotFound, Conflict):
                await self._upper.writer.own(asked, quiet=True)
        except Invalid:
            # The API server never changes some fields. The deletion wakes this key, which creates it again.
            await self._delete(upper)

    async def _delete(self, upper: UpperClass) -> None:
        asked = request.delete(self.resource, "", upper.key, uid=upper.uid)
        if upper.is_held:
            # Otherwise it would stay for as long as users want. The event of this write wakes the key again.
            meta: Json = {"uid": upper.uid, "resourceVersion": str(upper.version), "finalizers": None}
            asked = request.patch(self.resource, "", upper.key, {"metadata": meta})
        with suppress(NotFound, Conflict):
            await self._upper.writer.send(asked)

    def _report_hidden(self, upper: UpperClass) -> None:
        about = ObjectMeta(name=upper.key, uid=upper.uid, resource_version=str(upper.version))
        note = (
            f"{self.resource.kind} {upper.key!r} is not the one that objects get which name it: delete it, and that one"
            " appears in its place"
        )
        self._upper.recorder.say(NamedObject(self.resource, about), EventKind.WARNING, reasons.OBJECT_EXISTS, note)


def _origin(found: UpperClass) -> Iterable[str]:
    if found.is_marked:
        return [_OURS]
    return [_USERS_DEFAULT] if found.is_default else ()
