"""The kinds of Kubernetes that attempts use."""

from __future__ import annotations

from tenantry.api.model import Resource

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
CERTIFICATES = "certificates.k8s.io"
NETWORKING = "networking.k8s.io"
FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"

PODS = Resource("", "v1", "pods", "Pod")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
BINDINGS = Resource("", "v1", "bindings", "Binding")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
INGRESSES = Resource(NETWORKING, "v1", "ingresses", "Ingress")
ROLES = Resource(RBAC, "v1", "roles", "Role")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
INGRESS_CLASSES = Resource(NETWORKING, "v1", "ingressclasses", "IngressClass", namespaced=False)
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
VALIDATING_WEBHOOKS = Resource(
    ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
MUTATING_WEBHOOKS = Resource(
    ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING_POLICIES = Resource(
    ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
VALIDATING_BINDINGS = Resource(
    ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
MUTATING_POLICIES = Resource(ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False)
MUTATING_BINDINGS = Resource(
    ADMISSION, "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", namespaced=False
)
SIGNING_REQUESTS = Resource(
    CERTIFICATES, "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
)
FLOW_SCHEMAS = Resource(FLOW_CONTROL, "v1", "flowschemas", "FlowSchema", namespaced=False)
LEVELS = Resource(FLOW_CONTROL, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False)
