"""A DedicatedCluster whose Cluster is built by Cluster API, from a ClusterClass: pure.

    spec.version, spec.nodes, spec.pools ─┐
    ClusterTemplate spec.clusterApi ──────┴─► Cluster of its name: spec.topology
                                              status, Secret CLUSTER-kubeconfig ─► status of the DedicatedCluster

The operator writes `version`, the pools among `workers.machineDeployments` and the variables of the template, at the
resourceVersion that it has seen, and leaves all other fields to others. Without Cluster API, or without the
ClusterClass, it creates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api import reasons
from tenantry.api.clusterapi import CLUSTERS, kubeconfig_name
from tenantry.api.clustertemplate import ClusterApiClass, ClusterTemplate, ClusterTemplateSpec
from tenantry.api.dedicatedcluster import (
    CLUSTER_FINALIZER,
    DEFAULT_POOL,
    ClusterProvider,
    DedicatedCluster,
    DedicatedClusterSpec,
    DedicatedClusterStatus,
    NodePool,
    PoolSettings,
    PoolStatus,
)
from tenantry.api.errors import AlreadyExists, Conflict, InputError, NotFound
from tenantry.api.model import Json
from tenantry.api.wording import shortened
from tenantry.controllers.children import meta_of
from tenantry.controllers.conclusion import ready, trouble
from tenantry.controllers.dedicatedcluster import clusterreport
from tenantry.controllers.dedicatedcluster import reported as lasting
from tenantry.controllers.dedicatedcluster.desired import settings_of
from tenantry.controllers.dedicatedcluster.template import ClusterSize, first_version
from tenantry.engine import request
from tenantry.engine.conditions import merge
from tenantry.engine.plan import Blocked, DirectWrite, Plan
from tenantry.world.leases import instant

_FORBIDDEN = Blocked(
    reason=reasons.REFUSED,
    message="the operator may not read Clusters: `tenantry install --cluster-api-clusters` grants it the right",
)


class TopologyInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides about one DedicatedCluster of Cluster API.

    Args:
        found: The DedicatedCluster.
        template: Its ClusterTemplate; None for none.
        cluster: The Cluster of its name as JSON, also of another owner; None for none.
        is_installed: Whether the API server has Clusters.
        is_permitted: Whether the operator may read them.
        cluster_class: The ClusterClass as JSON; None if there is none, UNSET if the operator may not read it.
        has_kubeconfig: Whether the Secret with the kubeconfig is there.
        refused: What its template refuses to it.
    """

    found: DedicatedCluster
    template: ClusterTemplate | None = None
    cluster: Json | None = None
    is_installed: bool = True
    is_permitted: bool = True
    cluster_class: Json | UnsetType | None = UNSET
    has_kubeconfig: bool = False
    refused: tuple[Blocked, ...] = ()

    @property
    def offered(self) -> ClusterApiClass | None:
        """Return the class that the template names; None for none."""
        of = self.template.spec.cluster_api if self.template is not None else UNSET
        return of if isinstance(of, ClusterApiClass) else None

    @property
    def class_reference(self) -> tuple[str, str] | None:
        """Return the namespace and the name of the ClusterClass that its Cluster has, or is to have; None for none."""
        spec: Json = (self.own or {}).get("spec") or {}
        topology: Json = spec.get("topology") or {}
        offered: Json = msgspec.to_builtins(self.offered.class_ref) if self.offered is not None else {}
        of: Json = topology.get("classRef") or offered
        return (of.get("namespace") or self.found.metadata.namespace, of["name"]) if of else None

    @property
    def own(self) -> Json | None:
        """Return its Cluster; None for none, or one of another owner."""
        return self.cluster if self.cluster is not None and self._is_ours(self.cluster) else None

    def _is_ours(self, cluster: Json) -> bool:
        owners: list[Json] = cluster["metadata"].get("ownerReferences") or []
        return any(each.get("controller") and each.get("uid") == self.found.metadata.uid for each in owners)

    @property
    def size(self) -> ClusterSize:
        """Return what its Cluster has; nothing if there is none."""
        spec: Json = (self.own or {}).get("spec") or {}
        topology: Json = spec.get("topology") or {}
        own = _pool_names(self.found)
        nodes = sum(count for name, count in _nodes(topology).items() if name in own)
        return ClusterSize(nodes=nodes, replicas=_replicas(topology))


