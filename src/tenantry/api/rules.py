"""Rules: what the workloads of a tenant may ask for, as people write it (E15).

They stand in TenancyDefaults, in a Tenant and in a Subnamespace; a lower level only ever tightens what is above it. A
field that is not given says nothing; a list that is given and empty allows nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType, field

from tenantry.api.crd import Rule, rules
from tenantry.api.model import Model
from tenantry.api.quota import ContainerResources

MAX_NAMES = 64
MAX_PATTERNS = 32


class Action(StrEnum):
    """What comes of a request that a rule is against."""

    ENFORCE = "Enforce"
    WARN = "Warn"
    AUDIT = "Audit"


class Permission(StrEnum):
    """Whether something may be."""

    ALLOW = "Allow"
    REFUSE = "Refuse"


class Level(StrEnum):
    """A level of the Pod Security Standards; each has all that the one before it has."""

    PRIVILEGED = "Privileged"
    BASELINE = "Baseline"
    RESTRICTED = "Restricted"


class Seccomp(StrEnum):
    """Which seccomp profiles containers may have."""

    ANY = "Any"
    CONFINED = "Confined"
    REQUIRED = "Required"


class PullPolicy(StrEnum):
    """When an image is fetched anew."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class ServiceType(StrEnum):
    """How a Service is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class ReclaimPolicy(StrEnum):
    """What becomes of a volume whose claim is gone."""

    DELETE = "Delete"
    RETAIN = "Retain"


_PARSES = Rule(
    "self.all(p, ''.matches(p) in [true, false] && ''.matches('^(?:' + p + ')$') in [true, false])",
    "must have only regular expressions in the syntax of RE2, as in registry[.]example[.]com/.*",
)

_CIDRS = Rule("self.all(c, isCIDR(c))", "must have only CIDRs, as in 203.0.113.0/24")
_DOMAIN = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

_Action = Annotated[
    Action, Meta(description="Enforce: refused. Warn: allowed, with a warning. Audit: noted in the audit log.")
]
_PLAIN = r"^[^\x00-\x1f\x7f]*$"
"""No control characters: they separate values where policies read them; see policy/text.py."""

_Names = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=253, pattern=_PLAIN)], ...], Meta(max_length=MAX_NAMES)
]
_Pairs = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=381, pattern=_PLAIN)], ...], Meta(max_length=MAX_NAMES)
]
_Patterns = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=256, pattern=_PLAIN)], ...],
    Meta(max_length=MAX_PATTERNS, extra_json_schema=rules(_PARSES)),
]


class RuleModel(Model, frozen=True, kw_only=True):
    """The base of every rule."""

    action: _Action = Action.ENFORCE


class PodSecurity(RuleModel, frozen=True, kw_only=True):
    """What pods may do to their node: a level of the Pod Security Standards, and single switches that override it."""

    level: (
        Annotated[Level, Meta(description="Privileged (no limits), Baseline or Restricted: the switches below.")]
        | UnsetType
    ) = UNSET
    privileged: Annotated[Permission, Meta(description="Privileged containers.")] | UnsetType = UNSET
    host_namespaces: Annotated[Permission, Meta(description="hostNetwork, hostPID, hostIPC.")] | UnsetType = UNSET
    host_path: Annotated[Permission, Meta(description="Volumes of type hostPath.")] | UnsetType = UNSET
    host_ports: Annotated[Permission, Meta(description="Ports of the node.")] | UnsetType = UNSET
    host_probes: Annotated[Permission, Meta(description="Probes and lifecycle hooks that name a host.")] | UnsetType = (
        UNSET
    )
    host_process: Annotated[Permission, Meta(description="Windows containers on the host.")] | UnsetType = UNSET
    proc_mount: Annotated[Permission, Meta(description="A procMount other than Default.")] | UnsetType = UNSET
    se_linux: (
        Annotated[Permission, Meta(description="SELinux users, roles, and types that are not a container's.")]
        | UnsetType
    ) = UNSET
    app_armor: Annotated[Permission, Meta(description="AppArmor profiles of type Unconfined.")] | UnsetType = UNSET
    privilege_escalation: (
        Annotated[Permission, Meta(description="Containers without allowPrivilegeEscalation: false.")] | UnsetType
    ) = UNSET
    run_as_root: (
        Annotated[Permission, Meta(description="Containers that run as root, or do not say runAsNonRoot: true.")]
        | UnsetType
    ) = UNSET
    default_capabilities: (
        Annotated[Permission, Meta(description="Containers that do not drop ALL capabilities.")] | UnsetType
    ) = UNSET
    seccomp: (
        Annotated[Seccomp, Meta(description="Any; Confined: not Unconfined; Required: RuntimeDefault or Localhost.")]
        | UnsetType
    ) = UNSET
    capabilities: Annotated[_Names, Meta(description="Which may be added.")] | UnsetType = UNSET
    sysctls: Annotated[_Names, Meta(description="Which may be set.")] | UnsetType = UNSET
    volume_types: (
        Annotated[_Names, Meta(description="As in a pod: configMap, emptyDir, persistentVolumeClaim.")] | UnsetType
    ) = UNSET


class Images(RuleModel, frozen=True, kw_only=True):
    """Which images may run."""

    allowed: (
        Annotated[
            _Patterns,
            Meta(description="Regular expressions (RE2), one of which the whole image reference, as written, matches."),
        ]
        | UnsetType
    ) = UNSET
    pull_policies: (
        Annotated[tuple[PullPolicy, ...], Meta(max_length=3, description="Always, IfNotPresent, Never.")] | UnsetType
    ) = UNSET


class RuntimeClasses(RuleModel, frozen=True, kw_only=True):
    """Which RuntimeClasses pods may name."""

    allowed: (
        Annotated[
            _Names,
            Meta(description="Names; a pod may always name none, and a sandboxed one is always in the sandbox."),
        ]
        | UnsetType
    ) = UNSET
    on_missing_sandbox: (
        Annotated[
            Permission,
            Meta(description="Pods without a sandbox where isolation.runtime is Sandboxed and the cluster has none."),
        ]
        | UnsetType
    ) = UNSET


class PriorityClasses(RuleModel, frozen=True, kw_only=True):
    """Which PriorityClasses pods may have, the cluster's default among them."""

    allowed: Annotated[_Names, Meta(description="Names; a pod may have none.")] | UnsetType = UNSET
    system: (
        Annotated[
            Permission,
            Meta(
                description="system-cluster-critical and system-node-critical: such pods throw out everybody else's"
                " where nodes are full."
            ),
        ]
        | UnsetType
    ) = UNSET


