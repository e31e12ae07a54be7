"""A newcomer's walk: the README from top to bottom, as administrator, owner and requester, on simulated nodes.

The commands are those of README.md, read from it. After each of its blocks, the owner of every namespace that reports
Ready runs a pod there, with the kubeconfig that `tenantry kubeconfig` prints. Thus, a namespace that is Ready and
cannot run a pod fails this test. tests/docs runs the other documents.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from testkit.charts import applications
from testkit.shell import ROOT, Session

REPORTS = re.compile(r"tenantry (explain|audit) ")
"""Commands that report a refusal or a failed check with exit code 1."""

NOT_HERE = ("make ", "tenantry install ", "tenantry bench ")
"""Commands that build, that install into an existing cluster, or that measure for a minute."""
ALICE = "tenantry --kubeconfig alice.kubeconfig sub create"
"""How the README divides its tenant."""

COUNTED = {"pods", "count/pods", "requests.cpu", "requests.memory"}
"""The keys of quotas that every pod uses."""

Json = dict[str, Any]


class Newcomer:
    """A person who types what the README shows, and looks whether it works.

    Args:
        folder: The working directory.
    """

    def __init__(self, folder: Path) -> None:
        self.session = Session(folder)
        self.used: set[str] = set()

    def types(self, command: str) -> str:
        """Run a command that has to succeed, and return its output; it may wait longer than a reader would.

        Raises:
            AssertionError: The command failed.
        """
        command = re.sub(r"(--timeout[ =])60s\b", r"\g<1>300s", command)
        code, output = self.session.run(command, is_output_alone=True)
        assert code == 0 or (code == 1 and REPORTS.match(command)), f"$ {command}\nexit code {code}\n{output}"
        return output

    def becomes(self, user: str, namespace: str) -> str:
        """Return the flag by which commands run as a user of a namespace."""
        file = f"{user}-{namespace}.kubeconfig"
        if not (self.session.folder / file).exists():
            self.types(f"tenantry kubeconfig -n {namespace} --user {user} > {file}")
        return f"--kubeconfig {file}"

    def runs(self, pod: str, user: str, namespace: str) -> None:
        """Run a pod as a user, and check that it runs on a node and that the quotas count it.

        Raises:
            AssertionError: The pod is refused, does not run, or is not counted.
        """
        kubectl = f"tenantry kubectl {self.becomes(user, namespace)} -- -n {namespace}"
        self.types(f"{kubectl} run {pod} --image nginx")
        self.types(f"{kubectl} wait pod/{pod} --for=jsonpath={{.status.phase}}=Running --timeout=60s")
        self.counted(kubectl)

    def installs(self, objects: list[Json], user: str, namespace: str) -> None:
        """Create the objects of a chart as a user, and check that its Deployments run and that the quotas count them.

        Raises:
            AssertionError: An object is refused, a pod does not run, or is not counted.
        """
        kubectl = f"tenantry kubectl {self.becomes(user, namespace)} -- -n {namespace}"
        (self.session.folder / "chart.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )
        self.types(f"{kubectl} apply -f chart.json")
        for each in objects:
            if each["kind"] == "Deployment":
                self.types(f"{kubectl} rollout status deployment/{each['metadata']['name']} --timeout=60s")
        self.counted(kubectl)

    def counted(self, kubectl: str) -> None:
        """Check that each pod of a namespace is on a node, and that the quotas count it.

        Raises:
            AssertionError: One is not.
        """
        found: list[Json] = json.loads(self.types(f"{kubectl} get pods,resourcequotas -o json"))["items"]
        pods = [each for each in found if each["kind"] == "Pod"]
        assert [each["metadata"]["name"] for each in pods if not each["spec"].get("nodeName")] == []
        quotas = [each["status"]["used"] for each in found if each["kind"] == "ResourceQuota"]
        used = {key: value for each in quotas for key, value in each.items() if key in COUNTED}
        assert used["count/pods"] == str(len(pods)), f"the quota does not count every pod: {used}"
        assert [key for key, value in used.items() if value == "0"] == [], f"the quota does not count a pod: {used}"

    def uses_what_is_ready(self) -> None:
        """Wait for every tenant and subnamespace, and run a pod in each that had none, as its owner.

        Raises:
            AssertionError: One does not get Ready, or is Ready and cannot run a pod.
        """
        self.types("tenantry wait tenants --all --timeout 60s")
        owners = {each["status"]["namespace"]: _owner(each) for each in self._listed("tenants")}
        below: list[Json] = []
        if self._listed("subnamespaces -A"):
            self.types("tenantry wait subnamespaces --all -A --timeout 60s")
            below = self._listed("subnamespaces -A")
        for each in sorted(below, key=lambda value: value["status"]["depth"]):
            # A workspace belongs to the owners above it.
            owners[each["status"]["namespace"]] = _owner(each) or owners[each["metadata"]["namespace"]]
        for namespace in sorted(set(owners) - self.used):
            self.runs("first", owners[namespace], namespace)
            self.used.add(namespace)

    def _listed(self, what: str) -> list[Json]:
        found: list[Json] = json.loads(self.types(f"tenantry get {what} -o json"))["items"]
        return found


def _owner(value: Json) -> str:
    """Return the first owner of a tenant or subnamespace; "" if it has none of its own."""
    owners = value["spec"].get("owners") or [{"name": ""}]
    return str(owners[0]["name"])


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(1200)
def test_the_readme_leads_to_namespaces_that_run_pods(tmp_path: Path) -> None:
    """E01, E02, E05, E07, X07: as administrator, owner and requester."""
    newcomer = Newcomer(tmp_path)
    (manifest,) = _blocks("yaml")
    (tmp_path / "tenant.yaml").write_text(manifest)
    last = ""
    try:
        for block in _blocks("console"):
            commands = [line for line in block.splitlines() if not line.startswith(NOT_HERE)]
            for command in commands:
                # The clusters of a section of its own have names.
                if command.startswith("tenantry down") and "--cluster" not in command:
                    last = command
                    _as_owner(newcomer)
                    _as_requester(newcomer)
                    newcomer.installs(applications.web_server(), "ada@acme.example", "acme")
                newcomer.types(command)
            if commands and not last:
                newcomer.uses_what_is_ready()
        assert last, "the README stops the cluster"
    finally:
        newcomer.session.down()


def _as_owner(newcomer: Newcomer) -> None:
    """Divide the tenant of the README's manifest, whose quota counts pods, by the README's own commands."""
    newcomer.types("tenantry kubectl -- apply -f tenant.yaml")
    newcomer.types("tenantry wait tenant/acme --timeout 60s")
    ada = newcomer.becomes("ada@acme.example", "acme")
    divided = [line for block in _blocks("console") for line in block.splitlines() if line.startswith(ALICE)]
    assert divided
    for command in divided:
        newcomer.types(
            command.partition("  #")[0].replace("umbrella", "acme").replace(ALICE, f"tenantry {ada} sub create")
        )
    newcomer.uses_what_is_ready()


def _as_requester(newcomer: Newcomer) -> None:
    """Request a tenant and a role, follow both requests, and run a pod with what was granted."""
    carol = newcomer.becomes("carol", "umbrella")
    newcomer.types(f"tenantry request create tenant carols --quota cpu=1,memory=1Gi --as-name carols {carol}")
    newcomer.types("tenantry approve treq/carols --wait")
    newcomer.types(f"tenantry wait treq/carols --timeout 60s {carol}")
    assert "Approved" in newcomer.types(f"tenantry get treq carols {carol}")
    newcomer.uses_what_is_ready()
    assert "carols" in newcomer.used
    alice = newcomer.becomes("alice", "umbrella")
    newcomer.types(f"tenantry kubectl {alice} -- create rolebinding carol -n umbrella --clusterrole view --user carol")
    newcomer.types(f"tenantry request create role edit --kind ClusterRole -n umbrella --for 8h --as-name help {carol}")
    newcomer.types(f"tenantry approve rreq/help -n umbrella --wait {alice}")
    assert "Approved" in newcomer.types(f"tenantry get rreq help -n umbrella {carol}")
    newcomer.runs("help", "carol", "umbrella")
