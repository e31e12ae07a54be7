"""A world of objects in which plans are carried out step by step: for properties of the pure core, not to prove I/O.

What it knows of Kubernetes is what plans rely on: names are unique, a patch may name the resourceVersion that it is
for, a deletion the uid, nothing is made in a namespace that is not there or is going, and what is in a namespace, or
owned by an object, goes with it. `operate` carries a plan out with `engine.apply.Applier` and stops at each request, so
that a test can lose it, lose its response, or never go on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import KubernetesObject, Resource, object_key
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT, namespace_of, tenant_of
from tenantry.engine.apply import Applier, Outcome
from tenantry.engine.cache import Cache, Change
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import Plan
from tenantry.engine.request import Request, Together, Verb, Work
from testkit.rfc7396 import merged

Json = dict[str, Any]
Caches = dict[Resource, Cache[Observed]]
Call = Callable[[], bytes]
"""One request; called, it happens, and the body of its response is returned."""

Running = Generator[Call, bytes, Outcome]
"""A reconcile that stops at each request."""


def is_labelled(value: Json) -> bool:
    """Tell whether an object says that Tenantry manages it."""
    labels: dict[str, str] = value["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER


class World:
    """The objects of a cluster."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str], Json] = {}
        self.revision = 1
        self._uids = 0

    # -- what a client can do ---------------------------------------------------------------------

    def get(self, resource: Resource, key: str) -> Json:
        """Return one object.

        Raises:
            NotFound: There is none.
        """
        found = self.objects.get((resource, key))
        if found is None:
            raise NotFound(f"{resource.full_name} {key!r} not found", status=404)
        return copy.deepcopy(found)

    def create(self, value: KubernetesObject) -> Json:
        """POST an object.

        Raises:
            AlreadyExists: There is one.
            NotFound: Its namespace is not there.
            Forbidden: Its namespace is going.
        """
        return self.put_in(value.resource, msgspec.to_builtins(value))

    def put_in(self, resource: Resource, value: Json) -> Json:
        """POST an object that is given as JSON; see `create`."""
        metadata: Json = value["metadata"]
        namespace: str = metadata.get("namespace", "")
        key = object_key(namespace, metadata["name"])
        if (resource, key) in self.objects:
            raise AlreadyExists(f"{resource.full_name} {key!r} already exists", status=409)
        if namespace and "deletionTimestamp" in self.get(Namespace.resource, namespace)["metadata"]:
            raise Forbidden(f"namespace {namespace!r} is being terminated", status=403)
        self._uids += 1
        return self._store(resource, key, {**value, "metadata": {**metadata, "uid": f"uid-{self._uids}"}})

    def patch(self, resource: Resource, key: str, patch: Json) -> Json:
        """PATCH an object.

        Raises:
            NotFound: There is none.
            Conflict: It is at another resourceVersion.
        """
        live = self.get(resource, key)
        version: object = patch.get("metadata", {}).get("resourceVersion")
        if version is not None and version != live["metadata"]["resourceVersion"]:
            raise Conflict(f"{resource.full_name} {key!r} has been modified", status=409)
        return self._store(resource, key, merged(live, patch))

    def delete(self, resource: Resource, key: str, uid: str = "") -> Json:
        """DELETE an object; a namespace only begins to go.

        Raises:
            NotFound: There is none.
            Conflict: It has another uid.
        """
        live = self.get(resource, key)
        if uid and live["metadata"]["uid"] != uid:
            raise Conflict(f"{resource.full_name} {key!r} has another uid", status=409)
        if resource == Namespace.resource:
            return self.patch(resource, key, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        self.revision += 1
        del self.objects[resource, key]
        return {}

    def answer(self, asked: Request) -> bytes:
        """Answer a request as the API server would.

        Raises:
            ApiError: It refuses.
        """
        key = object_key(asked.namespace, asked.name)
        match asked.verb:
            case Verb.GET:
                return msgspec.json.encode(self.get(asked.resource, key))
            case Verb.CREATE:
                if not isinstance(asked.body, KubernetesObject):
                    raise TypeError(f"the world knows no creation of {asked.resource.full_name}/{asked.subresource}")
                return msgspec.json.encode(self.create(asked.body))
            case Verb.PATCH:
                return msgspec.json.encode(self.patch(asked.resource, key, cast("Json", asked.body)))
            case Verb.REPLACE:
                return msgspec.json.encode(self.patch(asked.resource, key, msgspec.to_builtins(asked.body)))
            case Verb.DELETE:
                preconditions: Json = cast("Json", asked.body).get("preconditions", {})
                return msgspec.json.encode(self.delete(asked.resource, key, preconditions.get("uid", "")))

    # -- what Kubernetes' controllers do ----------------------------------------------------------

    def finish_deletions(self) -> None:
        """Let every namespace that is going be gone, with all that is in it."""
        going = {
            key
            for (resource, key), value in self.objects.items()
            if resource == Namespace.resource and "deletionTimestamp" in value["metadata"]
        }
        self.revision += 1
        self.objects = {
            (resource, key): value
            for (resource, key), value in self.objects.items()
            if not (resource == Namespace.resource and key in going)
            and value["metadata"].get("namespace", "") not in going
        }

    def _store(self, resource: Resource, key: str, value: Json) -> Json:
        self.revision += 1
        stored = copy.deepcopy(value)
        stored["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[resource, key] = stored
        return copy.deepcopy(stored)

    # -- what an operator sees --------------------------------------------------------------------

    def caches(self, *kinds: Resource) -> Caches:
        """Return the caches of informers that are in step now; of most kinds they see only what carries our label."""
        found: Caches = {kind: Cache({BY_TENANT: tenant_of, BY_NAMESPACE: namespace_of}) for kind in kinds}
        whole = (Namespace.resource, RoleBinding.resource)
        for (resource, _), value in self.objects.items():
            if resource in found and (resource in whole or is_labelled(value)):
                found[resource].put(observe(resource, msgspec.json.encode(value)))
        return found


class SeenThrough:
    """The caches of an operator that may lag, as the code that applies plans sees them; no reconciler is woken."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def cache_of(self, resource: Resource) -> Cache[Observed] | None:
        """Return the cache of a kind."""
        return self._caches.get(resource)

    def news(self, resource: Resource, change: Change[Observed]) -> None:
        """Wake no reconciler: a test begins the next one itself."""

    def decode(self, resource: Resource, data: bytes) -> Observed:
        """Return what an object is seen as."""
        return observe(resource, data)


def operate(plan: Plan, caches: Caches, world: World) -> Running:
    """Carry out a plan with the operator's own code: every request is yielded, its response is sent in.

    An `ApiError` that is thrown in, or raised by the request, is what the operator gets instead of a response.
    """
    return drive(world, Applier(SeenThrough(caches)).run(plan))


def drive(world: World, work: Work[Any]) -> Generator[Call, bytes, Any]:
    """Drive work that asks for requests, with a world that answers: the synchronous twin of `Writer.do`.

    Work that is to be done together is done in its order: whatever the order, the world must end as desired.
    """
    try:
        asked = next(work)
        while True:
            try:
                if isinstance(asked, Together):
                    answer: Any = []
                    for each in asked.work:
                        answer.append((yield from _result(world, each)))
                else:
                    answer = yield partial(world.answer, asked)
            except ApiError as error:
                asked = work.throw(error)
            else:
                asked = work.send(answer)
    except StopIteration as stop:
        return stop.value
    finally:
        work.close()


def _result(world: World, work: Work[Any]) -> Generator[Call, bytes, Any]:
    try:
        return (yield from drive(world, work))
    except TenantryError as error:
        return error
