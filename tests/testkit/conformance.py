"""Kubernetes' conformance tests: their names, and a run of some of them with the program of go/conformance."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tenantry.api.model import Resource
from tenantry.local import build, sources
from testkit.api import PODS, Api, until

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
PODLESS = "podless.txt"
"""The names of the conformance tests that need no running pod."""

WITH_PODS = "with-pods.txt"
"""The names of all others."""

FAILING = "with-pods-failing.yaml"
"""The tests of the others that fail on real nodes, by their causes."""

SLOW = "[Slow]"
SERIAL = "[Serial]"
SCHEDULED = "] CronJob "
"""In the names of tests that wait for the beginning of a minute, up to three times."""

_FOLDER = sources.root() / "go" / "conformance"
_PASSED = "passed"
_TEST = "It"
_REPORT_SECONDS = 120.0
_MESSAGE = 1500


class _Failure(msgspec.Struct, frozen=True):
    message: str = msgspec.field(name="Message", default="")


class _Spec(msgspec.Struct, frozen=True):
    containers: list[str] | None = msgspec.field(name="ContainerHierarchyTexts", default=None)
    text: str = msgspec.field(name="LeafNodeText", default="")
    type: str = msgspec.field(name="LeafNodeType", default="")
    state: str = msgspec.field(name="State", default="")
    failure: _Failure = msgspec.field(name="Failure", default=_Failure())

    @property
    def name(self) -> str:
        return " ".join([*(self.containers or ()), self.text])


class _Suite(msgspec.Struct, frozen=True):
    specs: list[_Spec] = msgspec.field(name="SpecReports")


class ConformanceRun(msgspec.Struct, frozen=True):
    """The outcome of a run.

    Args:
        passed: The names of the tests that passed.
        others: By name of all others: the state, and the message of the failure or of the skip. The steps before and
            after the tests are among them if they failed.
    """

    passed: frozenset[str]
    others: dict[str, str]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why tests fail.

    Args:
        cause: In one sentence.
        tests: Their names.
    """

    cause: str
    tests: list[str]


def failing() -> list[Cause]:
    """Return the tests that are known to fail on real nodes, by their causes."""
    return msgspec.yaml.decode((_FOLDER / FAILING).read_bytes(), type=list[Cause])


def names(file: str) -> tuple[str, ...]:
    """Return the names of a list beside the program, in its order."""
    return tuple((_FOLDER / file).read_text().splitlines())


async def known(program: build.Binaries) -> tuple[str, ...]:
    """Return the names of all conformance tests of the release.

    Raises:
        AssertionError: The program lacks one of them.
    """
    process = await asyncio.create_subprocess_exec(
        program.conformance,
        "--list-conformance-tests",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    return tuple(out.decode().splitlines())


async def run(
    program: build.Binaries, kubeconfig: Path, wanted: tuple[str, ...], folder: Path, limit_seconds: float
) -> ConformanceRun:
    """Run tests by their names, one after the other; those that mostly wait run beside them.

    Args:
        program: The folder of the program.
        kubeconfig: An administrator of the API server that is tested.
        wanted: The names.
        folder: An empty folder for the reports and the logs.
        limit_seconds: When the tests that have not ended yet fail.
    """
    slow = [(each,) for each in wanted if SLOW in each]
    scheduled = tuple(each for each in wanted if SLOW not in each and SCHEDULED in each)
    groups = [tuple(each for each in wanted if SLOW not in each and SCHEDULED not in each), scheduled, *slow]
    return await run_groups(program, kubeconfig, groups, folder, limit_seconds)


async def run_groups(
    program: build.Binaries,
    kubeconfig: Path,
    groups: Sequence[tuple[str, ...]],
    folder: Path,
    limit_seconds: float,
    **environment: str,
) -> ConformanceRun:
    """Run groups of tests beside each other, those of a group one after the other.

    Args:
        program: The folder of the program.
        kubeconfig: An administrator of the API server that is tested.
        groups: The names of each group.
        folder: An empty folder for the reports and the logs.
        limit_seconds: When the tests that have not ended yet fail.
        environment: Further environment variables of the program.
    """
    kubectl = build.built()
    assert kubectl is not None, "the local control plane is not built"
    base = (str(program.conformance), f"--kubeconfig={kubeconfig}", f"--kubectl-path={kubectl.kubectl}")
    found = await asyncio.gather(
        *(
            asyncio.to_thread(_run, base, group, folder / str(number), limit_seconds, environment)
            for number, group in enumerate(groups)
            if group
        )
    )
    passed = frozenset(name for each in found for name in each.passed)
    others = {name: told for each in found for name, told in each.others.items()}
    wanted = (name for group in groups for name in group)
    missing = {name: "not in the report" for name in wanted if name not in passed and name not in others}
    return ConformanceRun(passed, others | missing)


async def bring_nodes(inside: Api, container: Json, count: int, seconds: float) -> None:
    """Run a pod on each of the host's nodes: a Node is there from its first pod on.

    Args:
        inside: The user of the control plane.
        container: The container of these pods.
        count: The number of nodes.
        seconds: How long the pods may take to start.
    """
    labels = {"app": "nodes"}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = {"metadata": {"labels": labels}, "spec": {"affinity": affinity, "containers": [container]}}
    deployment = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    await inside.create(DEPLOYMENTS, {"metadata": {"name": "nodes"}, "spec": deployment}, "default")

    async def run() -> bool:
        found = await inside.list(PODS, "default")
        return len({each["spec"].get("nodeName") for each in found if each["status"]["phase"] == "Running"}) == count

    await until(run, "a pod runs on each node", seconds=seconds)


def _run(
    base: tuple[str, ...], wanted: tuple[str, ...], folder: Path, limit_seconds: float, environment: dict[str, str]
) -> ConformanceRun:
    folder.mkdir(parents=True)
    report = folder / "report.json"
    command = (
        *base,
        *("--provider=local", "--dump-logs-on-failure=false", "--disable-log-dump=true"),
        *("--ginkgo.no-color", f"--ginkgo.timeout={limit_seconds:.0f}s", "--ginkgo.grace-period=20s"),
        f"--ginkgo.json-report={report}",
        # The whole name: one can be the beginning of another.
        f"--ginkgo.focus=({'|'.join(re.escape(each) for each in wanted)})$",
        f"--report-dir={folder}",
    )
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=os.environ | environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(limit_seconds + _REPORT_SECONDS)
        finally:
            if process.poll() is None:
                # kubectl, which it starts, too.
                os.killpg(process.pid, signal.SIGKILL)
    assert report.exists(), f"no report; the end of the log:\n{(folder / 'log').read_text(errors='replace')[-3000:]}"
    suites = msgspec.json.decode(report.read_bytes(), type=list[_Suite])
    specs = [spec for suite in suites for spec in suite.specs]
    tests = {spec.name: spec for spec in specs if spec.type == _TEST and spec.name in set(wanted)}
    passed = frozenset(name for name, spec in tests.items() if spec.state == _PASSED)
    others = {
        name: f"{spec.state}: {spec.failure.message[:_MESSAGE]}" for name, spec in tests.items() if name not in passed
    }
    steps = (spec for spec in specs if spec.type != _TEST and spec.state not in (_PASSED, "", "skipped"))
    return ConformanceRun(
        passed, others | {spec.type: f"{spec.state}: {spec.failure.message[:_MESSAGE]}" for spec in steps}
    )
