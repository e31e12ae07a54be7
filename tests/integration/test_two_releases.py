"""Operators of two releases run together while a cluster is upgraded: either may lead, and no tenant notices."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import tenantry
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import INSTALLED_VERSION
from tenantry.install.waves import policy_resource
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from testkit import versions
from testkit.api import SECONDS, Api, until
from testkit.installation import install
from testkit.operators import Operator
from testkit.trees import WORKSPACE, Trees

Json = dict[str, Any]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        versions.IS_WEBHOOK,
        reason="both operators run on this machine, and would serve the webhook at the same port",
    ),
]

NAME = "two-releases"
NEWER = "99.0.0"
POLICIES = policy_resource("Validating")
CHANGED = "tenantry-marks"
CHANGE = """

_older = foundation


def foundation(*given, **named):
    made = _older(*given, **named)
    for each in made:
        if (each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicy", "tenantry-marks"):
            each["spec"]["variables"] = [*each["spec"].get("variables", ()), {"name": "newer", "expression": "true"}]
    return made
"""
"""What the newer release ships otherwise."""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a newer release."""
    folder = tmp_path_factory.mktemp("newer")
    package = folder / "tenantry"
    shutil.copytree(Path(tenantry.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    own = package / "__init__.py"
    text = own.read_text()
    assert f'__version__ = "{tenantry.__version__}"' in text
    own.write_text(text.replace(tenantry.__version__, NEWER))
    with (package / "install" / "manifests.py").open("a") as manifests:
        manifests.write(CHANGE)
    return folder


@pytest_asyncio.fixture(scope="module")
async def upgraded(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster of its own with the release under test, without an operator."""
    local = LocalCluster(NAME, root=tenantry_home)
    await local.up(
        UpOptions(throwaway=True, install=install, kubernetes=versions.chosen(), timeout_seconds=3 * SECONDS)
    )
    yield local
    await local.down(purge=True)


async def command(home: Path, source: Path | None, *words: str) -> tuple[int, str]:
    """Run a command of one of the releases; return its exit code and what it says."""
    given = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "TENANTRY_NAME"}}
    environment = {**given, "TENANTRY_HOME": str(home), **({"PYTHONPATH": str(source)} if source else {})}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *words, "--cluster", NAME),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def served(api: Api, name: str) -> str:
    """Make a tenant and a subnamespace, and return the uid of the namespace."""
    await api.make_tenant(name)
    await Trees(api).make(name, "team", WORKSPACE)
    uid: str = (await api.get(Namespace.resource, name))["metadata"]["uid"]
    return uid


async def is_newer(api: Api) -> bool:
    """Return whether the newer release is installed, with what only it has."""
    policy = await api.get(POLICIES, CHANGED)
    has_change = any(each["name"] == "newer" for each in policy["spec"].get("variables", ()))
    return has_change and policy["metadata"]["labels"][INSTALLED_VERSION] == NEWER


async def test_tenants_are_served_while_operators_of_two_releases_run(
    upgraded: LocalCluster, newer: Path, tenantry_home: Path, tmp_path: Path
) -> None:
    """Issue 20, point 8: the older one leads, then the newer, then the older again after what the newer installed."""
    file = upgraded.paths.kubeconfig("operator")
    older = Operator(file, tmp_path / "older.log")
    latest = Operator(file, tmp_path / "newer.log", source=newer)
    async with Client(kubeconfig.load([upgraded.kubeconfig_path])) as client:
        api = Api(client)

        try:
            await older.start()
            await older.leads()
            uids = {"before": await served(api, "before")}
            code, said = await command(tenantry_home, newer, "install", "--check")
            assert code == 0, said
            assert f"the cluster has Tenantry {tenantry.__version__}; an installation of {NEWER}" in said
            assert f"ValidatingAdmissionPolicy {CHANGED}" in said
            code, said = await command(tenantry_home, newer, "install")
            assert code == 0, said
            await latest.start()
            since = await older.calm()
            assert await is_newer(api)

            # The older one leads, and leaves what the newer has installed.
            uids["older"] = await served(api, "older")
            code, said = await command(tenantry_home, None, "install")
            assert (code, f"the cluster has Tenantry {NEWER}, which is newer" in said) == (3, True), said
            assert older.written(since, "admissionregistration.k8s.io") == []
            assert await is_newer(api)

            assert await older.stop() == 0
            await latest.leads()
            uids["newer"] = await served(api, "newer")
            await older.start()

            async def stands_by() -> bool:
                return await older.sample("process_resident_memory_bytes") > 0

            await until(stands_by, "the older operator stands by")
            since = await older.calm(seconds=3)
            uids["beside"] = await served(api, "beside")
            assert older.written(since) == []

            # As if the newer one failed, and its Deployment were taken back.
            await latest.kill()
            await older.leads()
            uids["again"] = await served(api, "again")
            assert await is_newer(api)
            for name, uid in uids.items():
                await api.ready(name)
                assert (await api.get(Namespace.resource, name))["metadata"]["uid"] == uid
        finally:
            await latest.stop()
            await older.stop()
