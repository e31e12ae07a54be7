"""What a DedicatedCluster has of its ClusterTemplate: pure.

    spec.template, or that of TenancyDefaults ─► defaults of the template ─► status.template   taken once
    spec ─► what it leaves out has the value of status.template                                at each reconcile
    spec ─► limits of the template as it is now ─► a problem for what is above, and above what the cluster has

A template that changes, or is deleted, changes nothing in a cluster that runs: only growth is refused by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.clusteraddons import AddOns
from tenantry.api.clusterguards import Guards
from tenantry.api.clustertemplate import (
    ClusterTemplate,
    ResourceLimits,
    TakenTemplate,
    TemplateDefaults,
    TemplateLimits,
)
from tenantry.api.dedicatedcluster import DEFAULT_POOL, DedicatedCluster, claim_name
from tenantry.api.quota import Quantity
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.virtualcontrolplane import PlaneDatastore, PlaneResources, VirtualControlPlane
from tenantry.api.wording import shortened
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.engine.conditions import Wanted
from tenantry.engine.plan import Blocked
from tenantry.hosting import versions
from tenantry.world import quantity
from tenantry.world.addresses import is_within

NOTHING = TemplateLimits(
    nodes=0, replicas=1, resources=ResourceLimits(requests_cpu="0", requests_memory="0", limits_memory="0")
)
"""The limits of a cluster whose template is deleted: it keeps what it has, and does not grow."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster has of its spec, and else of its template.

    Args:
        replicas: Processes of the control plane.
        datastore: Its datastore.
        resources: What it takes of the quota.
        after_idle_seconds: When it sleeps; 0 for never.
        runtime: Whether the Pods of its control plane use the sandbox RuntimeClass.
    """

    replicas: int
    datastore: PlaneDatastore
    resources: PlaneResources
    after_idle_seconds: int
    runtime: RuntimeChoice


class ClusterSize(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster has already, which a limit that is lowered does not take.

    Args:
        nodes: Of all pools together.
        replicas: Processes of the control plane.
    """

    nodes: int = 0
    replicas: int = 0


def taken(found: DedicatedCluster) -> TakenTemplate:
    """Return what a cluster has taken of its template; the defaults of the fields for one without."""
    return TakenTemplate() if found.status.template is UNSET else found.status.template


def settings(found: DedicatedCluster) -> Settings:
    """Return what the control plane of a cluster has."""
    of, spec = taken(found), found.spec.control_plane
    idle = found.spec.sleep.after_idle_seconds
    return Settings(
        replicas=of.replicas if spec.replicas is UNSET else spec.replicas,
        datastore=PlaneDatastore(kind=of.datastore) if spec.datastore is UNSET else spec.datastore,
        resources=of.resources if spec.resources is UNSET else spec.resources,
        after_idle_seconds=of.after_idle_seconds if idle is UNSET else idle,
        # What a template requires, no cluster takes back.
        runtime=of.runtime if spec.runtime is UNSET or of.runtime is RuntimeChoice.SANDBOXED else spec.runtime,
    )


def add_ons(found: DedicatedCluster) -> AddOns:
    """Return the add-ons that a cluster names, and those of its template that it does not name."""
    own = found.spec.add_ons
    names = {each.name for each in own}
    return (*own, *(each for each in taken(found).add_ons if each.name not in names))


def first_version(found: DedicatedCluster) -> str:
    """Return the minor version that the control plane is created with; "" for the default one."""
    return found.spec.version or taken(found).version


def guards(found: DedicatedCluster) -> Guards:
    """Return the guards of a cluster: of its template, and those of templates that it had before."""
    of = taken(found)
    return tuple(dict.fromkeys((*of.guards, *of.former_guards)))


