"""The kinds that can be inherited: the seven, and those that an administrator allows and the cluster serves.

They are watched from the first child on: a cluster without Subnamespaces does not pay for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.model import Resource
from tenantry.api.subnamespace import InheritanceMode, Subnamespace
from tenantry.api.tenancydefaults import NAME, InheritableKind, TenancyDefaults
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.plan import Blocked
from tenantry.world import inheritance

AGGREGATED = "tenantry.dev/aggregate-to-operator"
RETRY_SECONDS = 20.0
"""When to look again for a kind that is not served, or that the operator may not read."""


class Kinds:
    """The kinds that are watched.

    Args:
        cluster: Watches them.
        watch: How a kind is watched.
        controller: The name of the controller that is woken by their changes.
    """

    def __init__(self, cluster: Cluster, watch: Callable[[Resource], Watch], controller: str) -> None:
        self._cluster = cluster
        self._watch = watch
        self._controller = controller
        self._begun = asyncio.Lock()
        self._defaults: Cache[TenancyDefaults] = cluster.cache(TenancyDefaults.resource)
        self._seen: object = None
        self._retry_at = 0.0
        self.missing: dict[str, str] = {}
        self._allowed: tuple[Resource, ...] = ()
        self.served: tuple[Resource, ...] = ()
        self._by_name: dict[str, Resource] = {}
        self._reported = (self._allowed, self.missing)

    async def get(self) -> tuple[Resource, ...]:
        """Return the kinds, each watched and in step.

        Raises:
            TimeoutError: The API server does not list one in time.
        """
        if not self.served or not self._is_current():
            # One at a time: two children that ask first at the same time must not probe and watch twice.
            async with self._begun:
                await self._look()
                for resource in self._allowed:
                    await self._cluster.require(self._controller, self._watch(resource))
                self.served = self._allowed
        return self.served

    async def look(self) -> None:
        """Find the kinds that are allowed and served; `get` watches them."""
        async with self._begun:
            await self._look()

    def _is_current(self) -> bool:
        overdue = bool(self.missing) and self._cluster.clock.monotonic() >= self._retry_at
        # Probing costs requests, so it waits for a change of TenancyDefaults or for RETRY_SECONDS.
        same = self.served == self._allowed
        return same and self._version() == self._seen and not overdue

    def take_news(self) -> bool:
        """Return whether the statuses of children may differ from what they were at the last call."""
        before, self._reported = self._reported, (self._allowed, self.missing)
        return before != self._reported

    @property
    def retry_seconds(self) -> float | None:
        """Return when to look again for missing kinds; None if none is missing."""
        return RETRY_SECONDS if self.missing else None

    def find(self, full_name: str) -> Resource | None:
        """Return a kind that is watched, by `plural.group`."""
        return self._by_name.get(full_name)

    def problems(self, subnamespace: Subnamespace) -> list[Blocked]:
        """Return the problems of the kinds that a child requests and cannot inherit."""
        return [
            Blocked(reason=reasons.KIND_NOT_INHERITABLE, message=self._why_not(other.resource))
            for other in subnamespace.spec.inheritance.others
            if other.mode is not InheritanceMode.NONE and other.resource not in self._by_name
        ]

    def _why_not(self, kind: str) -> str:
        return self.missing.get(kind) or (
            f"kind {kind!r} of spec.inheritance.others is not allowed to be inherited: ask an administrator to add it"
            f" to spec.inheritableKinds of TenancyDefaults {NAME!r}, or take it out"
        )

    def _version(self) -> tuple[str, int]:
        found = self._defaults.get(NAME)
        # A deleted object that is created again begins with the same generation, so the uid counts, too.
        return (found.metadata.uid, found.metadata.generation) if found is not None else ("", 0)

    async def _look(self) -> None:
        overdue = bool(self.missing) and self._cluster.clock.monotonic() >= self._retry_at
        version = self._version()
        if self._allowed and version == self._seen and not overdue:
            return
        found = self._defaults.get(NAME)
        missing: dict[str, str] = {}
        kinds = list(inheritance.KINDS)
        # Probed before they are watched: `get` would wait in vain for the list of a kind that is not served.
        for resource in allowed_by(found):
            problem = await self._probe(resource)
            if problem:
                missing[resource.full_name] = problem
            elif resource not in kinds:
                # Before the RoleBindings, which are last because they admit users.
                kinds.insert(-1, resource)
        self._allowed, self._by_name = tuple(kinds), {kind.full_name: kind for kind in kinds}
        self.missing, self._seen = missing, version
        self._retry_at = self._cluster.clock.monotonic() + RETRY_SECONDS

    async def _probe(self, resource: Resource) -> str:
        """Return why a kind cannot be watched; "" if it can."""
        kind = resource.full_name
        if not inheritance.may_be_allowed(kind):
            return (
                f"kind {kind!r} can never be inherited: take it out of spec.inheritableKinds of TenancyDefaults"
                f" {NAME!r}"
            )
        try:
            is_served = await self._cluster.live.is_served(resource)
        # The operator's rights on further kinds come from aggregated ClusterRoles of an administrator.
        except Forbidden:
            return (
                f"kind {kind!r} cannot be inherited before the operator may get, list, watch, create, update and delete"
                f" it: an administrator has to allow it in a ClusterRole with the label {AGGREGATED}: 'true'"
            )
        except ApiError as error:
            if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
                return f"kind {kind!r} cannot be listed, and so not be inherited"
            raise
        if not is_served:
            return (
                f"kind {kind!r} is not served by the cluster in version {resource.version!r}: install it, or correct"
                f" spec.inheritableKinds of TenancyDefaults {NAME!r}"
            )
        return ""


def allowed_by(defaults: TenancyDefaults | None) -> list[Resource]:
    """Return the kinds beyond the seven that an administrator allows, whether or not the cluster serves them."""
    return [_resource(allowed) for allowed in defaults.spec.inheritable_kinds] if defaults is not None else []


def _resource(allowed: InheritableKind) -> Resource:
    return Resource(allowed.group, allowed.version, allowed.plural, allowed.kind, owned=inheritance.WHOLE)