class Scheduling(RuleModel, frozen=True, kw_only=True):
    """Where pods may ask to run."""

    node_name: (
        Annotated[
            Permission,
            Meta(description="Pods that name their node, past the scheduler and taints, and claims that name it."),
        ]
        | UnsetType
    ) = UNSET
    other_tenants: (
        Annotated[
            Permission,
            Meta(
                description="Pod affinity and anti-affinity to pods of other tenants: it finds out where they run, goes"
                " there, or keeps them away from a node."
            ),
        ]
        | UnsetType
    ) = UNSET
    node_selectors: (
        Annotated[
            _Pairs,
            Meta(description="Labels in nodeSelector and node affinity: KEY=VALUE, or KEY for any value."),
        ]
        | UnsetType
    ) = UNSET
    tolerations: (
        Annotated[_Names, Meta(description="Keys of tolerations, beside those of not-ready and unreachable nodes.")]
        | UnsetType
    ) = UNSET


class Containers(RuleModel, frozen=True, kw_only=True):
    """How much one container may use."""

    max: (
        Annotated[ContainerResources, Meta(description="Resource to the most that requests and limits may be.")]
        | UnsetType
    ) = UNSET
    required_limits: (
        Annotated[_Names, Meta(description="Resources of which every container must have a limit.")] | UnsetType
    ) = UNSET


