"""The reasons of conditions and events: PascalCase, stable, part of the API.

The text below each constant is its documentation. `tools/generate.py` writes docs/reference/reasons.md from it, with a
section for each comment.
"""

from __future__ import annotations

# Condition types
READY = "Ready"
"""Everything in the spec is in place."""
RECONCILING = "Reconciling"
"""Present only while true: a change is in progress, or failed with a temporary error."""
STALLED = "Stalled"
"""Present only while true: nothing changes until a person acts; the message says how."""
SUSPENDED = "Suspended"
"""Present while true or in transition: only administrators have access, and nothing new is created."""
CLUSTER_NETWORK_POLICY = "ClusterNetworkPolicyInForce"
"""Present if the spec asks for it: whether a ClusterNetworkPolicy blocks other tenants."""
EGRESS_NARROWED = "EgressNarrowed"
"""Present only while true: pods of a Baseline tenant cannot reach a few addresses next to the nodes'."""
TENANTS_MISSING = "TenantsMissing"
"""Present only while true: TenancyDefaults names tenants that do not exist."""
LEVELS_BLOCKED = "LevelsBlocked"
"""Present only while true: a priority level or FlowSchema differs from `spec.fairness` of TenancyDefaults."""
HOSTS_TAKEN = "HostsTaken"
"""Present only while true: an object in the namespace uses a host that another tenant or Subtenant had first."""
HOSTS_CONTESTED = "HostsContested"
"""Present only while true: another tenant or Subtenant also requested a host of the namespace, which keeps it."""
OBJECTS_EXCEEDED = "ObjectsExceeded"
"""Present only while true: a namespace has more objects of a kind than it may have; they stay, new ones are refused."""
DEPTH_EXCEEDED = "DepthExceeded"
"""Present only while true: a namespace is deeper in its tree than its tenant allows now; it stays."""
SANDBOXED = "Sandboxed"
"""Present unless `spec.isolation.runtime` is Shared: whether new pods run in a sandbox."""
CONTROL_PLANE_READY = "ControlPlaneReady"
"""Present if `spec.isolation.controlPlane` is Virtual: whether the VirtualControlPlane of the namespace is Ready. Of a
DedicatedCluster: whether its control plane is."""
NODES_READY = "NodesReady"
"""Present if `spec.isolation.nodes` is Slice: whether the SliceClaim of the tenant is Bound. Of a DedicatedCluster:
whether all nodes of its pools have joined it, and are Ready there."""
TEMPLATE_CURRENT = "TemplateCurrent"
"""Of a DedicatedCluster with a ClusterTemplate: whether its defaults are those that the template has now."""
ADD_ONS_READY = "AddOnsReady"
"""Present if a control plane has nodes of its own: whether what the operator keeps inside is as it should be."""
GUARDS_ENFORCED = "GuardsEnforced"
"""Present if a control plane has `spec.guards`: whether its version of Kubernetes puts them in force."""
JOIN_REFUSED = "JoinRefused"
"""Present only while true: a node cannot join its cluster; the message says what keeps it out, and what to do."""
UNLIMITED = "Unlimited"
"""Present only while true: the machine does not enforce the limits of a control plane's process."""
SNAPSHOTS_FAILING = "SnapshotsFailing"
"""Present only while true: the last snapshot of a control plane failed; the next one that is taken removes it."""
SLEEPING = "Sleeping"
"""Present only while true: the control plane of a DedicatedCluster has no process, because it is not used."""
BACKED_UP = "BackedUp"
"""Present if a DedicatedCluster has had a snapshot: whether the last one was taken."""
UPGRADE_AVAILABLE = "UpgradeAvailable"
"""Present only while true: the ClusterTemplate of a DedicatedCluster offers a later version of Kubernetes."""
EXPIRING = "Expiring"
"""Present only while true: the lease ends soon, or has ended."""
INHERITED = "Inherited"
"""Present if the namespace inherits objects: whether all of them are in place."""
APPROVED = "Approved"
"""Present only while true: an approver has approved the request."""
DENIED = "Denied"
"""Present only while true: an approver has denied the request."""
REACHABLE = "Reachable"
"""Present if a PeerCluster has `spec.host`: whether the API server of the peer answers."""
NODE_READY = "NodeReady"
"""Present if a PeerCluster has `spec.host`: whether its Node is there, and pods can be bound to it."""

