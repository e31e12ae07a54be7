"""The example of slices: a tenant claims two of three nodes while another's pods run there, and gives them back.

Everything is as its users have it: the local cluster of `tenantry up`, the files of examples/slices, the commands of
docs/slices.md. On simulated nodes it runs everywhere; on real ones, with containers, sandboxes and a node that loses
power, where nodes can be real and what runs on them is built.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tenantry.api.reasons import PODS_LEAVING
from tenantry.local import toolchain
from tenantry.local.progress import SilentProgress
from testkit.api import until
from testkit.realpods import missing

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "slices"
IMAGE = "tenantry.local/whereami:1"
SHOP, LAB = "ada@shop.example", "lin@lab.example"
SECONDS = 180.0
"""How long anything may take on a busy machine."""

Json = dict[str, Any]


class Said(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


class Cluster:
    """A local cluster, driven by commands as a user types them.

    Args:
        name: Of the cluster.
        is_real: Its nodes run containers.
    """

    def __init__(self, name: str, *, is_real: bool) -> None:
        self.name = name
        self.is_real = is_real

    def try_(self, *words: str, stdin: str = "") -> Said:
        """Run a command."""
        done = subprocess.run(
            [sys.executable, "-m", "tenantry", *words],
            env={**os.environ, "TENANTRY_NAME": self.name, "NO_COLOR": "1"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS * 2,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def run(self, *words: str) -> str:
        """Run a command that has to succeed, and return what it prints."""
        said = self.try_(*words)
        assert said.code == 0, f"tenantry {' '.join(words)}: {said.code}\n{said.out}{said.err}"
        return said.out

    def kubectl(self, *words: str) -> str:
        """Run kubectl as an administrator; see `run`."""
        return self.run("kubectl", "--", *words)

    def get(self, *words: str) -> Json:
        """Return what kubectl gets."""
        found: Json = msgspec.json.decode(self.kubectl("get", *words, "-o", "json"))
        return found

    def state(self, wanted: str, condition: str = "") -> Json:
        """Wait until the lab's claim is in a state, and return it."""
        self.kubectl(
            *("wait", "sliceclaim/fast", "-n", "lab", f"--timeout={SECONDS:.0f}s"),
            f"--for=condition={condition}" if condition else f"--for=jsonpath={{.status.state}}={wanted}",
        )
        return self.get("sliceclaim", "fast", "-n", "lab")

    def nodes_of(self, namespace: str) -> set[str]:
        """Return where the pods of a namespace are that are not on their way out."""
        pods = self.get("pods", "-n", namespace)["items"]
        return {each["spec"].get("nodeName", "") for each in pods if "deletionTimestamp" not in each["metadata"]}

    def rolled_out(self, namespace: str, *names: str) -> None:
        """Wait until Deployments run."""
        for each in names:
            self.kubectl("rollout", "status", f"deployment/{each}", "-n", namespace, f"--timeout={SECONDS:.0f}s")


