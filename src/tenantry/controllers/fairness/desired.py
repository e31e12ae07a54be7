"""The priority level that all tenants share at the API server, and the exceptions (H06): pure.

    system:masters, nodes, Kubernetes' controllers, the operator ─► their own levels, as without Tenantry
    users and groups that TenancyDefaults trust                  ─► workload-low, as without Tenantry
    the identities that write the pods of control planes         ─► tenantry-mirrors, in turns by namespace
    other clusters that run pods here                            ─► tenantry-guests, in turns by cluster
    at most four tenants that have a level of their own          ─► that level
    every other authenticated user                               ─► tenantry-tenants, in turns by user

Source: Kubernetes, "API Priority and Fairness".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.fairness import Fairness, Trusted, TrustedKind
from tenantry.api.flowcontrol import (
    Distinguisher,
    FlowRule,
    FlowSchema,
    FlowSchemaSpec,
    FlowSubject,
    LevelReference,
    Limited,
    LimitResponse,
    Named,
    NonResourceRule,
    PriorityLevelConfiguration,
    PriorityLevelConfigurationSpec,
    Queuing,
    ResourceRule,
    ServiceAccountNamed,
)
from tenantry.api.model import ObjectMeta, OwnerReference, Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.virtualcontrolplane import MIRRORS_NAMESPACE
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Child, Equivalent, Lookup, Plan, compare, same

TENANTS = "tenantry-tenants"
TRUSTED = "tenantry-trusted"
MIRRORS = "tenantry-mirrors"
GUESTS = "tenantry-guests"
RESERVED_PREFIX = "tenantry-reserved-"

# The default of `Fairness.shares` is 1: 3 seats of the API server's usual 600. A request with a seat is executed, so
# seats limit how many processors tenants keep busy at the same time. Fair queues divide free seats, but never preempt
# a request that has one: with more seats than spare processors, a request waits for a processor behind the requests
# of a flooding user, and no queue helps [measured: docs/benchmarks.md].

QUEUES = 2048
HAND_SIZE = 2
"""A user's requests wait in the shortest of this many queues, chosen by a hash of the user name.

Queues take turns, not users: a flooding user has as many turns as the hand has queues, so a hand of 6, as Kubernetes'
own levels have, makes other users wait longer [measured: docs/benchmarks.md]. Many queues keep users apart instead.
The probability that sixteen flooding users occupy both queues of another user is 1 in 4,150; for one flooding user it
is 1 in two million. A queue costs a few hundred bytes.
"""

QUEUE_LENGTH = 150
"""The length of one queue: a user may have 300 requests waiting; further ones are refused (429, try again later).

Waiting costs nearly nothing. A shorter queue would cost more: refusals are quick, and a client that floods comes back.
"""

TRUSTED_PRECEDENCE = 8600
MIRRORS_PRECEDENCE = 8650
GUESTS_PRECEDENCE = 8660
RESERVED_PRECEDENCE = 8700
TENANTS_PRECEDENCE = 8800
"""After the schemas of Kubernetes and of administrators, before service-accounts (9000) and global-default (9900)."""

TRUSTED_LEVEL = "workload-low"
"""The level of ServiceAccounts outside of kube-system in Kubernetes' own configuration."""

MIRROR_SHARES = 16
"""About 37 of the API server's usual 600 seats: one mirror has at most 16 requests under way, and some are left.

Only the operator holds the identities of mirrors, and it bounds how fast each writes. Most of a creation is spent in
the quota of its namespace, which counts all creations that wait in one write: with the three seats of all tenants, it
wrote 438 times for 200 pods; with 32 of these under way it writes 58 times, with 8 of them 212 times [measured:
docs/benchmarks.md].
"""

GUEST_SHARES = 4
"""About 9 of the API server's usual 600 seats for all other clusters together.

A home writes for all of its tenants, in bursts, and creations in one namespace wait for its quota together. But it is
not ours: with a level of its own it makes neither tenants nor the mirrors of control planes wait.
"""

AUTHENTICATED = FlowSubject(kind="Group", group=Named(name="system:authenticated"))


def common(shares: int = 1) -> list[PriorityLevelConfiguration | FlowSchema]:
    """Return the level of all tenants, and the FlowSchema for requests that match no other one."""
    return [
        level(TENANTS, shares),
        flow_schema(TENANTS, level_name=TENANTS, precedence=TENANTS_PRECEDENCE, subjects=[AUTHENTICATED]),
    ]


class ReservedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant with a level of its own.

    Args:
        owners: Its own; owners of Subnamespaces could name any user and so send that user's requests to the level.
        namespaces: The names of all namespaces of its tree.
    """

    owners: tuple[Owner, ...]
    namespaces: tuple[str, ...]


class FairnessInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the priority levels and FlowSchemas.

    Args:
        defaults: None if there are none.
        reserved: The tenants with a level of their own, by name, and their namespaces; None if there is no such tenant.
        has_planes: Whether there is a control plane.
        has_guests: Whether another cluster may run pods here.
        missing: The names of reserved tenants that are not there, sorted.
        made: Every priority level and FlowSchema of the cluster.
        lookup: What is there, by kind and key.
    """

    defaults: TenancyDefaults | None
    reserved: dict[str, ReservedTenant | None]
    has_planes: bool = False
    has_guests: bool = False
    missing: tuple[str, ...]
    made: tuple[tuple[Resource, Observed], ...]
    lookup: Lookup

    @property
    def fairness(self) -> Fairness:
        """Return the administrator's settings."""
        return self.defaults.spec.fairness if self.defaults is not None else Fairness()


def plan(inputs: FairnessInputs, equivalent: Equivalent = same) -> Plan:
    """Return the writes that bring levels and FlowSchemas up to date."""
    members = {
        name: members_of(tenant.owners, tenant.namespaces)
        for name, tenant in inputs.reserved.items()
        if tenant is not None
    }
    owner = _owner_of(inputs.defaults)
    wanted = children(inputs.fairness, members, owner, has_planes=inputs.has_planes, has_guests=inputs.has_guests)
    keys = {(child.object.resource, child.object.key) for child in wanted}
    stale = [
        (resource, found) for resource, found in inputs.made if _is_made(found) and (resource, found.key) not in keys
    ]
    return compare(wanted, inputs.lookup, stale=stale, equivalent=equivalent)


def _owner_of(defaults: TenancyDefaults | None) -> OwnerReference | None:
    if defaults is None or defaults.metadata.deletion_timestamp:
        return None
    return OwnerReference(
        api_version=defaults.resource.api_version,
        kind=defaults.resource.kind,
        name=defaults.metadata.name,
        uid=defaults.metadata.uid,
        controller=True,
    )


def _is_made(found: Observed) -> bool:
    """Return whether an object comes and goes with TenancyDefaults, control planes or other clusters."""
    if found.name in {MIRRORS, GUESTS}:
        return found.labels.get(marks.MANAGED_BY) == marks.MANAGER
    named = found.name == TRUSTED or found.name.startswith(RESERVED_PREFIX)
    return named and found.labels.get(marks.MANAGED_BY) == marks.MANAGER and bool(found.owner_uid)


def children(
    fairness: Fairness,
    members: Mapping[str, Sequence[FlowSubject]],
    owner: OwnerReference | None,
    *,
    has_planes: bool = False,
    has_guests: bool = False,
) -> list[Child]:
    """Return every priority level and FlowSchema that should exist.

    Args:
        fairness: The administrator's settings.
        members: By tenant with a level of its own, the subjects of that level; see `members_of`.
        owner: The TenancyDefaults; None if there are none.
        has_planes: Whether there is a control plane.
        has_guests: Whether another cluster may run pods here.
    """
    # Without an owner: the shared level stays when TenancyDefaults are deleted, because tenants still need it.
    ours = {marks.MANAGED_BY: frozenset({marks.MANAGER})}
    shared = [*common(fairness.shares), *(mirrors() if has_planes else ()), *(guests() if has_guests else ())]
    found = [Child(object=each, wave=0, marks=ours) for each in shared]
    if owner is None:
        return found
    more: list[PriorityLevelConfiguration | FlowSchema] = []
    for reserved in fairness.reserved:
        name = f"{RESERVED_PREFIX}{reserved.tenant}"
        subjects = members.get(reserved.tenant, ())
        # A FlowSchema without subjects is invalid; the status reports the missing tenant.
        if subjects:
            more += [
                level(name, reserved.shares, owner=owner),
                flow_schema(name, level_name=name, precedence=RESERVED_PRECEDENCE, subjects=subjects, owner=owner),
            ]
    if fairness.trusted:
        subjects = [_trusted(each) for each in fairness.trusted]
        schema = flow_schema(
            TRUSTED, level_name=TRUSTED_LEVEL, precedence=TRUSTED_PRECEDENCE, subjects=subjects, owner=owner
        )
        more.append(schema)
    return [*found, *(Child(object=each, wave=0, owner_uid=owner.uid) for each in more)]