def resolve(found: DedicatedCluster, template: ClusterTemplate | None, *, is_installed: bool) -> ClusterProvider:
    """Return which provider a cluster has: what its status has already, else what its spec and template say.

    Args:
        found: The DedicatedCluster.
        template: Its ClusterTemplate; None for none.
        is_installed: Whether the API server has Clusters of Cluster API.
    """
    before, wanted = found.status.provider, found.spec.provider
    if isinstance(before, ClusterProvider):
        return before
    if wanted is not ClusterProvider.AUTO:
        return wanted
    has_class = template is not None and template.spec.cluster_api is not UNSET
    return ClusterProvider.CLUSTER_API if has_class and is_installed else ClusterProvider.HOSTED


def problems(inputs: TopologyInputs) -> Blocked | None:
    """Return what a person must change before there can be a Cluster; None if nothing."""
    found, key = inputs.found, inputs.found.key
    if not inputs.is_installed:
        told = "Cluster API is not installed, and must be: the API server has no clusters.cluster.x-k8s.io"
        return Blocked(reason=reasons.KIND_NOT_INSTALLED, message=told)
    if not inputs.is_permitted:
        return _FORBIDDEN
    if inputs.cluster is not None and inputs.own is None:
        told = f"Cluster {key!r} exists already and does not belong to this DedicatedCluster: delete or rename it"
        return Blocked(reason=reasons.OBJECT_EXISTS, message=told)
    told = next(iter(_wrong(inputs, found)), None)
    if told is not None:
        return Blocked(reason=reasons.INVALID_SPEC, message=told)
    if inputs.cluster_class is None and inputs.class_reference is not None:
        return Blocked(reason=reasons.UNKNOWN_CLASS, message=_missing(inputs, "/".join(inputs.class_reference)))
    return next(iter(inputs.refused), None) if _grows(inputs) else None


def _grows(inputs: TopologyInputs) -> bool:
    """Return whether a Cluster gets what it does not have: a template that has changed refuses only that."""
    if inputs.own is None:
        return True
    spec: Json = inputs.own.get("spec") or {}
    before: Json = spec.get("topology") or {}
    after = _topology(inputs, before)
    has, wants = _nodes(before), _nodes(after)
    is_larger = any(count > has.get(name, 0) for name, count in wants.items()) or _replicas(after) > _replicas(before)
    return is_larger or after["version"] != before.get("version")


def _replicas(topology: Json) -> int:
    """Return the replicas of the control plane of a topology; 0 if it has none, so that any number is more."""
    of: Json = topology.get("controlPlane") or {}
    return int(of.get("replicas") or 0)


def _nodes(topology: Json) -> dict[str, int]:
    workers: Json = topology.get("workers") or {}
    pools: list[Json] = workers.get("machineDeployments") or []
    return {each["name"]: int(each.get("replicas") or 0) for each in pools}


def _wrong(inputs: TopologyInputs, found: DedicatedCluster) -> Iterable[str]:
    if inputs.own is None and inputs.offered is None:
        yield "spec.template must name a ClusterTemplate with spec.clusterApi if the provider is ClusterApi"
    if not first_version(found):
        yield "spec.version must be set if the provider is ClusterApi and the template has no versions"
    yield from (
        f"{each} must be left out if the provider is ClusterApi: set it in the ClusterClass, or by variables of it"
        for each in _unused(found.spec)
    )
    yield from _required(inputs)
    try:
        if found.spec.expires_at:
            instant(found.spec.expires_at)
    except InputError as error:
        yield f"spec.expiresAt: {error}"
    if found.spec.contributed:
        yield "spec.contributed must have no machines if the provider is ClusterApi: Cluster API makes its nodes"
    for name, pool in settings_of(found).items():
        path = "spec.defaultPool" if name == DEFAULT_POOL else f"spec.pools[{name}]"
        if _settings(pool) != PoolSettings():
            yield f"{path} must have no settings if the provider is ClusterApi: the ClusterClass has them"


def _required(inputs: TopologyInputs) -> Iterable[str]:
    """Yield what a template requires that only a control plane of Tenantry has."""
    if inputs.template is None:
        return
    of, default = inputs.template.spec, ClusterTemplateSpec()
    for field in ("guards", "hosting", "runtime"):
        if getattr(of, field) != getattr(default, field):
            yield (
                f"spec.template: ClusterTemplate {inputs.template.metadata.name!r} has spec.{field}, which clusters of"
                " Cluster API do not have: set the provider to Hosted, name another template, or have an administrator"
                f" leave out {field} in it, and set it in the ClusterClass"
            )