@pytest.fixture(scope="module", params=["simulated", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The example's cluster of three nodes, with the shop's pods on all of them."""
    request.getfixturevalue("tenantry_home")  # no developer's, whichever test is first
    is_real = request.param == "real"
    if is_real and missing():
        pytest.skip(missing())
    found = Cluster(f"slices-{request.param}", is_real=is_real)
    kind = "real" if is_real else "kwok"
    found.run("up", "--nodes", "3", "--runtime", kind, "--throwaway", f"--timeout={SECONDS:.0f}")
    try:
        if is_real:
            found.run("image", "load", str(image(found, tmp_path_factory.mktemp("image"))))
        else:
            found.kubectl("apply", "-f", str(EXAMPLE / "0-simulated.yaml"))
        found.kubectl("apply", "-f", str(EXAMPLE / "1-tenants.yaml"))
        found.kubectl("wait", "--for=condition=Ready", f"--timeout={SECONDS:.0f}s", "tenant/shop", "tenant/lab")
        found.kubectl("apply", "-f", str(EXAMPLE / "2-shop.yaml"), "--as", SHOP)
        found.rolled_out("shop", "web")
        yield found
    finally:
        found.run("down", "--purge", "--yes")


def image(cluster: Cluster, folder: Path) -> Path:
    """Return the image of the example's program, made as its page says."""
    go = toolchain.find(SilentProgress())
    program, target = folder / "whereami", folder / "whereami.tar"
    words = [go.binary, "build", "-o", program, EXAMPLE / "whereami.go"]
    subprocess.run(words, env=go.environment, check=True, timeout=SECONDS)
    cluster.run("image", "build", IMAGE, f"{program}:/whereami", "--entrypoint", "/whereami", "--to", str(target))
    return target


def pod(more: Json) -> str:
    """Return a pod of the shop that is as all rules want it, but for what is given."""
    container = {
        "name": "main",
        "image": IMAGE,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    context = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    meta = {"name": "intruder", "namespace": "shop"}
    spec = {"containers": [container], "securityContext": context, **more}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}).decode()


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_tenant_has_nodes_of_its_own_for_a_while(cluster: Cluster) -> None:
    """E12, E13, E14: other pods leave within their budget, none come, the runtime is chosen, and the nodes return."""
    assert len(cluster.nodes_of("shop")) == 3
    cluster.kubectl("create", "-f", str(EXAMPLE / "3-claim.yaml"), "--as", LAB)
    claim = cluster.state("Bound")
    mine = set(claim["status"]["nodes"])
    assert len(mine) == 2
    assert not cluster.nodes_of("shop") & mine
    cluster.rolled_out("shop", "web")
    told = cluster.get("events", "-n", "shop")["items"]
    assert any(each["reason"] == PODS_LEAVING and claim["status"]["slice"] in each["message"] for each in told)
    cluster.kubectl("apply", "-f", str(EXAMPLE / "4-lab.yaml"), "--as", LAB)
    cluster.rolled_out("lab", "boxed", "plain")
    assert cluster.nodes_of("lab") <= mine
    runtimes = {each["spec"]["runtimeClassName"] for each in cluster.get("pods", "-n", "lab")["items"]}
    assert runtimes == {"gvisor", "runc"}
    assert_no_pod_comes(cluster, min(mine))
    assert_events_are_written(cluster, mine)
    if cluster.is_real:
        containers_are_what_they_say(cluster, mine)
        await a_node_loses_power(cluster, mine)
    cluster.run("slice", "delete", "fast", "--yes", "--no-wait", "-n", "lab")

    async def back() -> bool:
        return "tenantry.dev/slice" not in str(cluster.get("nodes"))

    await until(back, "the nodes are shared again", seconds=SECONDS)
    assert "0 of 3 nodes taken, 3 free" in cluster.run("nodes")

    # Among others the lab's pods are in the sandbox again: the one that chose another runtime is not made anew.
    async def among_others() -> bool:
        pods = cluster.get("pods", "-n", "lab")["items"]
        after = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        return [each["spec"]["runtimeClassName"] for each in after] == ["gvisor"]

    await until(among_others, "the pod in the sandbox is there again, and no other", seconds=SECONDS)
    cluster.rolled_out("lab", "boxed")
    assert await among_others()


def assert_no_pod_comes(cluster: Cluster, node: str) -> None:
    """Try what would bring a pod of the shop to a node of the lab, or out of its sandbox."""
    toleration = {"key": "tenantry.dev/slice", "operator": "Exists"}
    for more, why in (
        ({"tolerations": [toleration]}, "must not tolerate tenantry.dev/slice"),
        ({"nodeName": node}, "names its node"),
        ({"runtimeClassName": "runc"}, "runtimeClassName 'runc'"),
    ):
        said = cluster.try_("kubectl", "--", "create", "--as", SHOP, "-f", "-", stdin=pod(more))
        assert said.code != 0
        assert why in said.err
    # What the scheduler decides, and people do not.
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": target}
    url = "/api/v1/namespaces/shop/pods/web/binding"
    said = cluster.try_(
        *("kubectl", "--", "create", "--as", SHOP, "--raw", url, "-f", "-"), stdin=msgspec.json.encode(binding).decode()
    )
    assert "forbidden" in said.err.lower()


def assert_events_are_written(cluster: Cluster, mine: set[str]) -> None:
    """Look at what the commands show."""
    lines = [line.split() for line in cluster.run("nodes").splitlines()]
    shown = {line[0]: line[1:4] for line in lines[1:4]}
    assert {node for node, cells in shown.items() if cells == ["Bound", "lab", "fast"]} == mine
    assert [cells for node, cells in shown.items() if node not in mine] == [["Free", "-", "-"]]
    said = cluster.run("explain", "slice", "fast", "-n", "lab").splitlines()
    assert said[1] == f"has: {', '.join(sorted(mine))}"
    listed = cluster.run("slice", "list").splitlines()[1].split()
    assert listed[:4] == ["lab", "fast", "Bound", "2/2"]


def containers_are_what_they_say(cluster: Cluster, mine: set[str]) -> None:
    """Ask the containers themselves where they run, and over which kernel."""
    boxed = cluster.kubectl("exec", "-n", "lab", "deployment/boxed", "--", "/whereami", "dmesg")
    assert "Starting gVisor" in boxed
    theirs = cluster.kubectl("exec", "-n", "shop", "deployment/web", "--", "/whereami", "dmesg")
    assert "Starting gVisor" in theirs
    plain = cluster.kubectl("exec", "-n", "lab", "deployment/plain", "--", "/whereami", "here")
    assert os.uname().release in plain
    assert plain.split()[1].rstrip(",") in mine


async def a_node_loses_power(cluster: Cluster, mine: set[str]) -> None:
    """Crash a node of the lab's: its claim says so, keeps it, and is whole again when the node is back."""
    lost = min(mine)
    cluster.run("node", "crash", lost)
    told = cluster.state("", condition="Degraded")
    (why,) = (each["message"] for each in told["status"]["conditions"] if each["type"] == "Degraded")
    assert f"not ready: '{lost}'" in why
    assert "Bound,Degraded" in cluster.run("slice", "list")
    assert "Bound,NotReady" in cluster.run("nodes")
    cluster.run("node", "restart", lost, f"--timeout={SECONDS:.0f}")

    async def whole() -> bool:
        return "Degraded" not in cluster.run("slice", "list")

    await until(whole, "the slice is whole", seconds=SECONDS)
    cluster.rolled_out("lab", "boxed", "plain")
