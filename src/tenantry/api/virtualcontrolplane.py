"""VirtualControlPlane: an API server and controllers of a tenant's own, whose pods run in the tenant's namespace (H01).

VirtualControlPlane "web" in namespace "acme"
─► a hosted control plane: users are administrators inside
─► each Pod inside is mirrored: a Pod in "acme", under acme's quota, rules and NetworkPolicies
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import AGE, MESSAGE, READY, REASON, Column, Conditions, Names, ObservedGeneration, Rule
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import EDIT, READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.quota import Quantity

MAX_NAME = 40
"""The longest name: its process and its kubeconfig have this name with the namespace's before it."""

PREFIX = f"vcp.{GROUP}"
"""Of the marks of mirrored objects; the marks of Tenantry, which users cannot write, include them."""

MIRROR = "tenantry-mirror"
"""The ServiceAccount, the RoleBinding and the ClusterRole by which mirrored objects are written in one namespace."""

PROCESS_FINALIZER = f"{PREFIX}/process"
"""Keeps a VirtualControlPlane until its process, its data and its keys are gone; until then, it is charged."""

CPU_FLOOR, CPU_CEILING = "10m", "64"
"""Without requests, a process uses about 15 thousandths of a CPU."""

MEMORY_FLOOR = "96Mi"
"""The least request: the memory that its API server and its controllers hold without any objects of users."""

LIMIT_FLOOR = "192Mi"
"""The least limit: a process that has just started holds about 170 MB (decision 27), and would be killed below."""

MEMORY_CEILING = "64Gi"
"""Bounds the sums of the quota; a control plane that needs more is a typing error."""


class DatastoreKind(StrEnum):
    """Where a control plane keeps its objects."""

    SQLITE = "SQLite"


class PlaneDatastore(Model, frozen=True, kw_only=True):
    """The datastore of a control plane."""

    kind: Annotated[
        DatastoreKind, Meta(description="SQLite, in the process of the control plane: 512 MiB at most, one replica.")
    ] = DatastoreKind.SQLITE


def _least(field: str, floor: str) -> Rule:
    return Rule(
        f"!quantity(string(self.{field})).isLessThan(quantity('{floor}'))",
        f"must be at least {floor}, without which the process does not start",
        field=field,
    )


def _most(field: str, ceiling: str) -> Rule:
    return Rule(
        f"!quantity(string(self.{field})).isGreaterThan(quantity('{ceiling}'))",
        f"must be at most {ceiling}",
        field=field,
    )


class PlaneRequests(Model, frozen=True, kw_only=True):
    """What is charged to the tenant's quota as requests."""

    validations: ClassVar[tuple[Rule, ...]] = (
        _least("cpu", CPU_FLOOR),
        _most("cpu", CPU_CEILING),
        _least("memory", MEMORY_FLOOR),
        _most("memory", MEMORY_CEILING),
    )

    cpu: Annotated[Quantity, Meta(description=f"CPU that its process requests, from {CPU_FLOOR} to {CPU_CEILING}.")] = (
        "50m"
    )
    memory: Annotated[
        Quantity, Meta(description=f"Memory that its process requests, from {MEMORY_FLOOR} to {MEMORY_CEILING}.")
    ] = "96Mi"


class PlaneLimits(Model, frozen=True, kw_only=True):
    """What is charged to the tenant's quota as limits."""

    validations: ClassVar[tuple[Rule, ...]] = (_least("memory", LIMIT_FLOOR), _most("memory", MEMORY_CEILING))

    memory: Annotated[
        Quantity, Meta(description=f"The memory limit of its process, from {LIMIT_FLOOR} to {MEMORY_CEILING}.")
    ] = "256Mi"


class PlaneResources(Model, frozen=True, kw_only=True):
    """The share of the tenant's quota that a control plane takes, for the keys that the quota has."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!quantity(string(self.requests.memory)).isGreaterThan(quantity(string(self.limits.memory)))",
            "must not be more than limits.memory",
            field="requests.memory",
        ),
    )

    requests: Annotated[PlaneRequests, Meta(description="What its process requests.")] = PlaneRequests()
    limits: Annotated[PlaneLimits, Meta(description="What its process may use.")] = PlaneLimits()


class VirtualControlPlaneSpec(Model, frozen=True, kw_only=True):
    """How a control plane runs."""

    datastore: Annotated[PlaneDatastore, Meta(description="Where it keeps its objects.")] = PlaneDatastore()
    resources: Annotated[
        PlaneResources,
        Meta(
            description="What it takes of the tenant's quota while its process exists: the keys requests.cpu,"
            " requests.memory and limits.memory, if the quota has them. Its process starts when there is room."
        ),
    ] = PlaneResources()


class VirtualControlPlaneStatus(Model, frozen=True, kw_only=True):
    """Where a control plane is."""

    observed_generation: ObservedGeneration = 0
    endpoint: Annotated[str, Meta(description="The URL of its API server.")] = ""
    kubeconfig_secret: Annotated[
        str, Meta(description="The Secret in the same namespace that has a kubeconfig under the key `kubeconfig`.")
    ] = ""
    charged: Annotated[
        dict[str, str],
        Meta(
            max_length=8,
            description="What the tenant's quota has granted, by quota key. It is written before the process starts.",
        ),
    ] = {}
    conditions: Conditions = ()


class VirtualControlPlane(KubernetesObject, frozen=True, kw_only=True):
    """An API server and controllers of a tenant's own; its pods run in the namespace of this object."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "virtualcontrolplanes", "VirtualControlPlane")
    names: ClassVar[Names] = Names(short=("vcp",))
    access: ClassVar[KindAccess] = KindAccess(operator=(*READ, "patch"), updates=("status",), owners=EDIT)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= {MAX_NAME}",
            f"must be a DNS label of at most {MAX_NAME} lower-case letters, digits and -",
            field="metadata.name",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Endpoint", "string", ".status.endpoint"),
        MESSAGE,
        AGE,
    )

    spec: VirtualControlPlaneSpec = VirtualControlPlaneSpec()
    status: VirtualControlPlaneStatus = VirtualControlPlaneStatus()