def issuers(inputs: ClusterInputs, before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the OIDC issuers that the API server of a cluster reaches because its template names them.

    Args:
        inputs: The cluster.
        before: Those that it reaches: they stay when the template is deleted.
    """
    oidc, of = inputs.found.spec.api_server.oidc, inputs.template
    named = of.spec.limits.oidc_issuers if of is not None else UNSET
    if of is None and inputs.template_name and taken(inputs.found).name == inputs.template_name:
        named = tuple(before)
    if oidc is UNSET or named is UNSET or oidc.issuer not in named:
        return ()
    return (oidc.issuer,)


def applied(inputs: ClusterInputs) -> ClusterInputs:
    """Return the inputs of a cluster that has taken its template; unchanged if it has, or cannot take it yet."""
    due = _due(inputs)
    if due is None:
        return inputs
    status = msgspec.structs.replace(inputs.found.status, template=due)
    return msgspec.structs.replace(inputs, found=msgspec.structs.replace(inputs.found, status=status))


def _due(inputs: ClusterInputs) -> TakenTemplate | None:
    """Return what a cluster takes of its template now; None if it has taken it, or must not."""
    found = inputs.found
    before = found.status.template
    if found.metadata.deletion_timestamp or found.spec.paused:
        return None
    if before is UNSET and inputs.own_plane is not None and not found.spec.template:
        return TakenTemplate()  # of an earlier version of Tenantry: no template decides about what runs
    if before is not UNSET and before.name == inputs.template_name:
        return _guarded(before, inputs.template)
    if not inputs.template_name:
        return TakenTemplate(datastore=TemplateDefaults().datastore.kind)
    of = inputs.template
    if of is None:
        return None
    there = inputs.own_plane
    running = versions.minor(there.status.version) if there is not None and there.status.version else ""
    first = running or (taken(found).version if there is not None else latest(of.spec.versions))
    defaults = of.spec.defaults
    # An owner who names another template takes off nothing that administrators require of this cluster.
    former = taken(found)
    is_kept = former.runtime is RuntimeChoice.SANDBOXED and of.spec.runtime is not RuntimeChoice.SANDBOXED
    new = TakenTemplate(
        name=of.metadata.name,
        generation=of.metadata.generation,
        version=first,
        replicas=defaults.replicas,
        datastore=defaults.datastore.kind,
        resources=defaults.resources,
        after_idle_seconds=defaults.after_idle_seconds,
        add_ons=defaults.add_ons,
        guards=of.spec.guards,
        former_guards=guards(found),
        hosting=former.hosting if is_kept else of.spec.hosting,
        runtime=former.runtime if is_kept else of.spec.runtime,
    )
    # A change to a template whose limits the cluster is above takes nothing of it.
    status = msgspec.structs.replace(found.status, template=new)
    after = msgspec.structs.replace(inputs, found=msgspec.structs.replace(found, status=status))
    return new if before is UNSET or not any(_refused(after, of)) else None


def _guarded(before: TakenTemplate, of: ClusterTemplate | None) -> TakenTemplate | None:
    """Return what was taken of a template, with its guards of now; None if these are the same.

    Guards are what administrators refuse, and no default: they follow the template. Those of one that is deleted stay.
    """
    if of is None or of.spec.guards == before.guards:
        return None
    return msgspec.structs.replace(before, guards=of.spec.guards)


def latest(offered: Iterable[str]) -> str:
    """Return the latest of minor versions; "" for none."""
    return max(offered, key=lambda each: [int(part) for part in each.split(".")], default="")


# -- what it refuses ------------------------------------------------------------------------------


def problems(inputs: ClusterInputs) -> list[Blocked]:
    """Return what the template of a cluster refuses, with what to do."""
    found, name, of = inputs.found, inputs.template_name, inputs.template
    if not name:
        return _blocked(_of_plane(inputs))
    if of is not None:
        return _blocked([*_of_plane(inputs), *_refused(inputs, of)])
    if taken(found).name == name:
        told = f"ClusterTemplate {name!r} does not exist any more, so that the cluster does not grow: name another one"
        return _blocked([*_of_plane(inputs), *(f"{each}; {told}" for each in _above(inputs, NOTHING, "what it has"))])
    names = shortened(inputs.offered)
    todo = (
        f"choose one of {names}, or ask an administrator to create it" if names else "ask an administrator to create it"
    )
    where = "spec.template" if found.spec.template else "spec.dedicatedClusters.template of TenancyDefaults"
    message = f"{where}: there is no ClusterTemplate {name!r}: {todo}"
    return [Blocked(reason=reasons.UNKNOWN_TEMPLATE, message=message)]


def refused(inputs: ClusterInputs, has: ClusterSize) -> list[Blocked]:
    """Return what the template refuses to a cluster that Cluster API builds.

    Args:
        inputs: The cluster. Children that a hosted one has do not count: users could have created them.
        has: What its Cluster has.
    """
    inputs = msgspec.structs.replace(inputs, plane=None, claims={})
    name, of = inputs.template_name, inputs.template
    if of is not None:
        return _blocked(_refused(inputs, of, has))
    if not name:
        return []
    message = f"there is no ClusterTemplate {name!r}, so that the cluster does not grow: ask an administrator for it"
    return [Blocked(reason=reasons.UNKNOWN_TEMPLATE, message=message)]


def _blocked(found: Iterable[str]) -> list[Blocked]:
    return [Blocked(reason=reasons.INVALID_SPEC, message=message) for message in found]


def _of_plane(inputs: ClusterInputs) -> Iterable[str]:
    """Yield what the control plane of the cluster cannot become."""
    wanted, there = settings(inputs.found), inputs.own_plane
    given = inputs.found.spec.control_plane.datastore
    if there is not None and given is not UNSET and given != there.spec.datastore:
        yield (
            f"spec.controlPlane.datastore must stay {there.spec.datastore.kind}: objects do not move to another"
            " datastore; set it back, or create another cluster and restore a snapshot there"
        )
    datastore = there.spec.datastore if there is not None else wanted.datastore
    if wanted.replicas > 1 and datastore.kind == "SQLite":
        yield (
            f"spec.controlPlane.replicas must be 1, not {wanted.replicas}: the datastore SQLite has one process;"
            " create the cluster with spec.controlPlane.datastore.kind SharedEtcd"
        )


def _size(inputs: ClusterInputs) -> ClusterSize:
    """Return what a hosted cluster has: nodes that its claims were granted, because any number can be requested.

    A cluster that has released its nodes while it sleeps has those that it was allowed.
    """
    found, there = inputs.found, inputs.own_plane
    pools = (DEFAULT_POOL, *(pool.name for pool in found.spec.pools))
    names = {claim_name(found.metadata.name, pool) for pool in pools}
    nodes = {node for each in inputs.own_claims if each.metadata.name in names for node in each.status.nodes}
    return ClusterSize(
        nodes=max(len(nodes), found.status.allowed_nodes), replicas=there.spec.replicas if there is not None else 0
    )


def _refused(inputs: ClusterInputs, of: ClusterTemplate, has: ClusterSize | None = None) -> Iterable[str]:
    found, offered = inputs.found, of.spec.versions
    there = inputs.own_plane
    running = versions.minor(there.status.version) if there is not None and there.status.version else ""
    if found.spec.version and offered and found.spec.version not in offered and found.spec.version != running:
        yield (
            f"spec.version must be one that ClusterTemplate {of.metadata.name!r} offers, not {found.spec.version}:"
            f" choose {shortened(offered)}"
        )
    yield from (f"{each}, or name another template" for each in _above(inputs, of.spec.limits, _limit(of), has))


def allowed_nodes(inputs: ClusterInputs) -> int:
    """Return how many nodes a cluster is allowed: those of its spec, or as before if the template refuses it."""
    return inputs.found.status.allowed_nodes if problems(inputs) else _wanted_nodes(inputs.found)


def _wanted_nodes(found: DedicatedCluster) -> int:
    return found.spec.nodes + sum(pool.count for pool in found.spec.pools)


def _limit(of: ClusterTemplate) -> str:
    return f"the limit of ClusterTemplate {of.metadata.name!r}"


def _above(inputs: ClusterInputs, limits: TemplateLimits, words: str, has: ClusterSize | None = None) -> Iterable[str]:
    """Yield what is above a limit, and above what the cluster has.

    Args:
        inputs: The cluster.
        limits: The limits.
        words: What they are.
        has: What the cluster has; None for what its children on the host have.
    """
    found, wanted, there = inputs.found, settings(inputs.found), inputs.own_plane
    has = has or _size(inputs)
    nodes = _wanted_nodes(found)
    if limits.nodes is not UNSET and nodes > max(limits.nodes, has.nodes):
        most = max(limits.nodes, has.nodes)
        yield f"spec.nodes and spec.pools must have at most {most} nodes together, not {nodes}, by {words}"
    if limits.replicas is not UNSET and wanted.replicas > max(limits.replicas, has.replicas):
        most = max(limits.replicas, has.replicas)
        yield f"spec.controlPlane.replicas must be at most {most}, not {wanted.replicas}, by {words}"
    running = there.spec.resources if there is not None else None
    yield from _resources_above(wanted.resources, running, limits.resources, words)
    if limits.datastores and there is None and wanted.datastore.kind not in limits.datastores:
        listed = shortened(each.value for each in limits.datastores)
        yield f"spec.controlPlane.datastore.kind must be one of {listed}, not {wanted.datastore.kind}, by {words}"
    yield from _server_above(found, there, limits, words)
    most_idle, idle = limits.after_idle_seconds, wanted.after_idle_seconds
    as_it_is = there is not None and there.spec.sleep.after_idle_seconds == idle
    if most_idle is not UNSET and not 0 < idle <= most_idle and not as_it_is:
        told = idle or "0, for never"
        yield f"spec.sleep.afterIdleSeconds must be more than 0 and at most {most_idle}, not {told}, by {words}"


def _server_above(
    found: DedicatedCluster, there: VirtualControlPlane | None, limits: TemplateLimits, words: str
) -> Iterable[str]:
    """Yield which ranges, issuers and features a limit does not allow, and the control plane does not have."""
    network, server = found.spec.network, found.spec.api_server
    if limits.networks is not UNSET and there is None:
        for field, given in (("podRange", network.pod_range), ("serviceRange", network.service_range)):
            if given and not any(is_within(given, each) for each in limits.networks):
                which = f"be within {shortened(limits.networks)}" if limits.networks else "be left out"
                yield f"spec.network.{field} must {which}, not {given}, by {words}"
    before = there.spec.authentication.oidc if there is not None else UNSET
    running = before.issuer if before is not UNSET else ""
    if limits.oidc_issuers is not UNSET and server.oidc is not UNSET:
        issuer = server.oidc.issuer
        if issuer not in (running, *limits.oidc_issuers):
            which = f"be one of {shortened(limits.oidc_issuers)}" if limits.oidc_issuers else "be left out"
            yield f"spec.apiServer.oidc.issuer must {which}, not {issuer}, by {words}"
    if limits.feature_gates is not UNSET:
        has = there.spec.feature_gates if there is not None else ()
        above = sorted(set(server.feature_gates).difference(limits.feature_gates, has))
        if above:
            which = f"be among {shortened(limits.feature_gates)}" if limits.feature_gates else "be left out"
            yield f"spec.apiServer.featureGates must {which}, not {shortened(above)}, by {words}"


def _resources_above(
    wanted: PlaneResources, running: PlaneResources | None, limits: ResourceLimits, words: str
) -> Iterable[str]:
    has = _amounts(running) if running is not None else ("0", "0", "0")
    most = (limits.requests_cpu, limits.requests_memory, limits.limits_memory)
    fields = ("requests.cpu", "requests.memory", "limits.memory")
    for field, value, limit, before in zip(fields, _amounts(wanted), most, has, strict=True):
        if limit is not UNSET and quantity.parse(value) > max(quantity.parse(limit), quantity.parse(before)):
            allowed = _larger(limit, before)
            yield f"spec.controlPlane.resources.{field} must be at most {allowed}, not {value}, by {words}"


def _amounts(of: PlaneResources) -> tuple[Quantity, Quantity, Quantity]:
    return of.requests.cpu, of.requests.memory, of.limits.memory


def _larger(first: Quantity, second: Quantity) -> Quantity:
    return second if quantity.parse(second) > quantity.parse(first) else first


# -- what it says of itself -----------------------------------------------------------------------


def condition(inputs: ClusterInputs) -> Sequence[Wanted]:
    """Return the condition about a template that has changed since the cluster took its defaults; none without one."""
    of, name = taken(inputs.found), taken(inputs.found).name
    if not name:
        return []
    if inputs.template is None or inputs.template.metadata.name != name:
        message = f"ClusterTemplate {name!r} does not exist any more: the cluster keeps what it has, and does not grow"
        if inputs.template_name != name:
            message = f"the cluster keeps what it has of ClusterTemplate {name!r}, until it can take the other one"
        return [Wanted(reasons.TEMPLATE_CURRENT, False, reasons.UNKNOWN_TEMPLATE, message)]
    changes = sorted(_changes(of, inputs.template))
    if not changes:
        return [
            Wanted(
                reasons.TEMPLATE_CURRENT,
                True,
                reasons.ESTABLISHED,
                f"its defaults are those of ClusterTemplate {name!r}",
            )
        ]
    message = (
        f"ClusterTemplate {name!r} has changed since the cluster took its defaults, and the cluster keeps them:"
        f" {shortened(changes)}; to take a new one, set the field in the spec of the cluster"
    )
    return [Wanted(reasons.TEMPLATE_CURRENT, False, reasons.TEMPLATE_CHANGED, message)]


def _named(found: AddOns) -> str:
    return " ".join(sorted(f"{each.name}={each.mode.value}" for each in found)) or "none"


def _changes(before: TakenTemplate, of: ClusterTemplate) -> Iterable[str]:
    now = of.spec.defaults
    pairs: list[tuple[str, object, object]] = [
        ("spec.controlPlane.replicas", before.replicas, now.replicas),
        ("spec.controlPlane.datastore.kind", before.datastore.value, now.datastore.kind.value),
        ("spec.sleep.afterIdleSeconds", before.after_idle_seconds, now.after_idle_seconds),
        ("spec.addOns", _named(before.add_ons), _named(now.add_ons)),
    ]
    if before.generation != of.metadata.generation:  # else they may be those of a template that it had before
        pairs += [
            ("spec.hosting of the template", before.hosting.value, of.spec.hosting.value),
            ("spec.controlPlane.runtime", before.runtime.value, of.spec.runtime.value),
        ]
    fields = ("requests.cpu", "requests.memory", "limits.memory")
    pairs += [
        (f"spec.controlPlane.resources.{field}", was, is_now)
        for field, was, is_now in zip(fields, _amounts(before.resources), _amounts(now.resources), strict=True)
    ]
    return [f"{field} {was} is now {is_now}" for field, was, is_now in pairs if was != is_now]