def _missing(inputs: TopologyInputs, key: str) -> str:
    where = f"spec.clusterApi.classRef of ClusterTemplate {inputs.template.metadata.name!r}" if inputs.template else ""
    told = f"there is no ClusterClass {key!r}: an administrator must create it"
    if inputs.own is not None:
        return f"{told} again; the cluster runs on, and does not change until then"
    return f"{told}, or name another one in {where}" if where else told


def refusal(inputs: TopologyInputs, problem: Blocked | None) -> Blocked | None:
    """Return why a write failed, with what to do if a right is missing or a webhook of Cluster API refuses the Cluster.

    Args:
        inputs: The DedicatedCluster with its Cluster.
        problem: Why the write failed; None if all were carried out.
    """
    if problem is None or problem.passing:
        return problem
    if f'resource "{CLUSTERS.plural}"' in problem.message:
        told = f"{problem.message}: `tenantry install --cluster-api-clusters` grants it the right"
        return msgspec.structs.replace(problem, message=told)
    if "webhook" not in problem.message:
        return problem
    name = inputs.template.metadata.name if inputs.template is not None else inputs.found.spec.template
    told = (
        f"Cluster API refuses Cluster {inputs.found.key!r}: change spec.version or the pools, or have an administrator"
        f" correct spec.clusterApi of ClusterTemplate {name!r} or the ClusterClass: {problem.message}"
    )
    return msgspec.structs.replace(problem, message=told)


def _class_versions(inputs: TopologyInputs) -> list[str]:
    """Return the versions that the ClusterClass offers, as in v1.36.3, the earliest first; none for all."""
    spec: Json = inputs.cluster_class.get("spec") or {} if isinstance(inputs.cluster_class, dict) else {}
    listed: list[str] = spec.get("kubernetesVersions") or []
    return listed


def _pool_names(found: DedicatedCluster) -> set[str]:
    """Return the names of the deployments that are or were pools: those of others stay."""
    return {*settings_of(found), *(each.name for each in found.status.pools)}


def _unused(spec: DedicatedClusterSpec) -> Iterable[str]:
    """Yield the fields that only a control plane of Tenantry carries out, if they are set."""
    default = DedicatedClusterSpec()
    fields = {"network": "network", "owners": "owners", "api_server": "apiServer", "endpoint": "endpoint"}
    yield from (f"spec.{told}" for name, told in fields.items() if getattr(spec, name) != getattr(default, name))
    if spec.control_plane.runtime is not UNSET:
        yield "spec.controlPlane.runtime"


def _settings(pool: NodePool) -> PoolSettings:
    return msgspec.convert(
        {key: value for key, value in msgspec.to_builtins(pool).items() if key not in {"name", "count"}}, PoolSettings
    )


def plan(inputs: TopologyInputs) -> Plan:
    """Return the next writes; an empty plan if everything is as it should be."""
    found, own = inputs.found, inputs.own
    if found.metadata.deletion_timestamp:
        # What may not be read may be there.
        return Plan(writes=_end(found, own)) if inputs.is_permitted else Plan(blocked=(_FORBIDDEN,))
    if found.spec.paused:
        return Plan()
    blocked = problems(inputs)
    if blocked is not None:
        return Plan(blocked=(blocked,))
    before = ()
    if CLUSTER_FINALIZER not in found.metadata.finalizers:
        wanted = request.finalizers(found, (*found.metadata.finalizers, CLUSTER_FINALIZER))
        before = (DirectWrite(request=wanted, ignores=(NotFound, Conflict)),)
    return Plan(before=before, writes=_kept(inputs, own))


def _end(found: DedicatedCluster, own: Json | None) -> tuple[DirectWrite, ...]:
    meta = found.metadata
    if own is not None:
        if own["metadata"].get("deletionTimestamp"):
            return ()
        gone = request.delete(CLUSTERS, meta.namespace, meta.name, uid=own["metadata"]["uid"])
        return (DirectWrite(request=gone, ignores=(NotFound, Conflict)),)
    if CLUSTER_FINALIZER not in meta.finalizers:
        return ()
    others = tuple(each for each in meta.finalizers if each != CLUSTER_FINALIZER)
    return (DirectWrite(request=request.finalizers(found, others), ignores=(NotFound, Conflict)),)


