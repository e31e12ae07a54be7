"""A world of objects that answers requests as an API server does: for tests of decisions, without I/O.

It knows what plans rely on: names are unique, a patch may name the resourceVersion that it is for, a deletion the uid,
nothing is created in a namespace that is absent or terminating, and what is in a namespace, or owned by an object, goes
with it. Finalizers, generations and the status subresource work as in Kubernetes; validation and admission do not
exist here: tests/integration have the real API server.

`operate` carries a plan out with `engine.apply.Applier` and stops at each request, so that a test can lose the request,
lose its response, or never go on. `testkit.worldcluster` runs whole controllers.
"""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from tenantry.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TenantryError,
    TooManyRequests,
)
from tenantry.api.kubernetes import Namespace, ResourceQuota, RoleBinding
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import KubernetesObject, Resource, object_key
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT, namespace_of, tenant_of
from tenantry.engine.apply import Applier, Outcome
from tenantry.engine.cache import Cache, Change
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import Plan
from tenantry.engine.request import ApiRequest, PatchType, Together, Verb, Work, resume
from testkit.rfc7396 import merged

Json = dict[str, Any]
Caches = dict[Resource, Cache[Observed]]
Call = Callable[[], bytes]
"""One request; called, it happens, and the body of its response is returned."""

Running = Generator[Call, bytes, Outcome]
"""A reconcile that stops at each request."""


TERMINATING = "2026-01-01T00:00:00Z"
"""The deletionTimestamp of every object that is being deleted, unless the World has a clock."""


_IMMUTABLE = ("data", "binaryData", "immutable")
"""What never changes of a ConfigMap or a Secret that is immutable."""

SERVER_FIELDS = ("uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp")
"""Metadata that a PUT does not change."""


