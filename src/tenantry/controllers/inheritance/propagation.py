"""What there is to inherit, who inherits it, and handing it down: reads the caches, decides, writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.subnamespace import Inheritance, InheritanceMode, Subnamespace
from tenantry.api.wording import SHOWN, more
from tenantry.controllers.inheritance.contents import CopyContent, CopyContents
from tenantry.controllers.inheritance.desired import (
    ChildNamespace,
    CopyAction,
    CopyStep,
    Inherited,
    clash,
    decide,
    due,
    finished,
    is_closed,
    is_copy,
    is_done,
    is_source,
    mode_of,
    not_understood,
)
from tenantry.controllers.inheritance.kinds import Kinds
from tenantry.controllers.inheritance.sources import Sources
from tenantry.controllers.watched import BY_BINDING, BY_NAMESPACE
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.conditions import find
from tenantry.engine.copies import Copier
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked
from tenantry.world import inheritance

BY_INHERITANCE = "inheritance"
"""What children inherit of a namespace; with ANNOTATED behind its name, what says itself who does; with COPIES, what
the namespace inherited."""

ANNOTATED, COPIES = "!", "<"
WRITES = 64
"""How many copies are written at once."""

TRIES = 5
"""How often a copy is looked at again that others write, too, before the queue's back-off takes over."""

_metadata = msgspec.json.Decoder(Json)


def inheritance_keys(found: Observed) -> list[str]:
    """Return under what an object is found: see BY_HERITAGE."""
    where: list[str] = []
    if is_source(found):
        where.append(found.namespace)
        if marks.INHERIT in found.annotations:
            where.append(found.namespace + ANNOTATED)
    if is_copy(found):
        where.append(found.namespace + COPIES)
    return where


def source_key(resource: Resource, namespace: str, name: str) -> str:
    """Return the key under which the controller knows an object."""
    return f"{resource.full_name}|{namespace}|{name}"