GIVEN_UP = "GivenUp"
"""Present while an administrator gives up a peer that is silent: whether its pods are let go here."""

HOME_TWICE = "HomeTwice"
"""Present only while true: two clusters with the same id use a peer as its home. One of them is a copy of the other."""

DISCOVERED = "Discovered"
"""Present if a PeerCluster has `spec.discovered`: whether the other cluster is the one that was found."""

TUNNEL_OPEN = "TunnelOpen"
"""Present if a peer connects to its home: at the peer, if its guest half has a tunnel; at home, if its host half has
`dial: Peer`. Whether the tunnel is open."""

INVENTORIED = "Inventoried"
"""Present if a PeerCluster has `spec.host`, and the cluster has the kind ClusterProfile: whether other programs find
the peer by its ClusterProfile."""

# Reasons of Ready and Reconciling
ESTABLISHED = "Established"
"""Namespace, rights, limits and isolation are in place."""
PROGRESSING = "Progressing"
"""The operator is applying the spec."""
ASLEEP = "Asleep"
"""The process of a control plane has ended because it is not used; the next connection starts it."""
NAMESPACE_TERMINATING = "NamespaceTerminating"
"""The tenant's namespace is being deleted; the operator creates it again afterwards."""
NOT_ENFORCED = "NotEnforced"
"""What the spec limits is not limited here."""
UNREACHABLE = "Unreachable"
"""No client can connect to a control plane that runs: the message says why; its pods run on."""
API_ERROR = "ApiError"
"""The API server failed or refused temporarily; the operator tries again."""

UNKNOWN_TEMPLATE = "UnknownTemplate"
"""There is no ClusterTemplate of the name that the cluster has: the message names those that there are."""
UNKNOWN_CLASS = "UnknownClusterClass"
"""There is no ClusterClass of Cluster API of the name that the template has: the message says who can create it."""
TEMPLATE_CHANGED = "TemplateChanged"
"""The ClusterTemplate has changed since the cluster took its defaults, which do not reach it by themselves."""
VERSION_OFFERED = "VersionOffered"
"""The ClusterTemplate offers a later version of Kubernetes; nothing upgrades a cluster by itself."""
NODES_JOINING = "NodesJoining"
"""Nodes leave the host for a cluster and join it; the message says how many are missing, and what they wait for."""
NODES_LEAVING = "NodesLeaving"
"""Nodes leave a cluster and return to the host."""
NODES_REBUILDING = "NodesRebuilding"
"""Nodes leave a cluster, are wiped and join it again, to have the version of Kubernetes of its control plane."""
PAUSED = "Paused"
"""`spec.paused` is true: the operator leaves the children as they are."""

# Reasons of Stalled
ADDRESS_FAMILY = "AddressFamily"
"""Services of a control plane get no addresses of a range or family of the host: the message names it."""
NOT_PLACED = "NotPlaced"
"""The process of a control plane does not start, or something of it is left: the message says why."""
ENCRYPTION_KEY_LOST = "EncryptionKeyLost"
"""The key of the stored Secrets of a control plane is gone: the message says what to do."""
ENCRYPTION_KEYS_KEPT = "EncryptionKeysKept"
"""The key of a control plane is not replaced, because its snapshots need as many keys as it may have."""
UPGRADE_BLOCKED = "Blocked"
"""An obstacle stands in the way of an upgrade: the control plane keeps its version until it is gone, or ignored."""

UPGRADING = "Upgrading"
"""The type of the condition that reports an upgrade of a control plane; false while an obstacle holds it back."""

SOAKING = "Soaking"
"""The program of the next version of Kubernetes runs, and behaves as the one before: the upgrade can be aborted."""

