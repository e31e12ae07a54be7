"""Two hostile tenants and an honest one: every attack is refused, and the honest one's application works throughout.

Everything is as its users have it: the local cluster of `tenantry up`, the files of examples/untrusted, people with
client certificates of their own.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.install import apply
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import JOBS, PODS, SECONDS, Api, until
from testkit.attacks import ATTACKS, OWN, POD, VICTIM, Attack
from testkit.people import as_person

ROOT = Path(__file__).resolve().parents[2]
NAME = "untrusted"
EXAMPLE = ROOT / "examples" / "untrusted"
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PATIENCE = f"--timeout={2 * SECONDS:.0f}s"
"""A busy machine needs more than the defaults."""

Json = dict[str, Any]


def command(*arguments: str) -> str:
    """Run the user's command."""
    done = subprocess.run(
        [sys.executable, "-m", "tenantry", *arguments], capture_output=True, text=True, timeout=4 * SECONDS, check=False
    )
    assert done.returncode == 0, f"tenantry {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest_asyncio.fixture(scope="module")
async def cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """The example's cluster, with its tenants, and the shop's application as its owner applies it."""
    command("up", "--cluster", NAME, "--nodes", "2", "--throwaway", PATIENCE)
    found = LocalCluster(NAME, root=tenantry_home)
    try:
        async with Client(kubeconfig.load([found.kubeconfig_path])) as client:
            await apply.in_force(client)  # `up` does not wait until Ingresses are let through
        for file in ("1-cluster.yaml", "2-tenants.yaml"):
            command("kubectl", "--cluster", NAME, "--", "apply", "-f", str(EXAMPLE / file))
        tenants = ["tenant/mallory", "tenant/eve", "tenant/shop"]
        command("kubectl", "--cluster", NAME, "--", "wait", "--for=condition=Ready", PATIENCE, *tenants)
        shop = ["apply", "--as", "olivia@shop.example", "-f", str(EXAMPLE / "3-shop.yaml")]
        command("kubectl", "--cluster", NAME, "--", *shop)
        yield found
    finally:
        command("down", "--cluster", NAME, "--purge", "--yes")


@pytest_asyncio.fixture(scope="module")
async def admin(cluster: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        yield Api(client)


@pytest_asyncio.fixture(scope="module")
async def mallory(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Api]:
    """The owner of a hostile tenant, with a certificate of her own."""
    async with as_person(cluster, tmp_path_factory.mktemp("mallory"), "mallory@evil.example") as person:
        yield person


async def works(admin: Api) -> None:
    """Wait until the shop's application is as it should be: pods run, the volume is there, the report is written."""

    async def so() -> bool:
        web = await admin.get(DEPLOYMENTS, "web", VICTIM)
        claim = await admin.get(CLAIMS, "orders", VICTIM)
        return web.get("status", {}).get("availableReplicas") == 2 and claim["status"]["phase"] == "Bound"

    await until(so, "the shop's pods run, and its volume is bound", seconds=2 * SECONDS)


async def attempt(person: Api, attack: Attack) -> str:
    """Return why the API server refused a request; "" where it carried it out."""
    body = msgspec.json.encode(attack.body) if attack.body is not None else None
    try:
        await person.client.request(attack.method, attack.path, body=body, content_type=attack.content_type)
    except ApiError as error:
        return f"{error.status} {error}"
    return ""


async def surprises(person: Api) -> list[str]:
    """Make every attack, and return those that were not refused as they should be."""
    refusals = await asyncio.gather(*(attempt(person, attack) for attack in ATTACKS))
    return [
        f"{attack.id} ({attack.what}): {refusal or 'was carried out'}"
        for attack, refusal in zip(ATTACKS, refusals, strict=True)
        if attack.refused not in refusal
    ]


async def test_every_attack_is_refused_for_the_right_reason(admin: Api, mallory: Api) -> None:
    """H06, X02: whatever a tenant's owner tries, with or without the operator, and nothing of it is left behind."""
    await works(admin)
    assert await surprises(mallory) == []
    assert await admin.list(PODS, OWN) == []
    await works(admin)


async def test_every_attack_is_refused_while_the_operator_is_down(
    cluster: LocalCluster, admin: Api, mallory: Api
) -> None:
    """X02: the API server refuses by itself, and goes on with honest work, quota included."""
    await cluster.stop_component("operator")
    try:
        assert await surprises(mallory) == []
        before = await used(admin)
        await mallory.create(PODS, POD, OWN)

        async def counted() -> bool:
            return await used(admin) == before + 1

        await until(counted, "the quota has counted a pod")
        await mallory.delete(PODS, "attack", OWN)
        await admin.gone(PODS, "attack", OWN)
    finally:
        await cluster.start_component("operator", SECONDS)
    await works(admin)


async def used(admin: Api) -> int:
    """Return how many pods the quota of mallory's namespace has counted."""
    quotas = await admin.list(Resource("", "v1", "resourcequotas", "ResourceQuota"), OWN)
    return int(next(each for each in quotas if each["metadata"]["name"] == "tenantry-quota")["status"]["used"]["pods"])


async def test_the_honest_tenants_reports_are_written(admin: Api) -> None:
    """H06: what a CronJob starts is let through as well: its Job is made as the schedule says, its pod runs."""
    await works(admin)
    command(
        *("kubectl", "--cluster", NAME, "--", "create", "job", "now", "--from=cronjob/report", "-n", VICTIM),
        *("--as", "olivia@shop.example"),
    )

    async def done() -> bool:
        job = await admin.get(JOBS, "now", VICTIM)
        return bool(job.get("status", {}).get("active") or job.get("status", {}).get("succeeded"))

    await until(done, "the job's pod is there", seconds=2 * SECONDS)


def test_the_threat_model_and_the_attacks_are_the_same() -> None:
    """H06: no attack without its threat, no row that says it is tried here and is not."""
    told = set(re.findall(r"\b(?:API|ADM|QUO|NET|STO|NOD)-\d+\b", (ROOT / "THREAT_MODEL.md").read_text()))
    assert told == {attack.id for attack in ATTACKS}
