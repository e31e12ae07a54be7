"""The reasons of conditions and events: PascalCase, stable, part of the API."""

from __future__ import annotations

# Condition types
READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
SUSPENDED = "Suspended"
CLUSTER_NETWORK_POLICY = "ClusterNetworkPolicyInForce"

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

# Reasons of Suspended
SUSPENDED_BY_SPEC = "SuspendedBySpec"
SUSPENDING = "Suspending"
RESUMING = "Resuming"

# Reasons of ClusterNetworkPolicyInForce
IN_FORCE = "InForce"
KIND_NOT_INSTALLED = "KindNotInstalled"

# Events
CORRECTED = "Corrected"