def mirrors() -> list[PriorityLevelConfiguration | FlowSchema]:
    """Return the level of the identities that write the objects of control planes, and its FlowSchema."""
    # No ServiceAccount of a tenant's namespace: its owners could send any requests to the level by impersonation.
    subjects = [_all_of(MIRRORS_NAMESPACE)]
    schema = flow_schema(MIRRORS, level_name=MIRRORS, precedence=MIRRORS_PRECEDENCE, subjects=subjects)
    return [level(MIRRORS, MIRROR_SHARES), schema]


def guests() -> list[PriorityLevelConfiguration | FlowSchema]:
    """Return the level of other clusters that run pods here, and its FlowSchema."""
    subjects = [_all_of(PEERS_NAMESPACE)]
    schema = flow_schema(GUESTS, level_name=GUESTS, precedence=GUESTS_PRECEDENCE, subjects=subjects)
    return [level(GUESTS, GUEST_SHARES), schema]


def members_of(owners: Sequence[Owner], namespaces: Sequence[str]) -> list[FlowSubject]:
    """Return the subjects of a tenant's own level: its owners, and the ServiceAccounts of its namespaces."""
    people = [_owner(owner) for owner in sorted(set(owners), key=lambda each: (each.kind, each.namespace, each.name))]
    return [*people, *(_all_of(namespace) for namespace in sorted(namespaces))]


def _owner(owner: Owner) -> FlowSubject:
    if owner.kind is OwnerKind.USER:
        return FlowSubject(kind="User", user=Named(name=owner.name))
    if owner.kind is OwnerKind.GROUP:
        return FlowSubject(kind="Group", group=Named(name=owner.name))
    return FlowSubject(
        kind="ServiceAccount", service_account=ServiceAccountNamed(namespace=owner.namespace, name=owner.name)
    )


def _trusted(trusted: Trusted) -> FlowSubject:
    if trusted.kind is TrustedKind.NAMESPACE:
        return _all_of(trusted.name)
    return _owner(Owner(kind=OwnerKind(trusted.kind.value), name=trusted.name))


def _all_of(namespace: str) -> FlowSubject:
    return FlowSubject(kind="ServiceAccount", service_account=ServiceAccountNamed(namespace=namespace, name="*"))


def level(name: str, shares: int, *, owner: OwnerReference | None = None) -> PriorityLevelConfiguration:
    """Return a level with seats of its own: it neither lends nor borrows any.

    Args:
        name: The name of the level.
        shares: Of the API server's seats, in proportion to the shares of all levels.
        owner: The object that it is deleted with; None for no object.
    """
    queuing = Queuing(queues=QUEUES, hand_size=HAND_SIZE, queue_length_limit=QUEUE_LENGTH)
    limited = Limited(
        nominal_concurrency_shares=shares,
        # With borrowed seats, tenants would occupy more processors than their share, however fair their queues are.
        lendable_percent=0,
        borrowing_limit_percent=0,
        limit_response=LimitResponse(type="Queue", queuing=queuing),
    )
    spec = PriorityLevelConfigurationSpec(type="Limited", limited=limited)
    return PriorityLevelConfiguration(metadata=_meta(name, owner), spec=spec)


def flow_schema(
    name: str,
    *,
    level_name: str,
    precedence: int,
    subjects: Sequence[FlowSubject],
    owner: OwnerReference | None = None,
) -> FlowSchema:
    """Return the FlowSchema that sends every request of some subjects to a level, in turns by user.

    Args:
        name: The name of the FlowSchema.
        level_name: The name of the level.
        precedence: A lower one is matched earlier.
        subjects: At least one.
        owner: The object that it is deleted with; None for no object.
    """
    # Every request of the subjects, or a flood of one kind of request would bypass the level.
    anything = ("*",)
    every = ResourceRule(
        verbs=anything, api_groups=anything, resources=anything, cluster_scope=True, namespaces=anything
    )
    page = NonResourceRule(verbs=anything, non_resource_urls=anything)
    rule = FlowRule(subjects=tuple(subjects), resource_rules=(every,), non_resource_rules=(page,))
    spec = FlowSchemaSpec(
        priority_level_configuration=LevelReference(name=level_name),
        matching_precedence=precedence,
        distinguisher_method=Distinguisher(type="ByUser"),
        rules=(rule,),
    )
    return FlowSchema(metadata=_meta(name, owner), spec=spec)


def _meta(name: str, owner: OwnerReference | None) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        labels={marks.MANAGED_BY: marks.MANAGER},
        owner_references=(owner,) if owner is not None else (),
    )
