"""Rules: what the workloads of a tenant may ask for, as people write it (E15).

They stand in TenancyDefaults, in a Tenant and in a Subnamespace; a lower level only ever tightens what is above it. A
field that is not given says nothing; a list that is given and empty allows nothing.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import Rule
from tenantry.api.exposure import Annotations, Hostnames, Services
from tenantry.api.model import Model
from tenantry.api.names import PLAIN
from tenantry.api.podsecurity import BASELINE_CAPABILITIES, NODE_VOLUMES, RESTRICTED_VOLUMES, SAFE_SYSCTLS
from tenantry.api.quota import ContainerResources, ObjectSizes
from tenantry.api.ruledeclarations import (
    IN_BASELINE,
    IN_STRICT,
    SHARED_LABELS,
    ImageCredentials,
    NameList,
    PairList,
    PatternList,
    Permission,
    PodSecurityLevel,
    PullPolicy,
    ReclaimPolicy,
    RuleModel,
    Seccomp,
    Standard,
    about,
    control,
    strict,
)

MOST_TOKEN_SECONDS = 365 * 24 * 60 * 60
"""The longest time for which an administrator may let tokens be requested."""


class PodSecurity(RuleModel, frozen=True, kw_only=True):
    """What pods may do to their node: a level of the Pod Security Standards, and single switches that override it."""

    level: (
        Annotated[
            PodSecurityLevel,
            about(
                "Privileged (no limits), Baseline or Restricted: the switches below.",
                PodSecurityLevel.BASELINE,
                restricted=PodSecurityLevel.RESTRICTED,
            ),
        ]
        | UnsetType
    ) = UNSET
    privileged: Annotated[Permission, control("Privileged containers.", IN_BASELINE)] | UnsetType = UNSET
    host_namespaces: Annotated[Permission, control("hostNetwork, hostPID, hostIPC.", IN_BASELINE)] | UnsetType = UNSET
    host_path: Annotated[Permission, control("Volumes of type hostPath.", IN_BASELINE)] | UnsetType = UNSET
    nfs: Annotated[Permission, strict("Volumes of type nfs, which the node mounts from any server.")] | UnsetType = (
        UNSET
    )
    iscsi: Annotated[Permission, strict("Volumes of type iscsi, to which the node logs in.")] | UnsetType = UNSET
    flex_volume: (
        Annotated[Permission, strict("Volumes of type flexVolume: a driver runs as root on the node.")] | UnsetType
    ) = UNSET
    node_volumes: (
        Annotated[
            Permission,
            strict(f"Volumes of other types that the node attaches from elsewhere: {', '.join(NODE_VOLUMES)}."),
        ]
        | UnsetType
    ) = UNSET
    csi_drivers: (
        Annotated[
            NameList,
            about(
                "CSI drivers of volumes that a pod describes itself (type csi): the node mounts what the pod names.",
                restricted=(),
                warned=(),
            ),
        ]
        | UnsetType
    ) = UNSET
    host_ports: Annotated[Permission, control("Ports of the node.", IN_BASELINE)] | UnsetType = UNSET
    host_probes: (
        Annotated[Permission, control("Probes and lifecycle hooks that name a host.", IN_BASELINE)] | UnsetType
    ) = UNSET
    host_process: Annotated[Permission, control("Windows containers on the host.", IN_BASELINE)] | UnsetType = UNSET
    proc_mount: Annotated[Permission, control("A procMount other than Default.", IN_BASELINE)] | UnsetType = UNSET
    se_linux: (
        Annotated[Permission, control("SELinux users, roles, and types that are not a container's.", IN_BASELINE)]
        | UnsetType
    ) = UNSET
    app_armor: Annotated[Permission, control("AppArmor profiles of type Unconfined.", IN_BASELINE)] | UnsetType = UNSET
    privilege_escalation: (
        Annotated[Permission, control("Containers without allowPrivilegeEscalation: false.", IN_STRICT)] | UnsetType
    ) = UNSET
    run_as_root: (
        Annotated[Permission, control("Containers that run as root, or do not set runAsNonRoot: true.", IN_STRICT)]
        | UnsetType
    ) = UNSET
    default_capabilities: (
        Annotated[Permission, control("Containers that do not drop ALL capabilities.", IN_STRICT)] | UnsetType
    ) = UNSET
    seccomp: (
        Annotated[
            Seccomp,
            control(
                "Any; Confined: not Unconfined; Required: RuntimeDefault or Localhost.",
                {PodSecurityLevel.BASELINE: Seccomp.CONFINED, PodSecurityLevel.RESTRICTED: Seccomp.REQUIRED},
            ),
        ]
        | UnsetType
    ) = UNSET
    capabilities: (
        Annotated[
            NameList,
            control(
                "Capabilities that containers may add.",
                {PodSecurityLevel.BASELINE: BASELINE_CAPABILITIES, PodSecurityLevel.RESTRICTED: ("NET_BIND_SERVICE",)},
            ),
        ]
        | UnsetType
    ) = UNSET
    sysctls: (
        Annotated[NameList, control("Sysctls that pods may set.", {PodSecurityLevel.BASELINE: SAFE_SYSCTLS})]
        | UnsetType
    ) = UNSET
    volume_types: (
        Annotated[
            NameList,
            control(
                "Types of volumes, as in a pod: configMap, emptyDir, persistentVolumeClaim.",
                {PodSecurityLevel.RESTRICTED: RESTRICTED_VOLUMES},
            ),
        ]
        | UnsetType
    ) = UNSET


class Images(RuleModel, frozen=True, kw_only=True):
    """Which images may run."""

    allowed: (
        Annotated[
            PatternList,
            about("Regular expressions (RE2), one of which the whole image reference, as written, matches."),
        ]
        | UnsetType
    ) = UNSET
    pull_policies: (
        Annotated[tuple[PullPolicy, ...], Meta(max_length=3), about("Always, IfNotPresent, Never.")] | UnsetType
    ) = UNSET
    cached: (
        Annotated[
            Permission,
            strict("Images that a node already has, perhaps for another tenant: a pull policy other than Always."),
        ]
        | UnsetType
    ) = UNSET
    credentials: (
        Annotated[
            ImageCredentials,
            about(
                "Verified: an administrator declares that kubelets check a pod's credentials for images that they have"
                " (imagePullCredentialsVerificationPolicy), and images.cached refuses only pods that may run on"
                " contributed nodes. A value of a Subnamespace has no effect."
            ),
        ]
        | UnsetType
    ) = UNSET


class RuntimeClasses(RuleModel, frozen=True, kw_only=True):
    """Which RuntimeClasses pods may name."""

    allowed: (
        Annotated[
            NameList,
            about("Names; a pod may always name none, and a sandboxed pod is always in the sandbox.", restricted=()),
        ]
        | UnsetType
    ) = UNSET
    on_missing_sandbox: (
        Annotated[
            Permission,
            about(
                "Pods without a sandbox if isolation.runtime is Sandboxed and the cluster has none.", Permission.REFUSE
            ),
        ]
        | UnsetType
    ) = UNSET


class PriorityClasses(RuleModel, frozen=True, kw_only=True):
    """Which PriorityClasses pods may have, the cluster's default among them."""

    allowed: Annotated[NameList, about("Names; a pod may have none.", restricted=(), warned=())] | UnsetType = UNSET
    system: (
        Annotated[
            Permission,
            about(
                "system-cluster-critical and system-node-critical: such pods preempt those of all tenants if nodes are"
                " full.",
                Permission.REFUSE,
            ),
        ]
        | UnsetType
    ) = UNSET