def is_labelled(value: Json) -> bool:
    """Return whether an object has the label of objects that Tenantry manages."""
    labels: dict[str, str] = value["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER


class _Objects(UserDict[tuple[Resource, str], Json]):
    """Objects by kind and key; two resources that differ only in the fields that Tenantry owns name one kind."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, Resource] = {}

    def _known(self, key: tuple[Resource, str]) -> tuple[Resource, str]:
        return self._kinds.setdefault(key[0].full_name, key[0]), key[1]

    def __getitem__(self, key: tuple[Resource, str]) -> Json:
        return super().__getitem__(self._known(key))

    def __setitem__(self, key: tuple[Resource, str], value: Json) -> None:
        super().__setitem__(self._known(key), value)

    def __delitem__(self, key: tuple[Resource, str]) -> None:
        super().__delitem__(self._known(key))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and super().__contains__(self._known(cast("tuple[Resource, str]", key)))


class World:
    """The objects of a cluster.

    Attributes:
        objects: Each object's JSON.
        protected: Keys of pods whose eviction a disruption budget refuses.
        forbidden: Subresources of which an admission policy refuses every patch, and plurals of kinds of which it
            refuses every creation, with its message.
        audiences: Those whose tokens the API server accepts itself.
        requested: The keys of ServiceAccounts whose tokens were requested, each with the spec of the request.
        unlisted: Full names of kinds that no client may list.
        taken: Addresses that Services of others have.
        chosen: Returns the address of a Service that gets one by an update; "" for the next one.
        moment: Returns the time of a deletion, RFC 3339.
    """

    def __init__(self) -> None:
        self.objects = _Objects()
        self.protected: set[str] = set()
        self.forbidden: dict[str, str] = {}
        self.audiences = {""}
        self.requested: list[tuple[str, Json]] = []
        self.unlisted: set[str] = set()
        self.taken: set[str] = set()
        self.chosen: Callable[[], str] = str
        self.moment: Callable[[], str] = lambda: TERMINATING
        self.revision = 1
        self._uids = 0
        self._deleted: set[str] = set()

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

    def list(self, resource: Resource, namespace: str = "", selectors: Mapping[str, str] | None = None) -> list[Json]:
        """Return the objects of a kind that selectors match, in one namespace or in all.

        Args:
            resource: The kind.
            namespace: "" for all.
            selectors: `labelSelector` and `fieldSelector`.

        Raises:
            Forbidden: No client may list the kind.
        """
        if resource.full_name in self.unlisted:
            raise Forbidden(f"{resource.full_name} is forbidden", status=403)
        return [
            copy.deepcopy(value)
            for (kind, _), value in self.objects.items()
            if kind.full_name == resource.full_name
            and namespace in ("", value["metadata"].get("namespace"))
            and is_selected(value, selectors)
        ]

    def create(self, value: KubernetesObject) -> Json:
        """POST an object.

        Raises:
            AlreadyExists: There is one.
            NotFound: Its namespace does not exist.
            Forbidden: Its namespace is terminating.
        """
        return self.put_in(value.resource, msgspec.to_builtins(value))

    def put_in(self, resource: Resource, value: Json) -> Json:
        """POST an object that is given as JSON; see `create`. One that is given a uid keeps it."""
        metadata: Json = value["metadata"]
        namespace: str = metadata.get("namespace", "")
        key = object_key(namespace, metadata["name"])
        if (resource, key) in self.objects:
            raise AlreadyExists(f"{resource.full_name} {key!r} already exists", status=409)
        if namespace and "deletionTimestamp" in self.get(Namespace.resource, namespace)["metadata"]:
            raise Forbidden(f"namespace {namespace!r} is being terminated", status=403)
        self._uids += 1
        made = {"uid": f"uid-{self._uids}", "generation": 1, **metadata}
        if resource.full_name == "services":
            value = {**value, "spec": self._addressed(value.get("spec", {}))}
        return self._store(resource, key, {**value, "metadata": made})

    def _addressed(self, spec: Json) -> Json:
        """Return the spec of a Service with an address; the API server chooses one unless it has one."""
        if spec.get("type") == "ExternalName" or spec.get("clusterIP"):
            if spec.get("clusterIP") in self.taken:
                raise Invalid("spec.clusterIPs: provided IP is already allocated", status=422)
            return spec
        return {"clusterIP": self.chosen() or f"10.96.0.{self._uids}", **spec}

    def patch(self, resource: Resource, key: str, patch: Json) -> Json:
        """PATCH an object, its status included; the last finalizer of a terminating object ends it.

        Raises:
            NotFound: There is none.
            Conflict: It is at another resourceVersion.
        """
        live = self._at(resource, key, patch)
        return self._replace(resource, key, live, merged(live, patch))

    def replace(self, resource: Resource, key: str, value: Json, *, is_status: bool = False) -> Json:
        """PUT an object without its status, or its status alone.

        Raises:
            NotFound: There is none.
            Conflict: It is at another resourceVersion.
        """
        live = self._at(resource, key, value)
        kept, given = (_spec(live), {"status": value.get("status", {})}) if is_status else (_status(live), _spec(value))
        server = {field: part for field, part in live["metadata"].items() if field in SERVER_FIELDS}
        metadata = live["metadata"] if is_status else {**value["metadata"], **server}
        return self._replace(resource, key, live, {**kept, **given, "metadata": metadata})

    def _at(self, resource: Resource, key: str, value: Json) -> Json:
        live = self.get(resource, key)
        version: object = value.get("metadata", {}).get("resourceVersion")
        if version is not None and version != live["metadata"]["resourceVersion"]:
            raise Conflict(f"{resource.full_name} {key!r} has been modified", status=409)
        return live

    def delete(self, resource: Resource, key: str, uid: str = "", version: str = "") -> Json:
        """DELETE an object; a namespace, and what has finalizers, only begins to terminate.

        Raises:
            NotFound: There is none.
            Conflict: It has another uid, or another resourceVersion.
        """
        live = self.get(resource, key)
        if uid and live["metadata"]["uid"] != uid:
            raise Conflict(f"{resource.full_name} {key!r} has another uid", status=409)
        if version and live["metadata"]["resourceVersion"] != version:
            raise Conflict(f"{resource.full_name} {key!r} has been modified", status=409)
        if resource == Namespace.resource or live["metadata"].get("finalizers"):
            return self.patch(resource, key, {"metadata": {"deletionTimestamp": self.moment()}})
        self._drop(resource, key)
        return {}

    def answer(self, asked: ApiRequest) -> bytes:
        """Answer a request about one object as the API server would.

        Raises:
            ApiError: It refuses.
        """
        return msgspec.json.encode(self._answer(asked, object_key(asked.namespace, asked.name), _json(asked.body)))

    def _answer(self, asked: ApiRequest, key: str, body: Json) -> Json:
        resource = asked.resource
        match asked.verb:
            case Verb.GET:
                listed = {"items": self.list(resource, asked.namespace, asked.selectors)} if not asked.name else None
                return listed or self.get(resource, key)
            case Verb.CREATE:
                return self._created(asked, key, body)
            case Verb.PATCH:
                return self._patched(asked, key, body)
            case Verb.REPLACE:
                return self.replace(resource, key, body, is_status=asked.subresource == "status")
            case Verb.DELETE:
                wanted: Json = body.get("preconditions", {})
                return self.delete(resource, key, wanted.get("uid", ""), wanted.get("resourceVersion", ""))

    def _created(self, asked: ApiRequest, key: str, body: Json) -> Json:
        resource = asked.resource
        if asked.subresource == "token":
            audience = (body["spec"].get("audiences") or [""])[0]
            self.requested.append((key, body["spec"]))
            return {"status": {"token": f"token-{len(self.requested)}-{audience}"}}
        if resource.plural == "tokenreviews":
            audience = body["spec"]["token"].split("-", 2)[2]
            return {"status": {"authenticated": True} if audience in self.audiences else {}}
        if asked.subresource == "eviction":
            if key in self.protected:
                raise TooManyRequests(f"the disruption budget of pod {key!r} allows no eviction", status=429)
            return self.delete(resource, key, body["deleteOptions"]["preconditions"]["uid"])
        if resource.plural in self.forbidden:
            raise Forbidden(self.forbidden[resource.plural], status=403)
        # A kubelet creates its Node with a status.
        is_kept = resource.plural == "nodes"
        return self.put_in(resource, {field: part for field, part in body.items() if field != "status" or is_kept})

    def _patched(self, asked: ApiRequest, key: str, body: Json) -> Json:
        resource = asked.resource
        if asked.subresource in self.forbidden:
            raise Forbidden(self.forbidden[asked.subresource], status=403)
        if asked.patch_type is PatchType.APPLY and (resource, key) not in self.objects:
            return self.put_in(resource, body)
        if asked.patch_type is PatchType.APPLY:
            # Of fields that the client has applied before and now leaves out, the model knows nothing.
            live = self.get(resource, key)
            return live if merged(live, body) == live else self.patch(resource, key, body)
        is_merge = asked.patch_type is PatchType.MERGE
        patch = body if is_merge else _merged_by_type(self.get(resource, key), body)
        return self.patch(resource, key, _through(resource, asked.subresource, patch))

    # -- what Kubernetes' controllers do ----------------------------------------------------------

    def finish_deletions(self) -> None:
        """Delete the contents of terminating namespaces, the namespaces, and the dependents of deleted objects."""
        self.revision += 1
        terminating = {
            value["metadata"]["name"]
            for value in self.list(Namespace.resource)
            if "deletionTimestamp" in value["metadata"]
        }
        for (resource, key), value in list(self.objects.items()):
            if value["metadata"].get("namespace", "") in terminating:
                self.delete(resource, key)
        held = {value["metadata"].get("namespace", "") for value in self.objects.values()}
        for name in sorted(terminating - held):
            self._drop(Namespace.resource, name)
        for (resource, key), value in list(self.objects.items()):
            owners = {owner["uid"] for owner in value["metadata"].get("ownerReferences") or ()}
            if owners and owners <= self._deleted:
                self.delete(resource, key)

    def count_quotas(self) -> None:
        """Set the status of every ResourceQuota from its spec; unused keys are 0."""
        for value in self.list(ResourceQuota.resource):
            hard: dict[str, str] = value["spec"]["hard"]
            used: dict[str, str] = value.get("status", {}).get("used", {})
            status = {"hard": hard, "used": {key: used.get(key, "0") for key in hard}}
            if status != value.get("status"):
                meta = value["metadata"]
                self.replace(
                    ResourceQuota.resource, f"{meta['namespace']}/{meta['name']}", {"status": status}, is_status=True
                )

    def _drop(self, resource: Resource, key: str) -> None:
        self.revision += 1
        self._deleted.add(self.objects.pop((resource, key))["metadata"]["uid"])

    def _replace(self, resource: Resource, key: str, live: Json, value: Json) -> Json:
        held = "deletionTimestamp" in live["metadata"] and live["metadata"].get("finalizers")
        if held and not value["metadata"].get("finalizers"):
            self._drop(resource, key)
            return value
        if live.get("immutable") and any(live.get(field) != value.get(field) for field in _IMMUTABLE):
            raise Invalid(f"{resource.full_name} {key!r} is immutable", status=422)
        if resource.full_name == "services":
            before, after = live.get("spec", {}), value.get("spec", {})
            if "ExternalName" not in {before.get("type"), after.get("type")} and before.get("clusterIP"):
                if before["clusterIP"] != after.get("clusterIP"):
                    raise Invalid("spec.clusterIPs: may not change once set", status=422)
            elif before.get("type") == "ExternalName":
                self._uids += 1
                value = {**value, "spec": self._addressed(after)}
        if _spec(live) != _spec(value):
            generation: int = live["metadata"].get("generation", 1)
            value = {**value, "metadata": {**value["metadata"], "generation": generation + 1}}
        return self._store(resource, key, value)

    def _store(self, resource: Resource, key: str, value: Json) -> Json:
        self.revision += 1
        stored = copy.deepcopy(value)
        stored["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[resource, key] = stored
        return copy.deepcopy(stored)

    # -- what an operator sees --------------------------------------------------------------------

    def caches(self, *kinds: Resource) -> Caches:
        """Return caches that are up to date; for most kinds they contain only objects with our label."""
        found: Caches = {kind: Cache({BY_TENANT: tenant_of, BY_NAMESPACE: namespace_of}) for kind in kinds}
        whole = (Namespace.resource, RoleBinding.resource)
        for (resource, _), value in self.objects.items():
            if resource in found and (resource in whole or is_labelled(value)):
                found[resource].put(observe(resource, msgspec.json.encode(value)))
        return found


def is_selected(value: Json, selectors: Mapping[str, str] | None) -> bool:
    """Return whether selectors match an object: requirements `a=b`, `a!=b`, `a` and `!a`, separated by commas."""
    labels: Json = value["metadata"].get("labels") or {}
    chosen = selectors or {}
    return all(_holds(labels.get, each) for each in _split(chosen.get("labelSelector", ""))) and all(
        _holds(partial(_field, value), each) for each in _split(chosen.get("fieldSelector", ""))
    )


def _split(text: str) -> list[str]:
    return text.split(",") if text else []


def _holds(look_up: Callable[[str], object], requirement: str) -> bool:
    key, equals, wanted = requirement.partition("=")
    if not equals:
        return (look_up(key.removeprefix("!")) is None) == key.startswith("!")
    return ((look_up(key.removesuffix("!")) or "") == wanted) != key.endswith("!")


def _field(value: Json, path: str) -> object:
    *parents, last = path.split(".")
    for part in parents:
        value = value.get(part) or {}
    return value.get(last)


def _spec(value: Json) -> Json:
    return {field: part for field, part in value.items() if field not in {"metadata", "status"}}


def _status(value: Json) -> Json:
    return {"status": value["status"]} if "status" in value else {}


def _json(body: KubernetesObject | bytes | Json | None) -> Json:
    if isinstance(body, KubernetesObject):
        return msgspec.to_builtins(body)
    return msgspec.json.decode(body) if isinstance(body, bytes) else body or {}


def _merged_by_type(live: Json, patch: Json) -> Json:
    """Return the merge patch with the effect of a strategic merge patch of a node's conditions.

    Raises:
        TypeError: The patch is of anything else: extend the model for it.
    """
    if set(patch) != {"status"} or set(patch["status"]) != {"conditions"}:
        raise TypeError(f"the model knows no strategic merge patch of {sorted(patch)}")
    given = patch["status"]["conditions"]
    types = {each["type"] for each in given}
    kept = [each for each in live.get("status", {}).get("conditions", ()) if each["type"] not in types]
    return {"status": {"conditions": [*kept, *given]}}


_OF_PODS = {
    "ephemeralcontainers": ("ephemeralContainers",),
    "resize": ("containers", "initContainers", "resources"),
}
"""Subresources of pods: the fields of the spec that they take."""


def _through(resource: Resource, subresource: str, patch: Json) -> Json:
    """Return the part of a patch that the API server takes: a status only through its subresource.

    Sources: kubernetes/pkg/registry/core/node/strategy.go: an update of a node's status may change its labels;
    kubernetes/pkg/registry/core/pod/strategy.go: the other subresources of a pod take a part of its spec.
    """
    if subresource in _OF_PODS:
        taken = {field: part for field, part in _spec(patch).get("spec", {}).items() if field in _OF_PODS[subresource]}
        return {"spec": taken}
    if not subresource:
        return {field: part for field, part in patch.items() if field != "status"}
    if resource.plural == "nodes":
        return {field: part for field, part in patch.items() if field != "spec"}
    version: object = patch.get("metadata", {}).get("resourceVersion")
    return {"metadata": {"resourceVersion": version} if version is not None else {}, **_status(patch)}


class SeenThrough:
    """The caches of an operator that may lag, as the code that applies plans sees them; no reconciler is woken."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def cache_of(self, resource: Resource) -> Cache[Observed] | None:
        """Return the cache of a kind."""
        return self._caches.get(resource)

    def notify(self, resource: Resource, change: Change[Observed]) -> None:
        """Wake no reconciler: a test begins the next one itself."""

    def decode(self, resource: Resource, data: bytes) -> Observed:
        """Return the object in the cache."""
        return observe(resource, data)

    def monotonic(self) -> float:
        """Return a time that stands still."""
        return 0.0


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
        asked = resume(work, None)
        while True:
            try:
                if isinstance(asked, Together):
                    answer: Any = []
                    for each in asked.work:
                        answer.append((yield from _result(world, each)))
                else:
                    answer = yield partial(world.answer, asked)
            except ApiError as error:
                answer = error
            asked = resume(work, answer)
    except StopIteration as stop:
        return stop.value
    finally:
        work.close()


def _result(world: World, work: Work[Any]) -> Generator[Call, bytes, Any]:
    try:
        return (yield from drive(world, work))
    except TenantryError as error:
        return error