def _kept(inputs: TopologyInputs, own: Json | None) -> tuple[DirectWrite, ...]:
    found, offered = inputs.found, inputs.offered
    meta = found.metadata
    if own is None:
        if offered is None:
            return ()
        body: Json = {
            "metadata": msgspec.to_builtins(meta_of(found, meta.name)),
            "spec": {"topology": {"classRef": msgspec.to_builtins(offered.class_ref), **_topology(inputs, {})}},
        }
        return (DirectWrite(request=request.create_json(CLUSTERS, body), ignores=(AlreadyExists,)),)
    before: Json = own.get("spec", {}).get("topology") or {}
    wanted = _topology(inputs, before)
    changed = {key: value for key, value in wanted.items() if before.get(key) != value}
    if not changed or own["metadata"].get("deletionTimestamp"):
        return ()
    version = own["metadata"]["resourceVersion"]
    patch: Json = {"metadata": {"resourceVersion": version}, "spec": {"topology": changed}}
    asked = request.patch(CLUSTERS, meta.namespace, meta.name, patch)
    return (DirectWrite(request=asked, ignores=(NotFound, Conflict)),)


def _topology(inputs: TopologyInputs, before: Json) -> Json:
    """Return the fields of the topology that the operator owns, with what others have set inside of them.

    Args:
        inputs: The DedicatedCluster.
        before: The topology as it is.
    """
    found, offered = inputs.found, inputs.offered
    workers: Json = before.get("workers") or {}
    pools: list[Json] = workers.get("machineDeployments") or []
    there = {each["name"]: each for each in pools}
    fallback = offered.worker_class if offered is not None else next((each["class"] for each in pools), "")
    settings, owned = settings_of(found), _pool_names(found)
    # In the order that they have, with those that others have added: the next plan is empty.
    deployments: list[Json] = [
        {**each, "replicas": settings[name].count} if name in settings else each
        for name, each in there.items()
        if name in settings or name not in owned
    ]
    deployments += [
        {"class": fallback, "name": name, "replicas": pool.count}
        for name, pool in settings.items()
        if name not in there
    ]
    topology: Json = {"version": _version(inputs, before), "workers": {**workers, "machineDeployments": deployments}}
    if offered is not None and offered.variables:
        given: list[Json] = before.get("variables") or []
        own = {each.name: each.value for each in offered.variables}
        # In the order that they have: the next plan is empty.
        kept = [{**each, "value": own.get(each["name"], each["value"])} for each in given]
        missing = own.keys() - {each["name"] for each in given}
        topology["variables"] = [*kept, *({"name": name, "value": own[name]} for name in sorted(missing))]
    replicas = found.spec.control_plane.replicas
    if replicas is not UNSET:
        topology["controlPlane"] = {**(before.get("controlPlane") or {}), "replicas": replicas}
    return topology


def _version(inputs: TopologyInputs, before: Json) -> str:
    """Return the patch release: as it is, the latest that the ClusterClass offers, or the first."""
    minor, running = first_version(inputs.found), str(before.get("version", ""))
    # Others may have set a patch release of the same minor version.
    if running.startswith(f"v{minor}."):
        return running
    return next((each for each in reversed(_class_versions(inputs)) if each.startswith(f"v{minor}.")), f"v{minor}.0")


# -- status ---------------------------------------------------------------------------------------


def status(inputs: TopologyInputs, problem: Blocked | None, now: str) -> DedicatedClusterStatus:
    """Return the status.

    Args:
        inputs: The DedicatedCluster with its Cluster.
        problem: Why the last write failed; None if all were carried out.
        now: RFC 3339.
    """
    found, own = inputs.found, inputs.own
    before, generation = found.status, found.metadata.generation
    seen: Json = own if own is not None else {}
    reported: Json = seen.get("status") or {}
    workers: Json = reported.get("workers") or {}
    joined = int(workers.get("readyReplicas") or 0)
    pools = settings_of(found)
    count = _count(inputs)
    wrong = None if found.metadata.deletion_timestamp else problems(inputs) or problem
    first = wrong or _obstacle(inputs, reported)
    spec: Json = seen.get("spec") or {}
    endpoint: Json = spec.get("controlPlaneEndpoint") or {}
    wanted = [
        ready(first, f"Cluster API reports that Cluster {found.key!r} is Available"),
        *trouble(first),
        clusterreport.part(reported, clusterreport.CONTROL_PLANE_AVAILABLE, reasons.CONTROL_PLANE_READY),
        clusterreport.part(reported, clusterreport.WORKERS_AVAILABLE, reasons.NODES_READY),
        *lasting.lapse(found, instant(now)),
    ]
    return msgspec.structs.replace(
        before,
        observed_generation=generation,
        provider=ClusterProvider.CLUSTER_API,
        version=clusterreport.running(seen, reported) or before.version,
        endpoint=f"https://{endpoint['host']}:{endpoint.get('port', 443)}" if endpoint.get("host") else "",
        kubeconfig_secret=kubeconfig_name(found.metadata.name) if inputs.has_kubeconfig else "",
        kubeconfig_namespace="",
        # Cluster API counts the nodes of all pools together.
        nodes=joined if len(pools) == 1 else min(joined, found.spec.nodes),
        ready_nodes=f"{joined}/{count}",
        pools=(*_pools(inputs, joined), *_leaving(inputs)),
        conditions=merge(before.conditions, wanted, generation=generation, now=now),
    )