class Scheduling(RuleModel, frozen=True, kw_only=True):
    """Where pods may ask to run."""

    node_name: (
        Annotated[
            Permission,
            about("Pods and claims that name their node, which the scheduler should choose.", Permission.REFUSE),
        ]
        | UnsetType
    ) = UNSET
    other_tenants: (
        Annotated[
            Permission,
            about(
                "Pod affinity and anti-affinity to pods of other tenants: it reveals where they run, or keeps them off"
                " a node.",
                Permission.REFUSE,
            ),
        ]
        | UnsetType
    ) = UNSET
    node_selectors: (
        Annotated[
            PairList,
            about(
                "Labels in nodeSelector and node affinity: KEY=VALUE, or KEY for any value.",
                restricted=SHARED_LABELS,
                warned=SHARED_LABELS,
            ),
        ]
        | UnsetType
    ) = UNSET
    control_plane_tolerations: (
        Annotated[
            Permission,
            about(
                "Tolerations of the taints of control planes, and of all taints at once: such pods run beside the API"
                " server.",
                Permission.REFUSE,
            ),
        ]
        | UnsetType
    ) = UNSET
    tolerations: (
        Annotated[
            NameList, about("Keys of tolerations, beside those of not-ready and unreachable nodes.", restricted=())
        ]
        | UnsetType
    ) = UNSET


