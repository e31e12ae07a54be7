"""A world of objects in which plans are carried out step by step: for properties of the pure core, not to prove I/O.

What it knows of Kubernetes is what plans rely on: names are unique, a patch may name the resourceVersion that it is
for, a deletion the uid, nothing is made in a namespace that is not there or is going, and what is in a namespace, or
owned by an object, goes with it. `operate` does with one plan what `engine.apply.Applier` does, and stops before each
write, so that a test can lose it, lose its answer, or never go on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from typing import Any, cast

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import KubernetesObject, Resource, object_key
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT, namespace_of, tenant_of
from tenantry.engine.apply import Outcome, needs_new
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import Action, Blocked, Child, Edit, Plan, Step, step_for, update_patch
from testkit.rfc7396 import merged

Json = dict[str, Any]
Caches = dict[Resource, Cache[Observed]]
Request = Callable[[], Json]
"""One write; called, it happens."""


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


def operate(world: World, plan: Plan, edits: Callable[[], tuple[Edit, ...]]) -> Generator[Request, Json, Outcome]:
    """Carry out a plan, and edits once nothing is in their way; every write is yielded, its answer is sent in.

    An `ApiError` thrown in, or raised by the write, ends it, as it ends a reconcile.
    """
    done: list[Step] = []
    for wave in plan.waves:
        for step in wave:
            try:
                blocked = yield from _step(world, step)
            except ApiError as error:
                return Outcome(done=tuple(done), error=error)
            if blocked is not None:
                return Outcome(done=tuple(done), blocked=(blocked,))
            done.append(step)
    if plan.blocked:
        return Outcome(done=tuple(done), blocked=plan.blocked)
    for edit in edits():
        try:
            yield from _edit(world, edit)
        except ApiError as error:
            return Outcome(done=tuple(done), error=error)
    return Outcome(done=tuple(done))


def _step(world: World, step: Step) -> Generator[Request, Json, Blocked | None]:
    match step.action:
        case Action.CREATE:
            return (yield from _create(world, step))
        case Action.UPDATE:
            return (yield from _update(world, step))
        case Action.DELETE:
            found = cast("Observed", step.observed)
            try:
                yield lambda: world.delete(step.resource, step.key, found.uid)
            except NotFound:
                return None
            return None


def _create(world: World, step: Step) -> Generator[Request, Json, Blocked | None]:
    child = cast("Child", step.child)
    try:
        yield lambda: world.create(child.object)
    except AlreadyExists:
        return (yield from _meet(world, step))
    return None


def _meet(world: World, step: Step) -> Generator[Request, Json, Blocked | None]:
    live = world.get(step.resource, step.key)
    outcome = step_for(cast("Child", step.child), observe(step.resource, msgspec.json.encode(live)))
    return (yield from _update(world, outcome)) if isinstance(outcome, Step) else outcome


def _update(world: World, step: Step) -> Generator[Request, Json, Blocked | None]:
    child, found = cast("Child", step.child), cast("Observed", step.observed)
    try:
        live = world.get(step.resource, step.key)
    except NotFound:
        return (yield from _create(world, step))
    if live["metadata"]["uid"] != found.uid:
        return (yield from _meet(world, step))
    patch = update_patch(child.object, live)
    if not patch:
        return None
    if needs_new(step.resource, patch):
        yield lambda: world.delete(step.resource, step.key, found.uid)
        return (yield from _create(world, step))
    metadata = {**patch.get("metadata", {}), "resourceVersion": live["metadata"]["resourceVersion"]}
    yield lambda: world.patch(step.resource, step.key, {**patch, "metadata": metadata})
    return None


def _edit(world: World, edit: Edit) -> Generator[Request, Json, None]:
    try:
        live = world.get(edit.resource, edit.observed.key)
    except NotFound:
        return
    patch = edit.change(live)
    if patch:
        metadata = {**patch.get("metadata", {}), "resourceVersion": live["metadata"]["resourceVersion"]}
        yield lambda: world.patch(edit.resource, edit.observed.key, {**patch, "metadata": metadata})