class Propagation:
    """Everything of one cluster.

    Args:
        cluster: Its caches and its client.
        kinds: What can be inherited.
    """

    def __init__(self, cluster: Cluster, kinds: Kinds) -> None:
        self.kinds = kinds
        self._cluster = cluster
        self._copier = Copier(cluster)
        self._contents = CopyContents(self._copier, cluster.clock)
        self._sources = Sources(cluster)
        self._subnamespaces: Cache[Subnamespace] = cluster.cache(Subnamespace.resource)
        self._namespaces: Cache[Observed] = cluster.cache(Namespace.resource)
        self._writing = asyncio.Semaphore(WRITES)

    # -- who ------------------------------------------------------------------------------------

    def concerns(self, namespace: str) -> bool:
        """Tell whether a namespace has children, or is one."""
        if self.has_children(namespace):
            return True
        found = self._namespaces.get(namespace)
        return found is not None and marks.SUBNAMESPACE_UID in found.labels

    def has_children(self, namespace: str) -> bool:
        """Tell whether there are Subnamespaces in a namespace."""
        return self._subnamespaces.count(BY_NAMESPACE, namespace) > 0

    def children(self, namespace: str) -> Iterator[ChildNamespace]:
        """Yield the children of a namespace that are there."""
        for subnamespace in self._subnamespaces.by_index(BY_NAMESPACE, namespace):
            for found in self._namespaces.by_index(BY_BINDING, subnamespace.metadata.uid):
                if not found.deleting:
                    yield ChildNamespace(subnamespace=subnamespace, namespace=found, copied=subnamespace.status.copied)

    def child(self, namespace: str) -> ChildNamespace | None:
        """Return a namespace as the child that it is; None if it is the child of no namespace."""
        found = self._namespaces.get(namespace)
        if found is None or found.deleting:
            return None
        key = object_key(found.labels.get(marks.PARENT, ""), found.labels.get(marks.SUBNAMESPACE, ""))
        subnamespace = self._subnamespaces.get(key)
        if subnamespace is None or subnamespace.metadata.uid != found.labels.get(marks.SUBNAMESPACE_UID):
            return None
        return ChildNamespace(subnamespace=subnamespace, namespace=found, copied=subnamespace.status.copied)

    def is_going(self, namespace: str) -> bool:
        """Tell whether a namespace is being deleted, or gone: what it loses then is no news for its children."""
        found = self._namespaces.get(namespace)
        return found is None or found.deleting

    # -- everything into one child --------------------------------------------------------------

    async def inherit_all(self, subnamespace: Subnamespace, namespace: Observed) -> Inherited:
        """Bring everything of the parent into one child.

        Nothing is written where nothing differs, and nothing asked but for what is copied once.
        """
        kinds = await self.kinds.get()
        missing = due(kinds, subnamespace)
        try:
            # Lookups are shared with other reconciles: the failure of one must not cancel the rest.
            looks = (self._sources.look(kind, subnamespace.metadata.namespace) for kind in missing)
            await asyncio.gather(*looks)  # noqa: TID251 - see above
        except ApiError as error:
            return Inherited(copied=subnamespace.status.copied, error=error)
        current = self._namespaces.get(namespace.name) or namespace
        child = ChildNamespace(subnamespace=subnamespace, namespace=current, copied=subnamespace.status.copied)
        if self.is_going(child.parent) or current.deleting:
            return Inherited(copied=child.copied)
        steps: list[CopyStep] = []
        blocked = self.kinds.problems(subnamespace)
        waiting: set[str] = set()
        for resource in kinds:
            for source in self._candidates(resource, child):
                if not inheritance.is_valid(source.annotations.get(marks.INHERIT, inheritance.InheritAnnotation.ALL)):
                    blocked.append(not_understood(resource, source))
                if is_closed(source) and self._awaits(resource, source, child):
                    waiting.add(resource.full_name)
                    continue
                step = self._decide(resource, source.name, child)
                if step is not None and step.act is CopyAction.CLASH:
                    blocked.append(clash(step, child))
                elif step is not None:
                    steps.append(step)
            steps += self._stale(resource, child)
        clashes, failed, error = await self._all(steps, child) if steps else ([], set[str](), None)
        blocked += clashes
        copied = finished(kinds, child, waiting | failed)
        return Inherited(copied=copied, blocked=_few(blocked), error=error)

    def _candidates(self, resource: Resource, child: ChildNamespace) -> list[Observed]:
        """Return what a child may inherit of a kind: all of it, or what says so itself where the spec says None."""
        mode = inheritance.mode_for(child.subnamespace.spec, resource.full_name)
        where = child.parent if mode is not InheritanceMode.NONE else child.parent + ANNOTATED
        cache: Cache[Observed] = self._cluster.cache(resource)
        return cache.by_index(BY_INHERITANCE, where)

    def _stale(self, resource: Resource, child: ChildNamespace) -> Iterator[CopyStep]:
        cache: Cache[Observed] = self._cluster.cache(resource)
        for found in cache.by_index(BY_INHERITANCE, child.name + COPIES):
            step = self._decide(resource, found.name, child)
            if step is not None and step.act is CopyAction.DELETE:
                yield step

    def _awaits(self, resource: Resource, source: Observed, child: ChildNamespace) -> bool:
        """Tell whether a binding is to be copied once that a suspension has emptied; have it looked at again."""
        if not child.is_suspended:
            # It is about to be opened again, which is no news: it is a write of our own.
            self._cluster.wake(Inheritance, source_key(resource, source.namespace, source.name))
        return mode_of(resource, source, child) is InheritanceMode.COPY

    def _decide(self, resource: Resource, name: str, child: ChildNamespace) -> CopyStep | None:
        cache: Cache[Observed] = self._cluster.cache(resource)
        source, found = cache.get(f"{child.parent}/{name}"), cache.get(f"{child.name}/{name}")
        return decide(resource, name, source, found, child, is_like=self._copier.is_like)

    async def _all(
        self, steps: list[CopyStep], child: ChildNamespace
    ) -> tuple[list[Blocked], set[str], ApiError | None]:
        """Carry out steps, what lets people in last; return clashes, the kinds that failed, and the first failure."""
        people = [step for step in steps if step.resource == RoleBinding.resource and step.act is not CopyAction.DELETE]
        rest = [step for step in steps if step not in people]
        clashes: list[Blocked] = []
        for index, wave in enumerate((rest, people)):
            # The failure of one copy must not cancel the rest.
            copies = (self._carry(step, child) for step in wave)
            results = await asyncio.gather(*copies, return_exceptions=True)  # noqa: TID251 - see above
            clashes += [clash(result, child) for result in results if isinstance(result, CopyStep)]
            error = first_error(results)
            if error is not None:
                later = people if index == 0 else []
                failed = {step.resource.full_name for step in later}
                pairs = zip(wave, results, strict=True)
                failed |= {step.resource.full_name for step, result in pairs if isinstance(result, ApiError)}
                return clashes, failed, error
        return clashes, set(), None

    # -- one object into many children ----------------------------------------------------------

    async def propagate(self, resource: Resource, name: str, children: Iterable[ChildNamespace]) -> None:
        """Bring what is kept the same of one object to children, and have told what a person should know.

        A refusal is told, and tried again, by the one who keeps the child.

        Raises:
            ApiError: The first failure that passes by itself, after all others were tried.
        """
        work: list[tuple[CopyStep, ChildNamespace]] = []
        for index, child in enumerate(children):
            step = self._decide(resource, name, child)
            if self._is_news(resource, name, child, step):
                self._cluster.wake(Subnamespace, child.subnamespace.key)
            if step is not None and step.act is not CopyAction.CLASH and step.is_kept:
                work.append((step, child))
            if index % WRITES == WRITES - 1:
                await asyncio.sleep(0)
        # The failure of one copy must not cancel the rest.
        copies = (self._carry(step, child) for step, child in work)
        results = await asyncio.gather(*copies, return_exceptions=True)  # noqa: TID251 - see above
        for (_, child), result in zip(work, results, strict=True):
            if isinstance(result, CopyStep | Forbidden | Invalid):
                self._cluster.wake(Subnamespace, child.subnamespace.key)
        error = first_error(result for result in results if not isinstance(result, Forbidden | Invalid))
        if error is not None:
            raise error

    def _is_news(self, resource: Resource, name: str, child: ChildNamespace, step: CopyStep | None) -> bool:
        """Tell whether the status of a child has to say something of an object, or no longer."""
        said = find(child.subnamespace.status.conditions, reasons.INHERITED)
        if said is not None and said.status != "True":
            return True
        if step is not None and (step.act is CopyAction.CLASH or not step.is_kept):
            return True
        source: Observed | None = self._cluster.cache(resource).get(f"{child.parent}/{name}")
        annotation = source.annotations.get(marks.INHERIT) if source is not None else None
        if annotation is not None and not inheritance.is_valid(annotation):
            return True
        is_copied = mode_of(resource, source, child) is InheritanceMode.COPY
        return is_copied and resource == RoleBinding.resource and not is_done(resource, child)

    # -- one object into one child --------------------------------------------------------------

    async def _carry(self, step: CopyStep, child: ChildNamespace) -> CopyStep | None:
        """Carry out a step, again with what is then where others wrote meanwhile; return a clash that came to light.

        Raises:
            ApiError: The API server refuses or fails.
        """
        resource, name = step.resource, step.name
        for attempt in range(TRIES):
            try:
                async with self._writing:
                    await self._write(step, child)
            except NotFound:
                if step.act is CopyAction.CREATE:
                    return None  # the namespace is gone: the watch tells
            except Conflict:
                if attempt == TRIES - 1:
                    raise
            else:
                if self.has_children(child.name):
                    self._cluster.wake(Inheritance, source_key(resource, child.name, name))
                return None
            found = await self._copier.look(resource, child.name, name)
            # A suspension may have come meanwhile: what was decided before would open what it has closed.
            child = msgspec.structs.replace(child, namespace=self._namespaces.get(child.name) or child.namespace)
            source: Observed | None = self._cluster.cache(resource).get(f"{child.parent}/{name}")
            again = decide(resource, name, source, found, child, is_like=self._copier.is_like)
            if again is None or again.act is CopyAction.CLASH:
                return again
            step = again
        return None

    async def _write(self, step: CopyStep, child: ChildNamespace) -> None:
        found = step.found
        if step.act is CopyAction.DELETE and found is not None:
            await self._copier.delete(step.resource, found)
            return
        content = await self._contents.get(step.resource, step.source) if step.source is not None else None
        if content is None:
            return  # the source is gone, or no namespace inherits it now: the watch reports that
        if found is None:
            await self._create(step, child, content)
        else:
            await self._replace(step, found, child, content)

    async def _create(self, step: CopyStep, child: ChildNamespace, content: CopyContent) -> None:
        wanted = b"" if step.is_closed or not step.is_kept else content.likeness
        body = content.copy_for(child, msgspec.structs.replace(step, found=None))
        await self._copier.create(step.resource, child.name, step.name, body, wanted)

    async def _replace(self, step: CopyStep, found: Observed, child: ChildNamespace, content: CopyContent) -> None:
        resource = step.resource
        live = None
        if resource.full_name not in inheritance.SEVEN:
            # Controllers may hold on to an object of this kind, which a PUT must not loosen.
            data = await self._copier.read(resource, found.namespace, found.name)
            if data is None:
                raise NotFound(f"{resource.full_name} {found.key!r} is gone", status=404)
            live = _metadata.decode(data)["metadata"]
        wanted = b"" if step.is_closed or not step.is_kept else content.likeness
        try:
            await self._copier.replace(resource, found, content.copy_for(child, step, live), wanted)
        except Invalid:
            if resource.full_name not in inheritance.NEW_IF_IMMUTABLE:
                raise
            await self._copier.delete(resource, found)
            await self._create(step, child, content)


def first_error(results: Iterable[object]) -> ApiError | None:
    """Return the first failure of the API server's.

    Raises:
        BaseException: One that is no answer of the API server.
    """
    first: ApiError | None = None
    for result in results:
        if isinstance(result, ApiError):
            first = first or result
        elif isinstance(result, BaseException):
            raise result
    return first


def _few(blocked: list[Blocked]) -> tuple[Blocked, ...]:
    """Return at most three problems; the last one says how many more there are."""
    if len(blocked) <= SHOWN:
        return tuple(blocked)
    last = blocked[SHOWN - 1]
    counting = msgspec.structs.replace(last, message=f"{last.message}; {more(len(blocked) - SHOWN)}")
    return (*blocked[: SHOWN - 1], counting)