class Containers(RuleModel, frozen=True, kw_only=True):
    """How much one container may use."""

    max: Annotated[ContainerResources, about("Resource to the most that requests and limits may be.")] | UnsetType = (
        UNSET
    )
    max_limits: (
        Annotated[
            ContainerResources,
            about("Resource to the most that a limit may be.", {"cpu": "32", "memory": "128Gi"}),
        ]
        | UnsetType
    ) = UNSET
    limit_ratios: (
        Annotated[
            ContainerResources,
            about(
                "Resource to the most that a limit may be, as a multiple of the request.",
                {"cpu": "200", "memory": "32"},
                restricted={"cpu": "50", "memory": "8"},
            ),
        ]
        | UnsetType
    ) = UNSET
    required_limits: (
        Annotated[
            NameList,
            about(
                "Resources of which every container must have a limit.",
                restricted=("cpu", "memory"),
                warned=("cpu", "memory"),
            ),
        ]
        | UnsetType
    ) = UNSET


class StorageClasses(RuleModel, frozen=True, kw_only=True):
    """The StorageClasses of claims."""

    allowed: Annotated[NameList, about("Names.")] | UnsetType = UNSET
    default: (
        Annotated[str, Meta(min_length=1, max_length=253, pattern=PLAIN), about("The class of claims that name none.")]
        | UnsetType
    ) = UNSET
    reclaim_policies: (
        Annotated[
            tuple[ReclaimPolicy, ...],
            Meta(max_length=2),
            about("Delete, Retain: the reclaimPolicy of the claim's StorageClass.", (ReclaimPolicy.DELETE,)),
        ]
        | UnsetType
    ) = UNSET
    existing_volumes: (
        Annotated[
            Permission,
            about(
                "Claims on volumes that exist already: by name, by label, without a class, or with data of another"
                " namespace.",
                Permission.REFUSE,
            ),
        ]
        | UnsetType
    ) = UNSET


class Devices(RuleModel, frozen=True, kw_only=True):
    """What ResourceClaims and their templates may request (Kubernetes: "Dynamic Resource Allocation")."""

    allocate_all: (
        Annotated[Permission, strict("The allocation mode All: all matching devices of a node at once.")] | UnsetType
    ) = UNSET
    admin_access: (
        Annotated[Permission, about("adminAccess, which also opens devices of others.", Permission.REFUSE)] | UnsetType
    ) = UNSET


class Objects(RuleModel, frozen=True, kw_only=True):
    """How large one object may be."""

    max_sizes: (
        Annotated[
            ObjectSizes,
            about(
                "Kind to the most bytes of one object: configmaps, secrets, helmReleases for Secrets of type"
                " helm.sh/release.v1, and others for all other kinds that are not custom. Annotations and labels count,"
                " too.",
                {"configmaps": "128Ki", "secrets": "128Ki", "helmReleases": "1Mi", "others": "64Ki"},
            ),
        ]
        | UnsetType
    ) = UNSET


class Tokens(RuleModel, frozen=True, kw_only=True):
    """How long tokens of ServiceAccounts are good: they outlive the rights of the person who requested them."""

    max_seconds: (
        Annotated[
            int,
            Meta(ge=600, le=MOST_TOKEN_SECONDS),
            about("The most seconds of a requested token, or of one in a projected volume.", 24 * 60 * 60),
        ]
        | UnsetType
    ) = UNSET
    secrets: (
        Annotated[Permission, strict("Secrets of type kubernetes.io/service-account-token: their tokens never expire.")]
        | UnsetType
    ) = UNSET


_Keys = Annotated[PatternList, about("Regular expressions (RE2), one of which each key matches as a whole.")]


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

    standard: (
        Annotated[
            Standard,
            Meta(
                description="The set of rules that holds for what no administrator sets: Baseline (the default), or"
                " Restricted for strangers. A Subnamespace may only name the tighter one."
            ),
        ]
        | UnsetType
    ) = UNSET
    pod_security: PodSecurity | UnsetType = UNSET
    images: Images | UnsetType = UNSET
    runtime_classes: RuntimeClasses | UnsetType = UNSET
    priority_classes: PriorityClasses | UnsetType = UNSET
    scheduling: Scheduling | UnsetType = UNSET
    containers: Containers | UnsetType = UNSET
    storage_classes: StorageClasses | UnsetType = UNSET
    services: Services | UnsetType = UNSET
    hostnames: Hostnames | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    devices: Devices | UnsetType = UNSET
    namespaces: Namespaces | UnsetType = UNSET
    objects: Objects | UnsetType = UNSET
    tokens: Tokens | UnsetType = UNSET