UPGRADE_FAILED = "UpgradeFailed"
"""The process of another version is not ready, or its snapshot could not be taken: the message names the way back."""
SNAPSHOT_FAILED = "SnapshotFailed"
"""The last snapshot could not be taken or stored, or an older one could not be deleted: the message says why."""
NAMESPACE_EXISTS = "NamespaceExists"
"""A namespace of the tenant's name exists, and Tenantry does not manage it: choose another name, or delete it."""
NOT_ADOPTED = "NotAdopted"
"""The namespace has the labels of an earlier tenant of this name, as after a restore: an administrator binds it with
`tenantry adopt`."""
OBJECT_EXISTS = "ObjectExists"
"""An object of a name that the tenant needs exists, and Tenantry does not manage it: delete or rename it."""
INVALID_SPEC = "InvalidSpec"
"""The spec, or an annotation that the message names, has an error that no schema detects."""
REFUSED = "Refused"
"""The API server refuses the operator's request: its rights, a policy or a quota."""
NOT_A_TENANTS_NAMESPACE = "NotATenantsNamespace"
"""The Subnamespace is not in a tenant's namespace: create it in one."""
QUOTA_INSUFFICIENT = "QuotaInsufficient"
"""The parent cannot give the requested quota; the message says how much of which key."""
QUOTA_KEY_NOT_LIMITED = "QuotaKeyNotLimited"
"""The quota names a key that the tenant's quota does not have."""
QUOTA_SHORT = "QuotaShort"
"""The quota is less than the shares of the subnamespaces inside; the message says by how much."""
QUOTA_EXCEEDED = "QuotaExceeded"
"""More is in use than the quota now allows: running pods continue, new use is refused."""
NO_POD_FITS = "NoPodFits"
"""The quota has 0 of a key without which no pod starts; the message names the key."""
LIMIT_REACHED = "LimitReached"
"""`spec.namespaces` of the tenant or of TenancyDefaults does not allow another namespace, or not at this depth; or a
peer has as many namespaces as it can."""
NOT_ALLOWED = "NotAllowed"
"""The tenant's `spec.namespaces` does not allow this name, label or annotation."""
CHILDREN_EXIST = "ChildrenExist"
"""Subnamespaces inside prevent the deletion: delete them, or allow cascading deletion."""
KIND_NOT_INHERITABLE = "KindNotInheritable"
"""An administrator has not allowed inheritance of the kind, or the cluster does not have it."""
INHERITANCE_CLASH = "InheritanceClash"
"""The child has its own object of an inherited object's name; the operator does not change it."""
CANNOT_ADOPT = "CannotAdopt"
"""The namespace in `spec.adopt` cannot become the child; the message gives the reason."""

# Reasons of requests
AWAITING_DECISION = "AwaitingDecision"
"""No approver has decided the request yet."""
DECIDED = "Decided"
"""An approver has decided; `status.decidedBy` names the approver, `status.reason` the reason."""
DECIDED_AUTOMATICALLY = "DecidedAutomatically"
"""A rule in `TenancyDefaults.spec.autoApprove` has approved the request."""
GRANTED = "Granted"
"""The operator has granted the request."""
ROLE_NOT_FOUND = "RoleNotFound"
"""The requested role does not exist; an approved request is granted once it does."""
TENANT_EXISTS = "TenantExists"
"""A tenant of the requested name exists already."""
TENANT_SUSPENDED = "TenantSuspended"
"""The tenant is suspended; a grant returns, and a control plane serves its users again, when the suspension ends."""

# Reasons of Expiring
EXPIRES_SOON = "ExpiresSoon"
"""The lease ends within a day."""
EXPIRED = "Expired"
"""The lease has ended."""

# Reasons of Suspended
SUSPENDED_BY_SPEC = "SuspendedBySpec"
"""`spec.suspended` is true, and all bindings are emptied."""
SUSPENDING = "Suspending"
"""`spec.suspended` is true, and some bindings are not emptied yet."""
RESUMING = "Resuming"
"""`spec.suspended` is false, and some bindings are not restored yet."""

