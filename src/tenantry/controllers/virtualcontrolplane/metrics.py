"""metrics.k8s.io inside: an APIService while the host has metrics, and the answers to its reads. The glue.

    host: APIService v1beta1.metrics.k8s.io ─► MetricsService ─► the same inside, without a Service ─► go/hosted
    kubectl top, HorizontalPodAutoscalers ─► go/hosted ─► ForwardingServer ─► PodMeasures.answer
        ─► pods.metrics.k8s.io of the tenant's namespace, as the mirror, at most every five seconds ─► mirror.metrics

An APIService of this name without the label of Tenantry is the users': they may serve metrics of their own. It is not
changed, and gets the requests if it names a Service.

Source: Kubernetes, "Resource metrics pipeline"; kube-aggregator, APIService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import AlreadyExists, ApiError, BadRequest, Conflict, NotFound, ServerError
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, ObjectMeta, Resource, object_key
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind, NamedObject
from tenantry.engine.tasks import all_of
from tenantry.hosting.forwarding import ForwardedRead, ForwardingServer
from tenantry.hosting.plane import ForwardedGroup, ForwardedResource
from tenantry.mirror import metrics, things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import NODES, PODS, Thing
from tenantry.mirror.uppernodes import UpperNodes
from tenantry.world import inheritance

GROUP = ForwardedGroup(
    group=metrics.GROUP,
    version=metrics.VERSION,
    resources=(
        ForwardedResource(name="nodes", kind="NodeMetrics"),
        ForwardedResource(name="pods", kind="PodMetrics", namespaced=True),
    ),
)

API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
NAME = f"{metrics.VERSION}.{metrics.GROUP}"
KEY = "metrics"
"""The one key of the controller."""

FRESH_SECONDS = 5.0
"""How long an answer of the host counts; metrics-server measures every 15 seconds."""

AT_ONCE = 16
"""How many nodes are read at once."""

MOST_NODE_BYTES = 32 * 1024
"""How large a node may be that a selector finds: users write its labels, which are kept."""

_CLUSTER_ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
_READERS = "system:aggregated-metrics-reader"
_PRIORITIES = {"groupPriorityMinimum": 100, "versionPriority": 100}
_NAMED = {"fieldSelector": f"metadata.name={NAME}"}
_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_LABEL = {marks.MANAGED_BY: marks.MANAGER}

ReadHost = Callable[[str, Mapping[str, str]], Awaitable[bytes]]

log = logging.getLogger(__name__)


def wanted() -> Json:
    """Return the APIService inside."""
    return {
        "metadata": {"name": NAME, "labels": dict(_LABEL)},
        "spec": {"group": metrics.GROUP, "version": metrics.VERSION, **_PRIORITIES},
    }


def _readers() -> Json:
    """Return the role by which users who may view pods may read metrics, as metrics-server installs it."""
    to = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")}
    rule: Json = {"apiGroups": [metrics.GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}
    return {"metadata": {"name": _READERS, "labels": {**_LABEL, **to}}, "rules": [rule]}


def lower_watch() -> Watch:
    """Return the watch of the host's APIService."""
    # The operator of an installation that was not brought up to date may not list them.
    return Watch(resource=API_SERVICES, decode=things.headed, keys=_key, selectors=_NAMED, awaited=False)


class MetricsService:
    """Keeps the APIService inside while the host has metrics; there is one key.

    Args:
        lower: The host's API server, with the watch of `lower_watch`.
    """

    name = "metrics"
    kind = Thing

    def __init__(self, lower: Cluster) -> None:
        self._lower = lower
        self._has_told = False

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(resource=API_SERVICES, decode=things.whole, keys=_key, selectors=_NAMED),
            msgspec.structs.replace(lower_watch(), cluster=self._lower),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Bring the APIService inside to what it should be.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        if not self._lower.is_listed(API_SERVICES):
            return FRESH_SECONDS
        has_metrics = self._lower.cache(API_SERVICES).get(NAME) is not None
        found: Thing | None = cluster.cache(API_SERVICES).get(NAME)
        if not has_metrics and not self._has_told:
            self._tell(cluster)
        # Also once metrics have come and gone again.
        self._has_told = not has_metrics
        if found is None and has_metrics:
            await cluster.writer.send(request.apply(_CLUSTER_ROLES, _readers()))
        # NotFound, Conflict, AlreadyExists: its event wakes this key.
        with suppress(NotFound, Conflict, AlreadyExists):
            if found is None and has_metrics:
                await cluster.writer.send(request.create_json(API_SERVICES, wanted()))
            elif found is not None and _is_ours(found) and not has_metrics:
                await cluster.writer.send(request.delete(API_SERVICES, "", NAME, uid=found.uid))
            elif found is not None and _is_ours(found) and found.spec != wanted()["spec"]:
                meta: Json = {**wanted()["metadata"], "uid": found.uid, "resourceVersion": str(found.version)}
                await cluster.writer.send(request.replace_json(API_SERVICES, {**wanted(), "metadata": meta}))
        return None

    def _tell(self, cluster: Cluster) -> None:
        note = (
            "the cluster that hosts this control plane serves no metrics.k8s.io, which kubectl top and"
            " HorizontalPodAutoscalers need: ask its administrators to install metrics-server there"
        )
        about = NamedObject(API_SERVICES, ObjectMeta(name=NAME))
        cluster.recorder.say(about, EventKind.NORMAL, reasons.NO_METRICS, note)


