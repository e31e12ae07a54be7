"""Suspends and resumes tenants, and waits until the API server decides accordingly."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.tenant import Tenant
from tenantry.kube import wire
from tenantry.kube.client import Client
from testkit.api import (
    JOBS,
    Api,
    until,
)

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
CONTAINER: Json = {"name": "main", "image": "example.com/app:1"}
JOB: Json = {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}


async def suspend(api: Api, name: str, *accounts: str) -> None:
    """Suspend a tenant, and wait until its owner and these service accounts have no rights."""
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await api.condition(name, reasons.SUSPENDED, holds=True)
    await until(lambda: _agrees(api, name, accounts, is_open=False), "policies and RBAC have seen it")


async def resume(api: Api, name: str, *accounts: str) -> None:
    """Resume a tenant, and wait until its owner and these service accounts have their rights."""
    await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
    await api.condition(name, reasons.SUSPENDED, holds=False)
    await until(lambda: _agrees(api, name, accounts, is_open=True), "policies and RBAC have seen it")


async def _agrees(api: Api, name: str, accounts: tuple[str, ...], *, is_open: bool) -> bool:
    """Return whether the API server decides as it should: it sees labels and bindings a moment after their writes."""
    owner = (await api.tenant(name)).spec.owners[0]
    people = [{"kind": "User", "name": owner.name}, *(subject_of(name, account) for account in accounts)]
    let_in = [await api.may(each, "list", "", "pods", name) for each in people]
    controller = "system:serviceaccount:kube-system:cronjob-controller"
    connection = msgspec.structs.replace(api.client.connection, impersonate=controller)
    job: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "dry"}, "spec": JOB}
    async with Client(connection) as client:
        path, body = wire.path(JOBS, name), msgspec.json.encode(job)
        try:
            await client.request("POST", path, query={"dryRun": "All"}, body=body)
        except Forbidden as error:
            if "is suspended" not in str(error):
                return False  # for another reason than that
            makes_jobs = False
        else:
            makes_jobs = True
    return all(each is is_open for each in (*let_in, makes_jobs))


def subject_of(name: str, account: str) -> Json:
    """Return the subject of a binding that names a service account of a namespace."""
    return {"kind": "ServiceAccount", "name": account, "namespace": name}