# Condition types of slices, and their reasons
PENDING = "Pending"
"""Present only while true: the claim has no nodes; the reason says why."""
RESERVED = "Reserved"
"""Present only while true: the nodes are set aside, and other tenants' pods are not scheduled there."""
DRAINING = "Draining"
"""Present only while true: a namespace uses the claim, and other tenants' pods are leaving the nodes."""
BOUND = "Bound"
"""Present only while true: only the tenant has pods on the nodes."""
RELEASING = "Releasing"
"""Present only while true: the tenant's pods are leaving; then the nodes return to the shared pool."""
DEGRADED = "Degraded"
"""Present only while true: nodes of a slice are missing or not ready; the message names them."""
AWAITING_ADMINISTRATOR = "AwaitingAdministrator"
"""The claim is Manual: an administrator creates its Slice, for example with `tenantry slice approve`."""
NODES_INSUFFICIENT = "NodesInsufficient"
"""Too few suitable nodes are free; the message says how many would fit, `tenantry explain slice` why."""
NODES_RESERVED = "NodesReserved"
"""The nodes are set aside until a namespace uses the claim."""
PODS_LEAVING = "PodsLeaving"
"""Pods are evicted as their disruption budgets allow, and deleted after the grace period."""
NODES_BOUND = "NodesBound"
"""Only the tenant has pods on the nodes, except for DaemonSets and static pods."""
CLAIM_ENDED = "ClaimEnded"
"""The claim was deleted, or its lease has ended."""
NODES_LOST = "NodesLost"
"""A node of the slice is missing or not ready."""
CLEANING = "Cleaning"
"""An agent removes the tenant's leftovers from the nodes."""
CLEANED = "Cleaned"
"""The node has no leftovers of the last tenant."""
NODES_NOT_CLEAN = "NodesNotClean"
"""A node has leftovers of the last tenant and stays set aside; the message names them."""

# Reasons of NodeHandovers, and of Ready of the Nodes that they name
DRIFTED = "Drifted"
"""A client changes an object of an add-on again and again; the operator does not bring it back any more."""
GUARDS_UNSUPPORTED = "GuardsUnsupported"
"""Guards are not in force: the version of Kubernetes has no such policies, or the control plane no nodes of its own."""
CERTIFICATE_REFUSED = "CertificateRefused"
"""A node requests a certificate that it may not have: for another name or address, or with a token that was used."""
NODE_BLOCKED = "NodeBlocked"
"""Something inside the cluster keeps the Node out: a webhook, a policy, or another Node of its name."""
NO_NODE_ENDPOINT = "NoNodeEndpoint"
"""The control plane has no endpoint for nodes where it runs, so that no machine can reach it."""
JOIN_TOKEN_EXPIRED = "JoinTokenExpired"  # noqa: S105 - a reason
"""The machine of a node did not use its token in time: it gets another one."""
NODE_LEAVING = "NodeLeaving"
"""The node is about to leave the host for the cluster: pods there are evicted first."""
NODE_JOINING = "NodeJoining"
"""The node has left the host; the cluster has not reported it Ready yet."""
NODE_JOINED = "NodeJoined"
"""The node is Ready in the cluster."""
NODE_RETURNING = "NodeReturning"
"""The cluster lets the node go: its pods there leave, then its Node is deleted there."""
NODE_BACK = "NodeBack"
"""The host has the node again."""
NODE_MISSING = "NodeMissing"
"""The host has no Node of this name, or another one than the Node that was handed over: delete the NodeHandover."""
NODE_NOT_IN_SLICE = "NodeNotInSlice"
"""The node does not belong to the Slice that `spec.slice` names, or other tenants' pods are still there."""
REAL_NODE = "RealNode"
"""Nothing moves the machine of this node: only simulated nodes and real nodes of a local cluster change clusters."""
MACHINE_FAILED = "MachineFailed"
"""The machine of a real node cannot be stopped, wiped or started; the message says why. The operator tries again."""
HANDED_OVER = "HandedOver"
"""The Node serves a cluster of a tenant, which the message names: no pods of the host run there."""

# Reasons of TenantryAddressesRecorded, a condition of nodes
ADDRESSES_RECORDED = "AddressesRecorded"
"""The node has ranges of pods, or an administrator has recorded its addresses."""
NO_RECORD = "NoRecord"
"""The node has no range of pods, and no administrator has recorded its addresses; the message says what to set."""

# Reasons of TenantryNodeView, a condition of contributed nodes
VIEW_CURRENT = "ViewCurrent"
"""The node reads its own view only, and the view is current."""
VIEW_TOO_LARGE = "ViewTooLarge"
"""The pods of the node have more peers and endpoints than a view holds: it has no Services, or its pods no network."""
READS_ALL = "ReadsAll"
"""A binding of an earlier version lets the node read objects of all tenants; the message says how to end that."""

