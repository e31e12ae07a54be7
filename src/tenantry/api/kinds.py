"""All of Tenantry's kinds. CRDs, rights, documentation and the command derive from this list."""

from __future__ import annotations

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.isolationreport import IsolationReport
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.nodeview import NodeView
from tenantry.api.offloading import NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import PeerCluster
from tenantry.api.requests import REQUESTS
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane

KINDS = (
    Tenant,
    Subnamespace,
    TenantResourceQuota,
    TenancyDefaults,
    TenancyRules,
    Slice,
    SliceClaim,
    IsolationReport,
    NodeView,
    NodeHandover,
    VirtualControlPlane,
    DedicatedCluster,
    ClusterTemplate,
    PeerCluster,
    NamespaceOffloading,
    NamespaceMap,
    *REQUESTS,
)
