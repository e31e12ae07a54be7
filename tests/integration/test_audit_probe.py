"""The live probes of an audit, by the command, in a cluster whose nodes run containers and sandboxes.

Skipped with TENANTRY_TEST_REAL=0, without root, or if the programs of nodes are not built.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.audit.check import Verdict, WithoutTenantry
from tenantry.audit.checks.probes import NETWORK, PODS, QUOTA, STORAGE
from tenantry.audit.probe import objects
from tenantry.local.cluster import LocalCluster
from testkit.api import until
from testkit.realpods import missing

NAME = "probed"
TENANTRY = (sys.executable, "-m", "tenantry")
PROBES = {each.id: each for each in (*NETWORK, *PODS, *QUOTA, *STORAGE)}
Json = dict[str, Any]


pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    # Pods on two cores that others use, too.
    pytest.mark.timeout(900),
]


async def command(*arguments: str) -> asyncio.subprocess.Process:
    """Start the command."""
    return await asyncio.create_subprocess_exec(
        *TENANTRY, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def run(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run the command; its stdout is returned."""
    child = await command(*arguments)
    out, err = await child.communicate()
    assert child.returncode in codes, f"{arguments}: exit code {child.returncode}\n{err.decode()}"
    return out.decode()


async def kubectl(*arguments: str) -> str:
    """Run kubectl; its stdout is returned."""
    return await run("kubectl", f"--cluster={NAME}", "--", *arguments)


@pytest_asyncio.fixture(scope="module")
async def real(tenantry_home: Path) -> AsyncIterator[LocalCluster]:
    """A cluster with two real nodes and the operator."""
    cluster = LocalCluster(NAME, root=tenantry_home)
    try:
        await run("up", f"--cluster={NAME}", "--runtime=real", "--nodes=2", "--throwaway", "--timeout=400s")
        yield cluster
    finally:
        await cluster.down(purge=True)


async def make(value: Json) -> None:
    """Make an object, or change it."""
    child = await asyncio.create_subprocess_exec(
        *(*TENANTRY, "kubectl", f"--cluster={NAME}", "--", "apply", "-f", "-"), stdin=asyncio.subprocess.PIPE
    )
    await child.communicate(json.dumps(value).encode())
    assert child.returncode == 0


