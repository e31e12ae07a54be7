"""The Pods whose audit logs are read, on a real API server."""

from __future__ import annotations

from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import auditlogs, objects
from tenantry.hostedpods.objects import PodSettings
from tenantry.install import apply, manifests, planepods
from tenantry.install.planepods import PodOptions
from tenantry.kube.client import Client
from testkit.api import PODS, Api

UID = "1c6f4b63-8e8f-4d4b-8b63-8a7c2c9d0e21"
IMAGE = "registry.example/hosted:1"


async def test_the_logs_of_pods_with_an_audit_log_are_read(admin: Client) -> None:
    """H01, H02: the namespace admits the container; the API server finds its log, empty without a node."""
    await apply.apply(admin, planepods.everything(manifests.SERVICE_ACCOUNT, PodOptions(image=IMAGE)))
    host, settings = Api(admin), PodSettings(image=IMAGE)
    await host.default_account(PROCESS_NAMESPACE)
    pods = {"audited-a": True, "audited-b": True, "audited-not": False}
    for name, has_audit_log in pods.items():
        found = objects.stateful_set(UID, settings, None, {"settings.json": b"{}"}, {}, has_audit_log=has_audit_log)
        template = found["spec"]["template"]
        metadata = {**template["metadata"], "name": name, "namespace": PROCESS_NAMESPACE}
        await host.create(PODS, {"metadata": metadata, "spec": template["spec"]}, PROCESS_NAMESPACE)
    try:
        assert await auditlogs.read(admin, UID) == ["", ""]
    finally:
        for name in pods:
            await host.delete(PODS, name, PROCESS_NAMESPACE)