def _key(change: Change[Any]) -> Iterable[str]:  # noqa: ARG001 - there is one key
    return [KEY]


def _is_ours(found: Thing) -> bool:
    return part(found.meta, "labels").get(marks.MANAGED_BY) == marks.MANAGER


class _Measured(msgspec.Struct, frozen=True):
    """What the host has measured.

    Args:
        pods: PodMetrics, by the keys of the pods inside.
        nodes: The keys of the pods inside that have metrics, by the names of their nodes inside.
        until: When to ask again, of a monotonic clock.
        problem: Why there are no metrics; None if there are.
    """

    pods: Mapping[str, Json]
    nodes: Mapping[str, list[str]]
    until: float
    problem: ApiError | None = None


class PodMeasures:
    """Answers the reads of metrics of one control plane.

    Args:
        profile: How its pods are mirrored.
        upper: Its cluster.
        lower: The mirrored pods of all control planes.
        nodes: Its nodes.
        read: Returns the body of the host's answer to a path and a query, with the rights of the mirror.
    """

    def __init__(
        self, profile: Profile, upper: Cluster, lower: Cache[CachedPod], nodes: UpperNodes, read: ReadHost
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._nodes = nodes
        self._read = read
        self._lock = asyncio.Lock()
        self._measured = _Measured({}, {}, float("-inf"))
        # Until when they count, and the labels by node.
        self._labels: tuple[float, dict[str, dict[str, str]]] = (float("-inf"), {})

    @asynccontextmanager
    async def serve(self, path: Path) -> AsyncGenerator[None]:
        """Answer on a Unix socket while the context is open.

        Raises:
            OSError: The socket cannot be made.
        """
        async with ForwardingServer(path, GROUP, self.answer).serve():
            yield

    async def answer(self, asked: ForwardedRead) -> Json:
        """Return metrics of a pod or a node, or a list.

        Raises:
            ApiError: There are none, or the host does not answer.
        """
        measured = await self._current()
        if measured.problem is not None:
            raise measured.problem
        if asked.resource == "nodes":
            return await self._of_nodes(asked, measured)
        return self._of_pods(asked, measured)

    def _of_pods(self, asked: ForwardedRead, measured: _Measured) -> Json:
        if asked.name:
            found = measured.pods.get(object_key(asked.namespace, asked.name))
            return found or _no_metrics("pods", asked.name)
        fields, labels = _fields(asked), _selector(asked)
        found = [
            each
            for each in measured.pods.values()
            if asked.namespace in {"", each["metadata"]["namespace"]}
            and all(each["metadata"][field.partition(".")[2]] == value for field, value in fields.items())
            and inheritance.matches(labels, part(each["metadata"], "labels"))
        ]
        return metrics.listed("PodMetrics", found)

    async def _of_nodes(self, asked: ForwardedRead, measured: _Measured) -> Json:
        known = [each.key for each in self._upper.cache(NODES) if self._nodes.lower(each.key) is not None]
        if asked.name:
            return self._node(asked.name, measured) if asked.name in known else _no_metrics("nodes", asked.name)
        fields = _fields(asked)
        if asked.label_selector:
            selected, labels = _selector(asked), await self._node_labels(known)
            known = [each for each in known if each in labels and inheritance.matches(selected, labels[each])]
        return metrics.listed(
            "NodeMetrics",
            [self._node(each, measured) for each in known if fields.get("metadata.name", each) == each],
        )

    async def _node_labels(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of the mirror's own nodes, not older than `FRESH_SECONDS`.

        They are not kept, and users make any number of Nodes, of any size: only these are read, and not for each read.
        """
        async with self._lock:
            now, (until, known) = self._upper.clock.monotonic(), self._labels
            if now >= until:
                known = dict[str, dict[str, str]]()
                for start in range(0, len(names), AT_ONCE):
                    some = names[start : start + AT_ONCE]
                    read = await all_of(self._upper.live.find(NODES, "", each) for each in some)
                    known |= {
                        each: things.headed(msgspec.Raw(data)).labels
                        for each, data in zip(some, read, strict=True)
                        if data is not None and len(data) <= MOST_NODE_BYTES
                    }
                self._labels = now + FRESH_SECONDS, known
            return known

    def _node(self, name: str, measured: _Measured) -> Json:
        pods = [measured.pods[key] for key in measured.nodes.get(name, ())]
        return metrics.node_metrics(name, pods, rfc3339(self._upper.clock.now()))

    async def _current(self) -> _Measured:
        """Return what the host has measured, not more than `FRESH_SECONDS` ago."""
        async with self._lock:
            now = self._upper.clock.monotonic()
            if now >= self._measured.until:
                self._measured = await self._measure(now + FRESH_SECONDS)
            return self._measured

    async def _measure(self, until: float) -> _Measured:
        path = f"/apis/{metrics.API_VERSION}/namespaces/{self._profile.namespace}/pods"
        owned = f"{self._profile.mark('owner')}={self._profile.owner_uid}"
        try:
            data = await self._read(path, {"labelSelector": owned})
            listed = items(msgspec.json.decode(data, type=Json), "items")
        except NotFound:
            return _Measured({}, {}, until, _unavailable("serves no metrics.k8s.io"))
        except (ApiError, msgspec.MsgspecError) as error:
            # Its words name addresses of the host.
            log.warning("the host has no metrics", extra={"namespace": self._profile.namespace, "problem": str(error)})
            return _Measured({}, {}, until, _unavailable("has no metrics at the moment"))
        pods: dict[str, Json] = {}
        nodes: dict[str, list[str]] = {}
        for each in listed:
            lower = self._lower.get(object_key(self._profile.namespace, str(part(each, "metadata").get("name", ""))))
            upper = self._upper_pod(lower) if lower is not None else None
            shown = metrics.pod_metrics(upper.object, each) if upper is not None else None
            if lower is not None and upper is not None and shown is not None:
                pods[upper.key] = shown
                # Not the upper pod's: its binding may be on its way.
                node = self._nodes.name(str(lower.spec.get("nodeName", "")))
                nodes.setdefault(node, []).append(upper.key)
        return _Measured(pods, nodes, until)

    def _upper_pod(self, lower: CachedPod) -> CachedPod | None:
        """Return the pod inside of a pod on the host; None if that is not one of this control plane."""
        meta = lower.meta
        if not things.is_of(self._profile, lower.key, meta.get("labels")):
            return None
        upper: CachedPod | None = self._upper.cache(PODS).get(things.upper_key(self._profile, meta.get("annotations")))
        is_same = upper is not None and lower.mark(self._profile, "uid") == upper.uid
        return upper if is_same else None


def _fields(asked: ForwardedRead) -> dict[str, str]:
    """Return the fields that a read selects."""
    found: dict[str, str] = {}
    for each in filter(None, asked.field_selector.split(",")):
        field, equals, value = each.replace("==", "=").partition("=")
        if not equals or field not in _FIELDS or field.endswith("!"):
            message = f"fieldSelector {each[:64]!r} must be metadata.name or metadata.namespace, with = and a value"
            raise BadRequest(message, status=400, reason="BadRequest")
        found[field] = value
    return found


def _selector(asked: ForwardedRead) -> tuple[inheritance.SelectorTerm, ...]:
    """Return the labels that a read selects."""
    found = inheritance.parse_selector(asked.label_selector) if asked.label_selector else ()
    if found is None:
        message = f"labelSelector {asked.label_selector[:64]!r} cannot be read"
        raise BadRequest(message, status=400, reason="BadRequest")
    return found


def _no_metrics(resource: str, name: str) -> Json:
    message = f"{resource}.{metrics.GROUP} {name!r} not found: it does not exist, or has not been measured yet"
    raise NotFound(message, status=404, reason="NotFound")


def _unavailable(problem: str) -> ApiError:
    message = f"the cluster that hosts this control plane {problem}: ask its administrators about its metrics-server"
    return ServerError(message, status=503, reason="ServiceUnavailable", retry_after_seconds=FRESH_SECONDS)