# Reasons of events in a namespace whose objects cannot move
CONVERSION_REFUSED = "ConversionRefused"
"""The control plane of a Subtenant is to change, and objects in its namespace cannot move; the message names them."""

# Reasons of PodScheduled, a condition of pods in virtual control planes
HOST_REFUSED = "HostRefused"
"""The host's API server refuses the pod, or it cannot be mirrored: the message says why, and so does an event."""

NO_METRICS = "NoMetrics"
"""The host of the control plane serves no metrics.k8s.io, which `kubectl top` and HorizontalPodAutoscalers need."""

# Reasons of PeerClusters, NamespaceOffloadings, and pods at peers
ANSWERS = "Answers"
"""The API server of the peer answers."""
NAME_TAKEN = "NameTaken"
"""An object of the name exists already, and belongs to another client."""
PEER_NOT_ALLOWED = "PeerNotAllowed"
"""The Tenant may not use the peer: an administrator adds it to `spec.isolation.federation.peers`."""
NO_CLUSTER_SELECTED = "NoClusterSelected"
"""`spec.clusterSelector` matches none of the peers that the Tenant may use."""
NO_PEER = "NoPeer"
"""No PeerCluster of the name has a host half."""
INVITATION_REFUSED = "InvitationRefused"
"""The invitation of a peer is for another cluster, has expired, or was used; accept another one."""
PEER_CHANGED = "PeerChanged"
"""The server of a PeerCluster is another cluster than before: nothing is sent there."""
PEER_IS_HOME = "PeerIsHome"
"""The server of a PeerCluster is this cluster."""
PEER_TOO_OLD = "PeerTooOld"
"""The peer runs an older version of Kubernetes than Tenantry needs."""
PEER_GIVEN_UP = "PeerGivenUp"
"""The PeerCluster was removed before its namespaces at the peer had ended; the message names what may be left there."""
PODS_LET_GO = "PodsLetGo"
"""The pods of a silent peer are deleted here. They may run on there; the peer deletes them when it is back."""
PEER_IS_BACK = "PeerIsBack"
"""The peer answers again: what it still runs of the pods that were let go is deleted there first."""
PEER_NOT_SILENT = "PeerNotSilent"
"""The peer has not been silent for long enough that its Node is not ready: no pods are let go yet."""
PEER_REFUSED = "PeerRefused"
"""The peer refuses an object; the message has its words."""
NOT_FEDERABLE = "NotFederable"
"""A field of the pod has no meaning at another cluster; the message names it."""
TOKEN_NOT_MIRRORED = "TokenNotMirrored"  # noqa: S105 - a reason
"""The token of the ServiceAccount does not travel: a container at a peer that reads it finds no file."""
POD_LOST = "PodLost"
"""The pod was deleted at the peer, or evicted there; its controller replaces it."""

GUEST_SILENT = "GuestSilent"
"""The home of a guest has not renewed its Lease for so long that its Tenant is suspended, or deleted."""
IDENTITY_CHANGED = "IdentityChanged"
"""The home of a guest is another cluster than before; its Tenant is suspended."""
IDENTITY_TAKEN = "IdentityTaken"
"""The home of a guest has the id of this cluster, or of the home of another guest; its Tenant is suspended."""
NOT_ACCEPTED = "NotAccepted"
"""A cluster was discovered, and no invitation of it is accepted."""
OTHER_THAN_FOUND = "OtherThanFound"
"""A PeerCluster is used for another cluster than `spec.discovered` names; nothing is sent there."""
TUNNEL_CLOSED = "TunnelClosed"
"""The peer has not opened its tunnel to this cluster, or this cluster has none to its home; the message says why."""
TUNNEL_REFUSED = "TunnelRefused"
"""The home does not accept the token of the tunnel, or there is none: an administrator must use another file."""
NO_TUNNEL_PORT = "NoTunnelPort"
"""The operator of this cluster has no port for tunnels, so that no peer can open one."""

# Reasons of HomeTwice
LEASE_CONTENDED = "LeaseContended"
"""Two clusters renew one Lease at the peer, or one waits for the other."""

