"""The labels, annotations and names of the objects of Tenantry.

Protected marks are keys whose prefix is `tenantry.dev` or ends in `.tenantry.dev`: users may set only those in
`USER_MARKS`.
"""

from __future__ import annotations

GROUP = "tenantry.dev"
VERSION = "v1alpha1"

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "tenantry"
"""The value of MANAGED_BY, the field manager's prefix, and the events' reporting controller."""

INSTALLED_VERSION = "app.kubernetes.io/version"
"""The version of Tenantry that installed an object."""

BUILD = "tenantry.dev/build"
"""An annotation of Tenantry's namespace: the digest of everything that was installed."""

KIND = "tenantry.dev/kind"
TENANT = "tenantry.dev/tenant"
TENANT_UID = "tenantry.dev/tenant-uid"
CLUSTER_UID = "tenantry.dev/cluster-uid"
SUSPENDED = "tenantry.dev/suspended"
"""On a namespace: the policy `tenantry-suspended` closes it. Its value is always "true"."""

SUSPENDED_SUBJECTS = "tenantry.dev/suspended-subjects"
"""On a RoleBinding of a suspended tenant: the subjects to restore, as JSON."""

KIND_CORE = "core"
KIND_WORKSPACE = "workspace"
KIND_SUBTENANT = "subtenant"
"""The values of KIND: what a namespace is in its tenant's tree."""

PARENT = "tenantry.dev/parent"
"""On a child namespace: the namespace above it."""

SUBNAMESPACE = "tenantry.dev/subnamespace"
SUBNAMESPACE_UID = "tenantry.dev/subnamespace-uid"
"""On a child namespace: the Subnamespace that it is bound to, in the namespace that PARENT names."""

TREE_SUFFIX = ".tree.tenantry.dev/depth"
"""On every namespace of a tree, after the name of each ancestor and its own: the distance to that namespace."""

NETWORK = "tenantry.dev/network"
"""On every namespace of a tree: `Tenant.spec.isolation.network`."""

ZONE = "tenantry.dev/zone"
"""On every namespace of a tree: the uid of the nearest Subnamespace at or above it with a zone of its own (every
Subtenant, and Workspaces with `isolation.zone: Own`), else of its tenant. Pods of one zone reach each other."""

RUNTIME = "tenantry.dev/runtime"
"""On a namespace whose pods run in the cluster's sandbox."""

RUNTIME_SANDBOXED = "Sandboxed"
RUNTIME_PREFERRED = "Preferred"
"""The values of RUNTIME: a pod must run in it, or does as long as the cluster has one."""

SLICE = "tenantry.dev/slice"
"""On a namespace whose pods run on the nodes of a slice, and on those nodes. The value is the slice's name.

Also the key of the taint of reserved nodes.
"""

OWN_NODES = "tenantry.dev/own-nodes"
"""On every namespace of a tree with `isolation.nodes: Slice`: the policy `tenantry-own-nodes` refuses its pods until
they run on a slice. Its value is always "true"."""

SLICE_RESERVED = "tenantry.dev/slice-reserved"
"""On a node, from the reservation to the release. The value is the slice's name."""

SLICE_CLAIM = "tenantry.dev/slice-claim"
"""On the same node: the claim, as NAMESPACE/NAME/UID."""

POOL = "tenantry.dev/pool"
"""On a claim of a DedicatedCluster, and on a Node in the cluster: the name of the pool."""

ADD_ON = "tenantry.dev/add-on"
"""On what the operator keeps inside a control plane with nodes of its own: the name of the add-on."""

LAST_DRAIN = "tenantry.dev/last-drain"
"""On a node: TIME TENANT_UID SLICE of the last eviction of other tenants' pods for a slice."""

CONTRIBUTED_BY = "tenantry.dev/contributed-by"
"""On a node that its owner has contributed: the tenant that has the first claim on it.

Also the key of the taint of contributed nodes: only this tenant tolerates it, and tenants whose namespaces name it in
CONTRIBUTORS. The value of the taint is "" until the operator knows the tenant.
"""

CONTRIBUTORS = "tenantry.dev/contributors"
"""On every namespace of a tree: other tenants whose contributed nodes its pods may run on, separated by commas."""

OWNER = "tenantry.dev/owner"
LOCATION = "tenantry.dev/location"
DEVICE = "tenantry.dev/device"
"""On the same node: its owner, location and device."""

TAKEN_BACK = "tenantry.dev/taken-back"
"""On the same node: since when its owner wants it back, in RFC 3339."""

