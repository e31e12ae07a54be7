"""The reasons of conditions and events: PascalCase, stable, part of the API."""

from __future__ import annotations

# Condition types
READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
SUSPENDED = "Suspended"
CLUSTER_NETWORK_POLICY = "ClusterNetworkPolicyInForce"
EGRESS_NARROWED = "EgressNarrowed"
TENANTS_MISSING = "TenantsMissing"
HOSTS_TAKEN = "HostsTaken"

SANDBOXED = "Sandboxed"
EXPIRING = "Expiring"
INHERITED = "Inherited"

APPROVED = "Approved"
DENIED = "Denied"

# Reasons of Ready and Reconciling
ESTABLISHED = "Established"
PROGRESSING = "Progressing"
NAMESPACE_TERMINATING = "NamespaceTerminating"
API_ERROR = "ApiError"

# Reasons of Stalled
NAMESPACE_EXISTS = "NamespaceExists"
OBJECT_EXISTS = "ObjectExists"
INVALID_SPEC = "InvalidSpec"
REFUSED = "Refused"

NOT_A_TENANTS_NAMESPACE = "NotATenantsNamespace"
QUOTA_INSUFFICIENT = "QuotaInsufficient"
QUOTA_KEY_NOT_LIMITED = "QuotaKeyNotLimited"
QUOTA_SHORT = "QuotaShort"
QUOTA_EXCEEDED = "QuotaExceeded"
LIMIT_REACHED = "LimitReached"
NOT_ALLOWED = "NotAllowed"
CHILDREN_EXIST = "ChildrenExist"
KIND_NOT_INHERITABLE = "KindNotInheritable"
INHERITANCE_CLASH = "InheritanceClash"
CANNOT_ADOPT = "CannotAdopt"

# Reasons of requests
AWAITING_DECISION = "AwaitingDecision"
DECIDED = "Decided"
DECIDED_AUTOMATICALLY = "DecidedAutomatically"
GRANTED = "Granted"
ROLE_NOT_FOUND = "RoleNotFound"
TENANT_EXISTS = "TenantExists"
TENANT_SUSPENDED = "TenantSuspended"

# Reasons of Expiring
EXPIRES_SOON = "ExpiresSoon"
EXPIRED = "Expired"

# Reasons of Suspended
# Condition types of slices, and their reasons
PENDING = "Pending"
RESERVED = "Reserved"
DRAINING = "Draining"
BOUND = "Bound"
RELEASING = "Releasing"
DEGRADED = "Degraded"
AWAITING_ADMINISTRATOR = "AwaitingAdministrator"
NODES_INSUFFICIENT = "NodesInsufficient"
NODES_RESERVED = "NodesReserved"
PODS_LEAVING = "PodsLeaving"
NODES_BOUND = "NodesBound"
CLAIM_ENDED = "ClaimEnded"
NODES_LOST = "NodesLost"
CLEANING = "Cleaning"
CLEANED = "Cleaned"
NODES_NOT_CLEAN = "NodesNotClean"

SUSPENDED_BY_SPEC = "SuspendedBySpec"
SUSPENDING = "Suspending"
RESUMING = "Resuming"

# Reasons of ClusterNetworkPolicyInForce
IN_FORCE = "InForce"
KIND_NOT_INSTALLED = "KindNotInstalled"

# Reasons of Sandboxed
RUNTIME_CLASS_IN_FORCE = "RuntimeClassInForce"
NO_RUNTIME_CLASS = "NoRuntimeClass"
KERNEL_SHARED = "KernelShared"

# Reasons of TenantsMissing
TENANT_NOT_FOUND = "TenantNotFound"

# Reasons of HostsTaken
HOST_TAKEN = "HostTaken"

# Reasons of EgressNarrowed
TOO_MANY_ADDRESSES = "TooManyAddresses"

# Events
CORRECTED = "Corrected"