class StorageClasses(RuleModel, frozen=True, kw_only=True):
    """Which StorageClasses volumes may be claimed of."""

    allowed: Annotated[_Names, Meta(description="Names.")] | UnsetType = UNSET
    default: Annotated[str, Meta(min_length=1, max_length=253, description="Of claims that name none.")] | UnsetType = (
        UNSET
    )
    reclaim_policies: (
        Annotated[tuple[ReclaimPolicy, ...], Meta(max_length=2, description="Delete, Retain: of a claimed volume.")]
        | UnsetType
    ) = UNSET
    existing_volumes: (
        Annotated[
            Permission,
            Meta(
                description="Claims on volumes that are there already: by name, by label, of no class, or with data of"
                " another namespace."
            ),
        ]
        | UnsetType
    ) = UNSET


class Services(RuleModel, frozen=True, kw_only=True):
    """How Services may be reached from outside."""

    types: (
        Annotated[tuple[ServiceType, ...], Meta(max_length=3, description="ClusterIP, NodePort, LoadBalancer.")]
        | UnsetType
    ) = UNSET
    external_ips: Annotated[Permission, Meta(description="spec.externalIPs.")] | UnsetType = field(
        name="externalIPs", default=UNSET
    )
    external_name: Annotated[Permission, Meta(description="Services of type ExternalName.")] | UnsetType = UNSET
    load_balancer_source_ranges: (
        Annotated[
            _Names,
            Meta(
                description="CIDRs, in one of which each range of a load balancer must be.",
                extra_json_schema=rules(_CIDRS),
            ),
        ]
        | UnsetType
    ) = UNSET
    endpoints: (
        Annotated[Permission, Meta(description="Endpoints and EndpointSlices that people write: they lead anywhere.")]
        | UnsetType
    ) = UNSET


class Hostnames(RuleModel, frozen=True, kw_only=True):
    """Which hosts Ingresses, Gateways and routes may have."""

    allowed: (
        Annotated[_Patterns, Meta(description="Regular expressions (RE2), one of which a whole host name matches.")]
        | UnsetType
    ) = UNSET
    domain: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=189,
                pattern=_DOMAIN,
                description="Hosts are TENANT.DOMAIN or below: as each tenant has a name of its own, so do its hosts.",
            ),
        ]
        | UnsetType
    ) = UNSET
    catch_all: (
        Annotated[
            Permission,
            Meta(description="Ingresses, listeners and routes without a host, or of a whole top-level domain (*.com)."),
        ]
        | UnsetType
    ) = UNSET
    ingress_classes: Annotated[_Names, Meta(description="IngressClasses; an Ingress must name one.")] | UnsetType = (
        UNSET
    )
    gateway_classes: Annotated[_Names, Meta(description="GatewayClasses that a Gateway may name.")] | UnsetType = UNSET


_Keys = Annotated[_Patterns, Meta(description="Regular expressions (RE2), one of which each key matches whole.")]


class Namespaces(RuleModel, frozen=True, kw_only=True):
    """Which labels and annotations Subnamespaces may give their namespaces, beside TENANT.tenantry.dev/…."""

    labels: _Keys | UnsetType = UNSET
    annotations: _Keys | UnsetType = UNSET


class Rules(Model, frozen=True, kw_only=True):
    """What workloads may ask for; what is not said is not limited at this level."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.storageClasses) || !has(self.storageClasses.default) || !has(self.storageClasses.allowed)"
            " || self.storageClasses.default in self.storageClasses.allowed",
            "must be one of storageClasses.allowed",
            field="storageClasses.default",
        ),
    )

    pod_security: PodSecurity | UnsetType = UNSET
    images: Images | UnsetType = UNSET
    runtime_classes: RuntimeClasses | UnsetType = UNSET
    priority_classes: PriorityClasses | UnsetType = UNSET
    scheduling: Scheduling | UnsetType = UNSET
    containers: Containers | UnsetType = UNSET
    storage_classes: StorageClasses | UnsetType = UNSET
    services: Services | UnsetType = UNSET
    hostnames: Hostnames | UnsetType = UNSET
    namespaces: Namespaces | UnsetType = UNSET