async def make_tenant(name: str, owner: str, **spec: object) -> None:
    """Make a tenant and wait until it is Ready."""
    whole = {"owners": [{"kind": "User", "name": owner}], **spec}
    await make({"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name}, "spec": whole})
    await kubectl("wait", f"tenant/{name}", "--for=condition=Ready", "--timeout=60s")


@asynccontextmanager
async def volumes(*folders: str) -> AsyncGenerator[None]:
    """Have a default StorageClass with a volume for each of these folders of one node, for as long as the block."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    about = {"name": "static", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    mode = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    await make({**kind, "metadata": about, **mode})
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["real-1"]}]}
    for number, folder in enumerate(folders):
        spec = {
            "capacity": {"storage": "32Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "static",
            "hostPath": {"path": f"/var/lib/{folder}", "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        about = {"name": f"{folder}-{number}", "labels": {"static": "true"}}
        await make({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": about, "spec": spec})
    try:
        yield
    finally:
        await kubectl("delete", "storageclass/static")
        await kubectl("delete", "persistentvolumes", "-l", "static=true", "--wait=false")


async def probed(*arguments: str) -> dict[str, Json]:
    """Audit with probes; the results of the probes are returned by id."""
    # Whatever fails or is skipped among the others is not asked here.
    said = await run("audit", f"--cluster={NAME}", *arguments, "--probe", "-o", "json", codes=(0, 1))
    return {each["id"]: each for each in json.loads(said)["checks"] if each["id"] in PROBES}


async def left_of_audits() -> list[str]:
    """Return what audits have made and not taken away."""
    label = ",".join(f"{key}={value}" for key, value in objects.MARK.items())
    return (
        await kubectl("get", "pods,services,persistentvolumeclaims,namespaces", "-A", "-l", label, "-o", "name")
    ).split()


async def is_clean() -> bool:
    """Tell whether nothing of an audit is left; a namespace takes a while to go."""
    return not await left_of_audits()


def told(results: dict[str, Json], ids: set[str]) -> str:
    """Return what came of some checks, for the message of an assertion."""
    return "\n".join(f"{id_} {results[id_]['verdict']}: {results[id_]['message']}" for id_ in sorted(ids))


async def test_an_isolated_tenant_in_the_sandbox_lets_nothing_through(real: LocalCluster) -> None:
    """X06, H06, H03: what was tried was refused, out of reach of a tenant whose own pods reach each other."""
    # The volumes exist before the claims: by default, no claim of a tenant binds such volumes.
    rules = {"podSecurity": {"level": "Restricted"}, "storageClasses": {"existingVolumes": "Allow"}}
    await make_tenant("guarded", "gina", rules=rules)
    async with volumes("one", "two"):
        results = await probed("guarded")
    wrong = {id_ for id_, each in results.items() if each["verdict"] != Verdict.PASSED}
    assert not wrong, told(results, wrong)
    assert results["TNT-POD-031"]["by"] == "gVisor"
    nodes = {each["what"] for each in results["TNT-NET-021"]["attempts"] if each["outcome"] == "Refused"}
    block = real.real().block
    for number in (1, 2):
        at = (f"10.{block}.128.{10 + number}", f"10.{block}.{number}.1")
        assert {f"connect to the kubelet of the node 'real-{number}' at {each}" for each in at} <= nodes
    assert "connect to the kubelet of its own node at the gateway of the pod" in nodes
    closed = results["TNT-NET-020"]["attempts"]
    assert all(each["outcome"] == "Refused" for each in closed)
    # On the node of the prober, and on the other.
    assert {node for node in ("real-1", "real-2") if any(f"(on {node})" in each["what"] for each in closed)} == {
        "real-1",
        "real-2",
    }
    await until(is_clean, "nothing of the audit is left", seconds=120.0)


@pytest.mark.usefixtures("real")
async def test_a_plain_namespace_shows_what_is_open() -> None:
    """X06: each probe fails of which Kubernetes leaves it open, and what NetworkPolicies close stays closed."""
    await kubectl("create", "namespace", "plain")
    await kubectl("create", "rolebinding", "admin", "-n", "plain", "--clusterrole=admin", "--user=bob")
    async with volumes("again", "again"):
        results = await probed("--namespace=plain", "--as=bob")
    expected = {WithoutTenantry.OPEN: Verdict.FAILED, WithoutTenantry.REFUSED: Verdict.PASSED}
    wrong = {
        id_
        for id_, each in results.items()
        if PROBES[id_].alone in expected and each["verdict"] != expected[PROBES[id_].alone]
    }
    assert not wrong, told(results, wrong)
    assert (results["TNT-NET-020"]["verdict"], results["TNT-NET-027"]["verdict"]) == (
        Verdict.PASSED,
        Verdict.PASSED,
    )
    # Both claims had the same folder of the node.
    left = results["TNT-STO-009"]
    assert (left["verdict"], "data that another namespace wrote" in left["message"]) == (Verdict.FAILED, True)


@pytest.mark.usefixtures("real")
async def test_a_tenant_with_the_nodes_kernel_is_told_so() -> None:
    """H03: without the sandbox the kernel is the node's, and the rest of the isolation holds."""
    await make_tenant("shared", "sam", isolation={"runtime": "Shared", "network": "Baseline"})
    results = await probed("shared")
    assert results["TNT-POD-031"]["verdict"] == Verdict.FAILED
    assert "the kernel of the node 'real-" in results["TNT-POD-031"]["message"]
    # A Baseline tenant reaches open pods of others by intention, and no address of a node.
    held = {id_ for id_ in results if id_.startswith("TNT-NET-")} - {"TNT-NET-025"}
    held |= {"TNT-POD-025", "TNT-POD-030", "TNT-QTA-008"}
    wrong = {id_ for id_ in held if results[id_]["verdict"] != Verdict.PASSED}
    assert not wrong, told(results, wrong)


@pytest.mark.usefixtures("real")
async def test_pods_that_are_refused_prove_nothing() -> None:
    """X06: where the rules do not know the probe's image, every probe is skipped, with what would help."""
    await make_tenant("picky", "pia", rules={"images": {"allowed": ["registry[.]example[.]com/.*"]}})

    async def is_refused() -> bool:
        return (await probed("picky"))["TNT-POD-027"]["verdict"] == Verdict.SKIPPED

    # The API server takes up rules some moments after they are written.
    await until(is_refused, "the rules are in force", seconds=120.0)
    results = await probed("picky")
    of_kubelets = {"TNT-QTA-009"}
    wrong = {id_ for id_, each in results.items() if each["verdict"] != Verdict.SKIPPED} - of_kubelets
    assert not wrong, told(results, wrong)
    assert "a legitimate pod of the probe is refused" in results["TNT-NET-024"]["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("real")
async def test_nothing_is_left_when_it_is_interrupted(number: signal.Signals) -> None:
    """X06: Ctrl-C in the middle ends the pods and the namespace, as the end does."""
    await make_tenant("hasty", "hugo")
    await until(is_clean, "what is there is its own", seconds=120.0)
    child = await command("audit", f"--cluster={NAME}", "hasty", "--probe")

    async def is_under_way() -> bool:
        return any(each.startswith("pod/") for each in await left_of_audits())

    await until(is_under_way, "its pods are there", seconds=120.0)
    child.send_signal(number)
    _, err = await child.communicate()
    assert child.returncode == 130, err.decode()
    await until(is_clean, "nothing of the audit is left", seconds=120.0)


@pytest.mark.usefixtures("real")
async def test_each_runtime_is_measured_and_one_that_no_node_has_is_named() -> None:
    """E20: `tenantry bench runtimes`, on a real node with runc and gVisor."""
    await make(
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "ghost"}, "handler": "kata"}
    )
    small = ("--rounds=1", "--starts=1", "--seconds=0.3", "--mebibytes=4", "--runtime=runc", "--runtime=gvisor")
    try:
        found = json.loads(await run("bench", "runtimes", f"--cluster={NAME}", *small, "--runtime=ghost", "-o", "json"))
    finally:
        await kubectl("delete", "runtimeclass", "ghost")
    figures = {each["runtime"]: each for each in found["runtimes"]}
    assert set(figures) == {"runc", "gvisor", "ghost"}
    assert 'no runtime for "kata" is configured' in figures["ghost"]["not_measured"]
    assert figures["ghost"]["rates"] is None
    for name in ("runc", "gvisor"):
        one = figures[name]
        shares = one["beside_processor"], one["beside_kernel"]
        assert min(one["start_seconds"], one["memory_mebibytes"], *one["rates"].values(), *shares) > 0, name
    # A sandbox answers system calls itself, which takes a hundred times as long, and has a kernel of its own in memory.
    assert figures["gvisor"]["rates"]["systemCalls"] < figures["runc"]["rates"]["systemCalls"]
    assert figures["gvisor"]["memory_mebibytes"] > figures["runc"]["memory_mebibytes"]
    assert found["absent"] == ["gVisor with KVM"]
    assert "bench-runtimes" not in await kubectl("get", "namespaces", "-o", "name")