HANDED_OVER = "tenantry.dev/handed-over"
"""On a Node that serves a cluster of a tenant, a label: the name of the control plane.

Also the key of the taint with this value, which no pod of a tenant tolerates: nothing runs there for the host.
"""

HANDED_OVER_TO = "tenantry.dev/handed-over-to"
"""On the same Node, an annotation: the control plane, as NAMESPACE/NAME."""

HANDOVER_RECORD = "tenantry.dev/handover"
"""On the same Node, an annotation: what the host gets back; see controllers/nodehandover/nodemarks.py."""

NODE_ADDRESSES = "tenantry.dev/node-addresses"
"""On a node, by the operator or an administrator: addresses and CIDRs that belong to the node, separated by commas.

Of a contributed node, only these count, because the node's own report is input.
"""

OF_CONTRIBUTIONS = (CONTRIBUTED_BY, OWNER, LOCATION, DEVICE)

NODE_AGENT = "tenantry.dev/node-agent"
"""On a node, set by its agent, which cleans the node between tenants. The value is the agent's version."""

CLEANING = "tenantry.dev/cleaning"
"""On a node that a slice gives back: what its agent is to do; see `cleaning`."""

CLEANED = "tenantry.dev/cleaned"
"""On the same node, set by its agent: the result of the cleaning."""

PARTS = "tenantry.dev/parts"
"""On a node, "true" by an administrator: it is given out in parts. Also the key of the taint that keeps others away."""

PART = "tenantry.dev/part"
"""On a namespace whose pods run in parts of nodes. Its value is the slice's name."""

PART_SUFFIX = ".parts.tenantry.dev/"
"""In the keys of what a node has of a part, between the slice's name and CPU_MILLI, MEMORY_MIB or PART_OPEN."""

CPU_MILLI = "cpu-milli"
MEMORY_MIB = "memory-mib"
"""The size of a part, in thousandths of a CPU and in MiB: a label of the node and an extended resource."""

PART_OPEN = "open"
"""On a node: the scheduler may place pods of the part. The value is always "true"."""

SANDBOX = "tenantry.dev/sandbox"
"""On a RuntimeClass, set by an administrator: "true" or "false"; it overrides the name of the handler."""

EGRESS = "tenantry.dev/egress"
"""On a pod of a Baseline tenant: only the tenant's own NetworkPolicies limit its egress. Any value."""

SHARED = "tenantry.dev/shared"
"""On a namespace outside of tenants, set by an administrator: "true" if all tenants can resolve its Services by DNS.

The CoreDNS plugin in go/coredns reads it.
"""

CONTROL_PLANE = "tenantry.dev/control-plane"
"""On a namespace whose owners work with a control plane of their own: the name of its VirtualControlPlane."""

CONVERTING = "tenantry.dev/converting"
"""On a namespace whose objects move to a control plane: the policy `tenantry-converting` closes it. Always "true"."""

ALLOW_DELETION = "tenantry.dev/allow-deletion"
"""On the VirtualControlPlane of a Tenant or Subnamespace, by an administrator: it may be deleted. Any value."""

CIDRS = "tenantry.dev/cidrs"
"""On every namespace of a tree: the addresses that a tenant's own NetworkPolicies may open, separated by commas."""

GIVEN_LABELS = "tenantry.dev/given-labels"
GIVEN_ANNOTATIONS = "tenantry.dev/given-annotations"
"""On a child namespace: keys without our prefix that its Subnamespace gave it, with commas between, and takes away."""

INGRESS_MBPS = "tenantry.dev/ingress-mbps"
EGRESS_MBPS = "tenantry.dev/egress-mbps"
"""Extended resources: bandwidth in Mbit/s. On a node, labels with its capacity."""

OWNERS = "tenantry.dev/owners"
"""On a namespace of a tree, an annotation: its owners, one `owner_line` each, with a line break before and after."""

SUMMARY = "tenantry.dev/tenant-summary"
"""On a core namespace, an annotation: what owners read of their Tenant (controllers/tenant/summary.py)."""

INHERITED_FROM = "tenantry.dev/inherited-from"
"""On an object that is kept the same as the one of its name in the namespace that this names."""

INHERIT = "tenantry.dev/inherit"
"""On an object: "all", "none", or a label selector of the child namespaces that inherit it."""

MADE_BY = "tenantry.dev/made-by"
"""On a ServiceAccount or a token Secret of a tenant, an annotation: the user who created it, by the API server.

Tokens of the ServiceAccount outlive the rights of that user.
"""

