"""The Hierarchical Namespace Controller (HNC) as a tool to import from: pure."""

from __future__ import annotations

from tenantry.world.imports.objects import Controllers, ImportTool

HNC = ImportTool(
    name="hnc",
    title="HNC",
    help="""Turn the trees of the Hierarchical Namespace Controller into tenants.

    Each root becomes a Tenant, and each namespace below it a Subnamespace that adopts the namespace unchanged.
    """,
    listing="kubectl get subnamespaceanchors,hierarchyconfigurations,hrq,ns,rolebindings -A -o yaml",
    controllers=Controllers(namespace="hnc-system", webhooks=("hnc-validating-webhook-configuration",)),
    next=(
        "HNC's own marks and copies are as they were. When all is well:",
        "  kubectl delete roles,rolebindings -A -l hnc.x-k8s.io/inherited-from   # its copies; likewise other kinds",
        "  kubectl delete resourcequotas -A -l hnc.x-k8s.io/hrq                  # its quotas",
        "  kubectl get subnamespaceanchors,hierarchyconfigurations -A   # take off their finalizers, delete them",
    ),
)
