"""What is said of a cluster that does not come up, and how long is waited for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenantry.api.errors import Forbidden, Unreachable
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeCondition, NodeStatus
from tenantry.local import trouble
from tenantry.local.deadline import ProgressDeadline
from tenantry.local.nodes import why_not_ready
from tenantry.local.paths import ClusterPaths
from tenantry.local.state import ClusterState, ComponentState, Phase, ended, write_state

LOG = """\
time="2026-11-21T16:33:32Z" level=warning msg="an old one"
time="2026-11-21T16:33:33Z" level=info msg="no client"
I1121 16:33:38.647555      22 server.go:1] "Started kubelet"
time="2026-11-21T16:33:33Z" level=error msg="no CRI"
E1121 16:35:22.933357     286 kubelet.go:1804] "Failed to start cAdvisor" err="inotify_init: too many open files"
kubelet ended with exit code 1: starting it again
E1121 16:35:24.933357     296 kubelet.go:1804] "Failed to start cAdvisor" err="inotify_init: too many open files"
kubelet ended with exit code 1: starting it again
"""


def test_a_node_that_is_not_ready_is_told_with_its_own_words_and_its_programs_complaints(tmp_path: Path) -> None:
    """H06: containerd's and the kubelet's complaints stand beside the condition, each said once."""
    paths = ClusterPaths(tmp_path)
    paths.logs.mkdir()
    paths.log("real-1").write_text(LOG)
    deadline = ProgressDeadline()
    deadline.note_nodes({"real-1": "cni plugin not initialized"})
    told = trouble.what_is_late("rn", paths, 60.0, deadline)
    first, reason, *lines = told.splitlines()
    assert "waiting for real-1 (not Ready)" in first
    assert reason.startswith('the node "real-1" is not Ready: cni plugin not initialized. ')
    assert [line.strip() for line in lines] == [
        LOG.splitlines()[0],
        LOG.splitlines()[3],
        LOG.splitlines()[6],
        "kubelet ended with exit code 1: starting it again",
    ]


def test_a_node_says_why_it_is_not_ready() -> None:
    """H06: the message of the condition Ready, and that there is none where the kubelet has said nothing."""
    status = NodeStatus(conditions=(NodeCondition(type="Ready", status="False", message="PLEG is not healthy"),))
    assert why_not_ready(Node(metadata=ObjectMeta(name="real-1"), status=status)) == "PLEG is not healthy"
    assert "not reported" in why_not_ready(Node(metadata=ObjectMeta(name="real-1")))


async def test_what_goes_forward_is_waited_for_and_what_stands_still_is_not() -> None:
    """H06: each node that becomes Ready buys the others the whole time again; one that only complains does not."""
    deadline = ProgressDeadline()
    async with deadline.of(60.0):
        deadline.note_nodes({"a": "new", "b": "new"})
        first = deadline.until
        deadline.note_nodes({"a": "new", "b": "PLEG is not healthy"})
        assert deadline.until == first
        deadline.note_nodes({"b": "PLEG is not healthy"})
        assert deadline.until > first
    with pytest.raises(TimeoutError):
        async with deadline.of(0.01):
            await asyncio.Event().wait()
    deadline.renew()


def test_what_was_late_is_told_after_everything_was_stopped(tmp_path: Path) -> None:
    """H06: a start that is given up ends what it started; the message is about what was there before."""
    paths = ClusterPaths(tmp_path)
    before = ClusterState(
        name="rn",
        boot_id="",
        supervisor_pid=0,
        supervisor_ticks=0,
        phase=Phase.STARTING,
        components=(ComponentState(name="kube-apiserver", phase=Phase.STARTING),),
    )
    write_state(paths, ended(before, Phase.STOPPED))
    deadline = ProgressDeadline()
    deadline.seen = before
    assert "waiting for kube-apiserver (Starting)" in trouble.what_is_late("rn", paths, 60.0, deadline)


async def test_a_step_is_repeated_until_the_api_server_answers_and_the_deadline_names_the_problem(
    tmp_path: Path,
) -> None:
    """H06: what was not answered is tried again, and an error that is an answer ends it."""
    deadline = ProgressDeadline()

    async def unanswered() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(refuse(Unreachable("no answer within 30 s")))

    async def refuse(error: Exception) -> None:
        raise error

    with pytest.raises(TimeoutError):
        async with deadline.of(0.05):
            await deadline.insist(unanswered)
    told = trouble.what_is_late("rn", ClusterPaths(tmp_path), 60.0, deadline)
    assert "waiting for an answer (no answer within 30 s); see" in told
    async with deadline.of(60.0):
        with pytest.raises(Forbidden):
            await deadline.insist(refuse, Forbidden("no"))