def _count(inputs: TopologyInputs) -> int:
    """Return how many nodes the Cluster is to have, with those of deployments that others have added."""
    spec: Json = (inputs.own or {}).get("spec") or {}
    owned = _pool_names(inputs.found)
    others = {name: count for name, count in _nodes(spec.get("topology") or {}).items() if name not in owned}
    return sum(each.count for each in settings_of(inputs.found).values()) + sum(others.values())


def _pools(inputs: TopologyInputs, joined: int) -> Iterable[PoolStatus]:
    """Yield the pools of the spec: Cluster API counts the nodes of all deployments together."""
    pools, count = settings_of(inputs.found), _count(inputs)
    for name, each in pools.items():
        known = each.count if joined >= count else 0
        yield PoolStatus(name=name, want=each.count, ready=min(joined, each.count) if each.count == count else known)


def _leaving(inputs: TopologyInputs) -> Iterable[PoolStatus]:
    """Yield the pools that the Cluster still has and the spec has not: the next plan must know them as its own."""
    spec: Json = (inputs.own or {}).get("spec") or {}
    there, wanted = _nodes(spec.get("topology") or {}), settings_of(inputs.found)
    for each in inputs.found.status.pools:
        if each.name in there and each.name not in wanted:
            yield PoolStatus(name=each.name, want=0)


def _obstacle(inputs: TopologyInputs, reported: Json) -> Blocked | None:
    """Return what Cluster API still does, or why it cannot; None if the Cluster is Available as the spec wants it."""
    found = inputs.found
    if found.metadata.deletion_timestamp:
        if not inputs.is_permitted:
            return _FORBIDDEN
        told = f"it ends: Cluster API deletes Cluster {found.key!r}" if inputs.own is not None else "nothing is left"
        return Blocked(reason=reasons.PROGRESSING, message=told, passing=True)
    why = ": spec.paused of the cluster is true" if found.spec.paused else ""
    if inputs.own is None:
        told = f"Cluster {found.key!r} is not created yet{why}" if why else f"Cluster {found.key!r} is created"
        return Blocked(reason=reasons.PROGRESSING, message=told, passing=True)
    if _kept(inputs, inputs.own):
        # Paused, or changed by another client at the same time.
        told = f"Cluster {found.key!r} does not have the spec of the cluster yet{why}"
        return Blocked(reason=reasons.PROGRESSING, message=told, passing=True)
    told = _unfinished(inputs, inputs.own, reported)
    if told is None and not inputs.has_kubeconfig:
        told = f"Secret {kubeconfig_name(found.metadata.name)!r} is not there yet"
    return Blocked(reason=reasons.PROGRESSING, message=told, passing=True) if told is not None else None


def _unfinished(inputs: TopologyInputs, own: Json, reported: Json) -> str | None:
    """Return what Cluster API reports that it still does, or why it cannot; None if it is done."""
    found = inputs.found
    topology, whole = (
        clusterreport.condition(reported, clusterreport.TOPOLOGY_RECONCILED),
        clusterreport.condition(reported, clusterreport.AVAILABLE),
    )
    # Simulated nodes report another version than that of their Machines: with them, it is UPGRADING for ever.
    if topology.get("status") == "False" and topology.get("reason") != clusterreport.UPGRADING:
        return f"Cluster API: {topology.get('reason')}: {topology.get('message')}"
    if whole.get("status") != "True":
        return f"Cluster API: {whole.get('message') or 'no controller has reported a status yet'}"
    if not clusterreport.is_seen(own, reported, topology):
        return f"Cluster API has not seen the last change of Cluster {found.key!r} yet"
    version, running = clusterreport.wanted_version(own), clusterreport.versions(reported)
    if any(clusterreport.minor(each) != clusterreport.minor(version) for each in running):
        return f"Cluster API upgrades the control plane from {shortened(sorted(running))} to {version}"
    workers: Json = reported.get("workers") or {}
    count = _count(inputs)
    if int(workers.get("readyReplicas") or 0) != count or int(workers.get("replicas") or 0) != count:
        return f"{workers.get('readyReplicas') or 0} of {count} nodes are Ready"
    return None
