"""A real Prometheus scrapes the operator: the alerts are valid, and every query of the dashboard finds data."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.install import metrics, observability
from tenantry.kube import kubeconfig
from tenantry.local.cluster import LocalCluster
from testkit import ports
from testkit.api import Api, until
from testkit.operators import Operator, running
from testkit.prometheus import check_rules, prometheus

Json = dict[str, Any]
pytest_plugins = ["testkit.fixtures"]

_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_PODS = Resource("", "v1", "pods", "Pod")
_REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")


def test_promtool_finds_nothing_in_the_alerts(tmp_path: Path) -> None:
    check_rules(observability.rule_groups(), tmp_path)


async def test_every_query_of_the_dashboard_and_every_alert_is_answered(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    await api.make_tenant(name, quota={"hard": {"pods": 4, "requests.cpu": 2}})
    await api.ready(name)
    await api.create(
        Subnamespace.resource,
        {
            "metadata": {"name": "web"},
            "spec": {"mode": "Workspace", "owners": [{"kind": "User", "name": "ada"}], "quota": {"hard": {"pods": 1}}},
        },
        name,
    )
    await api.default_account(name)
    box = {"name": "box", "image": "box", "resources": {"requests": {"cpu": "1m"}}}
    pod = {"metadata": {"name": "pod"}, "spec": {"hostNetwork": True, "containers": [box]}}
    # Counted by the API server as a refusal of a policy.
    with pytest.raises(ApiError, match="tenantry"):
        await api.create(_PODS, pod, name)
    # Reported by a controller in an Event: refused by a rule, and by the quota.
    for kind, part in (("host", {"hostNetwork": True}), ("large", {})):
        cpu = "1m" if part else "3"
        template = {
            "metadata": {"labels": {"app": kind}},
            "spec": {**part, "containers": [{**box, "resources": {"requests": {"cpu": cpu}}}]},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": kind}}, "template": template}
        await api.create(_REPLICA_SETS, {"metadata": {"name": kind}, "spec": spec}, name)
    connection = kubeconfig.load([tenancy.kubeconfig_path])
    server = connection.server.removeprefix("https://")
    files = _files(connection, tmp_path)
    jobs: list[Json] = [
        {"job_name": "operator", "static_configs": [{"targets": [operator.address]}]},
        {
            "job_name": "apiserver",
            "scheme": "https",
            "tls_config": files,
            "static_configs": [{"targets": [server]}],
        },
    ]
    async with prometheus(tmp_path, jobs, observability.rule_groups()) as server_of_metrics:
        for panel in observability.PANELS:
            for query, _ in panel.queries:
                # Rates need two scrapes, and the last five minutes are the whole life of this Prometheus.
                text = query.replace("$tenant", ".*").replace("[5m]", "[1m]")

                async def has_data(text: str = text) -> bool:
                    return bool(await server_of_metrics.query(text))

                await until(has_data, f"{panel.title}: {text}")
        for alert in observability.ALERTS:
            await server_of_metrics.query(alert.query)

        async def is_divided() -> bool:
            quota = f'tenantry_tenant_quota{{tenant="{name}",resource="pods"}}'
            found = {each["metric"]["type"]: each["value"][1] for each in await server_of_metrics.query(quota)}
            return found == {"hard": "4", "assigned": "1", "used": "0", "free": "4"}

        await until(is_divided, "the quota of the tenant, of which a subnamespace has one pod")

        async def is_refused() -> bool:
            found = await server_of_metrics.query(f'tenantry_tenant_refusals{{tenant="{name}"}}')
            # Prometheus leaves out empty labels.
            return {(each["metric"]["by"], each["metric"].get("rule", "")) for each in found} == {
                ("Rule", "podSecurity.hostNamespaces"),
                ("Quota", ""),
            }

        await until(is_refused, "what a rule and the quota refused to a controller")

        async def is_led() -> bool:
            return await server_of_metrics.query('ALERTS{alertname="TenantryHasNoLeader"}') == []

        # It is pending for a moment if a scrape takes longer than the second between two.
        await until(is_led, "no alert reports that no replica leads")


def _files(connection: kubeconfig.Connection, folder: Path) -> Json:
    """Write the credentials of an administrator, and return them as Prometheus wants them."""
    parts = {"ca": connection.ca, "cert": connection.certificate, "key": connection.key}
    for part, data in parts.items():
        (folder / f"{part}.pem").write_bytes(data or b"")
    return {f"{part}_file": str(folder / f"{part}.pem") for part in parts}


@pytest_asyncio.fixture
async def secured(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[str]:
    """The URL of the page with TLS of a second replica, which stands by."""
    address = f"127.0.0.1:{ports.free(1)[0]}"
    file = tenancy.paths.kubeconfig("operator")
    async with running(file, tmp_path / "log", "--secure-metrics-address", address) as second:

        async def is_up() -> bool:
            return await second.sample("process_resident_memory_bytes") > 0

        await until(is_up, "the second replica answers")
        yield f"https://{address}/metrics"


@pytest.mark.usefixtures("operator")
async def test_the_page_with_tenants_is_for_clients_with_the_right_to_read_it(
    api: Api, secured: str, name: str
) -> None:
    """A pod of a tenant reaches the port: neither its token nor none at all opens the page."""
    reader = f"{name}-reader"
    subject = {"kind": "ServiceAccount", "name": reader, "namespace": SYSTEM_NAMESPACE}
    role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": metrics.READER}
    await api.create(_BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    token, readers = await _token(api, name), await _token(api, reader)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:

        async def status(authorization: str | None) -> int:
            headers = {"Authorization": authorization} if authorization is not None else {}
            async with session.get(secured, headers=headers) as answer:
                return answer.status

        assert await status(None) == 401
        assert await status("Bearer ") == 401
        assert await status(f"Bearer {token[:-9]}forged-it") == 401
        assert await status(f"Basic {token}") == 401
        assert await status(f"Bearer {token}") == 403

        async def is_shown() -> bool:
            return await status(f"Bearer {readers}") == 200

        # A refusal before the API server knew the binding would be remembered for a minute.
        await until(is_shown, "the page of a reader", seconds=90)
    await api.delete(_BINDINGS, name)


async def _token(api: Api, account: str) -> str:
    """Create a ServiceAccount, and return a token of it."""
    await api.create(_ACCOUNTS, {"metadata": {"name": account}}, SYSTEM_NAMESPACE)
    asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": account}}
    answer = await api.create(_ACCOUNTS, {**asked, "spec": {}}, SYSTEM_NAMESPACE, subresource="token")
    return str(answer["status"]["token"])