# Reasons of Inventoried, and of the ClusterProperty
PROFILE_WRITTEN = "ProfileWritten"
"""The ClusterProfile of the peer is there."""
CLUSTER_ID_DIFFERS = "ClusterIdDiffers"
"""The ClusterProperty `cluster.clusterset.k8s.io` has another value than the id by which peers know this cluster."""

# Reasons of ClusterNetworkPolicyInForce
IN_FORCE = "InForce"
"""The ClusterNetworkPolicy is in place."""
KIND_NOT_INSTALLED = "KindNotInstalled"
"""The cluster does not have the kind ClusterNetworkPolicy: install network-policy-api v0.2."""

# Reasons of Sandboxed
RUNTIME_CLASS_IN_FORCE = "RuntimeClassInForce"
"""New pods run in the RuntimeClass that the message names."""
NO_RUNTIME_CLASS = "NoRuntimeClass"
"""The spec requires a sandbox, and the cluster has no RuntimeClass for one, or not the one named."""
KERNEL_SHARED = "KernelShared"
"""The spec does not set a runtime, and the cluster has no sandbox: pods share their node's kernel."""

# Reasons of TenantsMissing
TENANT_NOT_FOUND = "TenantNotFound"
"""A tenant in `spec.fairness.reserved` does not exist."""

# Reasons of HostsTaken
HOST_TAKEN = "HostTaken"
"""An Ingress, Gateway or route uses a host that another tenant or Subtenant, or the cluster itself, had first."""

# Reasons of HostsContested
HOST_CONTESTED = "HostContested"
"""The namespace keeps a host that an object of another tenant or Subtenant, or of the cluster itself, uses, too."""

# Reasons of EgressNarrowed
TOO_MANY_ADDRESSES = "TooManyAddresses"
"""Nodes have more addresses than a policy holds: name their subnets in TenancyDefaults."""

# Reasons of ObjectsExceeded
COUNT_EXCEEDED = "CountExceeded"
"""A ResourceQuota allows fewer objects of a kind than there are, or than a child should inherit."""

# Events
RECLAIMED = "Reclaimed"
"""The operator has taken back the quota of a Subnamespace (`onShortage: Reclaim`): the tenant's quota is too small."""
CORRECTED = "Corrected"
"""The operator has reverted a manual change or deletion."""
REPAIR_REFUSED = "RepairRefused"
"""An installed object differs from the shipped one, and the operator may not restore it: run `tenantry install`."""
REPAIR_CONTESTED = "RepairContested"
"""Another client changes an installed object again and again; the operator restores it after growing pauses."""
PROVISIONING_FAILED = "ProvisioningFailed"
"""A claim of a local cluster with real nodes gets no volume: its size is wrong, or the disk has no room."""
VOLUME_NOT_MOUNTED = "VolumeNotMounted"
"""The volume of a claim cannot be mounted on its real node, for example because no loop device is free; pods wait."""
SIZE_NOT_ENFORCED = "SizeNotEnforced"
"""The size of a volume of a local cluster is not enforced, because the machine cannot mount sized volumes."""

CONDITION_TYPES = frozenset(
    {
        READY,
        RECONCILING,
        STALLED,
        SUSPENDED,
        CLUSTER_NETWORK_POLICY,
        EGRESS_NARROWED,
        TENANTS_MISSING,
        LEVELS_BLOCKED,
        HOSTS_TAKEN,
        HOSTS_CONTESTED,
        OBJECTS_EXCEEDED,
        DEPTH_EXCEEDED,
        SANDBOXED,
        ADD_ONS_READY,
        GUARDS_ENFORCED,
        CONTROL_PLANE_READY,
        JOIN_REFUSED,
        NODES_READY,
        TEMPLATE_CURRENT,
        UNLIMITED,
        SNAPSHOTS_FAILING,
        SLEEPING,
        BACKED_UP,
        UPGRADE_AVAILABLE,
        EXPIRING,
        INHERITED,
        APPROVED,
        DENIED,
        PENDING,
        RESERVED,
        DRAINING,
        BOUND,
        RELEASING,
        DEGRADED,
        REACHABLE,
        NODE_READY,
        GIVEN_UP,
        INVENTORIED,
        HOME_TWICE,
        DISCOVERED,
        TUNNEL_OPEN,
    }
)
"""The types that `tenantry wait --for condition=TYPE` accepts: all of this file."""