QUOTA_BATCH = "tenantry.dev/quota-batch"
"""On a ResourceQuota: the number of the batch of moves that wrote it last."""

OFFLOAD = "federation.tenantry.dev/offload"
"""On a namespace, by an administrator or its Subnamespace: "true" creates its NamespaceOffloading."""

POD_STRATEGY = "federation.tenantry.dev/pod-strategy"
"""On a namespace: `spec.podStrategy` of its NamespaceOffloading, by which policies change and refuse its pods."""

PEERS = "federation.tenantry.dev/peers"
"""On the same namespace, an annotation: the peers whose Nodes its pods may tolerate, separated by commas."""

AUDIENCES = "federation.tenantry.dev/token-audiences"
"""On the same namespace, an annotation: the audiences whose tokens may go to all of them, with commas between."""

PROPOSED_LABELS = "federation.tenantry.dev/proposed-labels"
"""On the core namespace of a Tenant that serves another cluster, an annotation: `spec.guest.labels` of its PeerCluster.

That cluster reads it there, because it may read this namespace anyway.
"""

IMPORTED = "tenantry.dev/imported"
"""What `tenantry import` adopted or created and did not commit yet: the name of the other tool.

An annotation of a Tenant, and a label of objects in its namespaces. On a namespace, an annotation with what the import
took off, as JSON (cli/imports/record.py).
"""

BY_OTHERS = frozenset({SLICE, PART, OFFLOAD, POD_STRATEGY, PEERS, AUDIENCES, PROPOSED_LABELS, IMPORTED})
"""The marks of a namespace that are set by other clients than the controller that creates it."""

FINALIZER = "tenantry.dev/subnamespace"
"""On a Subnamespace: its namespace is there."""

REQUESTED_PHASE = "tenantry.dev/requested-phase"
"""On a VirtualControlPlane or a DedicatedCluster, an annotation: "Asleep" or "Awake", a space, and its time.

`status.handledRequest` repeats it once it is handled. A field of the spec would undo each wake by a connection.
"""

LEAVE_NODES = "tenantry.dev/leave-nodes"
"""On a DedicatedCluster that is being deleted, an annotation: it does not wait for its nodes any longer.

The operator repeats it on its VirtualControlPlane.
"""

DELETE_FIRST = "tenantry.dev/delete-first"
"""On a DedicatedCluster, an annotation: the names of nodes, with commas between, that leave before all others."""

USER_MARKS: frozenset[str] = frozenset({DELETE_FIRST, EGRESS, INHERIT, LEAVE_NODES, OFFLOAD, REQUESTED_PHASE})
"""The protected marks that are the user's to set."""

OF_RUNTIMES = ("dev.gvisor.", "io.katacontainers.", "io.kubernetes.cri-o.")
"""The prefixes of annotations by which a pod instructs gVisor, Kata Containers or CRI-O, if its node passes them on.

Sources: gVisor, runsc/boot and runsc/specutils (`dev.gvisor.spec.mount`, `dev.gvisor.flag`); Kata Containers, "How to
set sandbox config with annotations"; CRI-O, pkg/annotations.
"""

POD_SECURITY = "pod-security.kubernetes.io"
"""The prefix of the Pod Security Admission labels, which are protected like Tenantry's."""

CLI_FIELD_MANAGER = "tenantry"
"""The field manager of the command `tenantry`."""

FIELD_MANAGER = "tenantry-operator"
"""The field manager of the operator's writes."""

OPERATOR_USER = "tenantry:operator"
SYSTEM_NAMESPACE = "tenantry-system"
OPERATOR_PEER = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/component": "operator"}},
}
"""The Pods of the operator, as a peer of a NetworkPolicy."""

OWNER_ROLE = "tenantry-owner"
"""The ClusterRole that owners are bound to in their namespaces."""

RESERVED_NAMES = ("default",)
RESERVED_PREFIXES = ("kube-", "tenantry-")


def is_reserved(name: str) -> bool:
    """Return whether a namespace of this name belongs to the cluster or to Tenantry."""
    return name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES)


def is_protected(key: str) -> bool:
    """Return whether tenants may not set or change a label or annotation key."""
    prefix = key.partition("/")[0] if "/" in key else ""
    ours = prefix in {GROUP, POD_SECURITY} or prefix.endswith(f".{GROUP}")
    return ours and key not in USER_MARKS
