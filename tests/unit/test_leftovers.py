"""What has to go from a node between two tenants, and when a node is held to be clean."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from tenantry.api.cleaning import BY_HAND, CleaningResult, request_of
from tenantry.api.marks import CLEANED, CLEANING, NODE_AGENT, SLICE
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from tenantry.api.tenancydefaults import CleaningPolicy
from tenantry.controllers.slices.cleaning import CONDITION, CleaningStage, NodeCleaning, condition, find
from tenantry.nodeagent import leftovers
from tenantry.nodeagent.baseline import Baseline, BaselineFile
from tenantry.nodeagent.disk import Disk
from tenantry.nodeagent.leftovers import Leftovers, NodeContents, NodeImage, NodePod, PodContainer, PodFolder

NOW = dt.datetime(2027, 1, 31, 18, 0, tzinfo=dt.UTC)
ASKED = request_of("web-1", "2027-01-31T17:59:30.000000Z")
LATE = request_of("web-1", "2027-01-31T17:00:00.000000Z")
BOUND = (Taint(key=SLICE, effect="NoSchedule", value="web-1"), Taint(key=SLICE, effect="NoExecute", value="web-1"))


def node(*taints: Taint, conditions: tuple[NodeCondition, ...] = (), **notes: str) -> Node:
    """Return a node with annotations, named as in `marks`."""
    named = {{"agent": NODE_AGENT, "asked": CLEANING, "said": CLEANED}[key]: value for key, value in notes.items()}
    meta = ObjectMeta(name="n1", resource_version="7", annotations=named)
    return Node(metadata=meta, spec=NodeSpec(taints=taints), status=NodeStatus(conditions=conditions))


def said(request: str, *left: str) -> str:
    return msgspec.json.encode(CleaningResult(request=request, removed={"images": 2, "folders": 0}, left=left)).decode()


@pytest.mark.parametrize(
    ("found", "required", "stage"),
    [
        # No pod of the tenant can have run there, or there is no agent.
        (node(BOUND[0], agent="1"), False, CleaningStage.NEEDLESS),
        (node(*BOUND), False, CleaningStage.NEEDLESS),
        (node(*BOUND), True, CleaningStage.TO_ASK),
        (node(*BOUND, agent="1"), False, CleaningStage.TO_ASK),
        # Asked for by another slice, it is asked for again.
        (node(*BOUND, agent="1", asked=request_of("db-1", "2027-01-31T17:59:30.000000Z")), False, CleaningStage.TO_ASK),
        (node(*BOUND, agent="1", asked=ASKED), False, CleaningStage.ASKED),
        (node(*BOUND, agent="1", asked=LATE), False, CleaningStage.STUCK),
        (node(*BOUND, asked=ASKED), True, CleaningStage.STUCK),
        (node(*BOUND, asked=ASKED, said=BY_HAND), True, CleaningStage.CLEAN),
        (node(*BOUND, agent="1", asked=ASKED, said=said(ASKED)), False, CleaningStage.CLEAN),
        (node(*BOUND, agent="1", asked=ASKED, said=said(ASKED, "image a")), False, CleaningStage.STUCK),
        # An answer to another request is none, and neither is one that does not read.
        (node(*BOUND, agent="1", asked=ASKED, said=said(LATE)), False, CleaningStage.ASKED),
        (node(*BOUND, agent="1", asked=ASKED, said="clean!"), False, CleaningStage.ASKED),
        (node(*BOUND, agent="1", asked=ASKED, said=said(ASKED, *("x" * 300,))), False, CleaningStage.ASKED),
    ],
)
def test_a_node_is_clean_when_what_was_asked_is_answered(found: Node, *, required: bool, stage: CleaningStage) -> None:
    """E20: nothing but an answer to this very request, or an administrator's word, gives a node back."""
    policy = CleaningPolicy.REQUIRED if required else CleaningPolicy.WHERE_AGENTS
    assert find(found, "web-1", policy, NOW).stage is stage


def test_a_nodes_condition_is_written_when_it_changes() -> None:
    """E20: what is left stands on the node, since when, and is written once."""
    stuck = NodeCleaning(stage=CleaningStage.STUCK, message="these are left: 'image a'")
    first = condition(node(*BOUND), stuck, NOW)["status"]["conditions"][0]
    assert (first["type"], first["status"], first["reason"]) == (CONDITION, "False", "NodesNotClean")
    before = msgspec.convert(first, NodeCondition)
    assert condition(node(*BOUND, conditions=(before,)), stuck, NOW + dt.timedelta(minutes=1)) == {}
    other = NodeCleaning(stage=CleaningStage.STUCK, message="these are left: 'image b'")
    later = condition(node(*BOUND, conditions=(before,)), other, NOW + dt.timedelta(minutes=1))
    assert later["status"]["conditions"][0]["lastTransitionTime"] == "2027-01-31T18:00:00Z"
    done = condition(
        node(*BOUND, conditions=(before,)), NodeCleaning(stage=CleaningStage.CLEAN), NOW + dt.timedelta(minutes=1)
    )
    assert done["status"]["conditions"][0]["lastTransitionTime"] == "2027-01-31T18:01:00Z"


# -- what the agent removes -----------------------------------------------------------------------

DAEMON = NodePod("kube-system/agent", frozenset({"d"}), "", finished=False)
RUNS = NodePod("acme/runs", frozenset({"r"}), "web-1", finished=False)
ENDED = NodePod("acme/ended", frozenset({"e"}), "web-1", finished=True)
STATIC = NodePod("kube-system/proxy", frozenset({"mirror", "digest"}), "", finished=False)


def test_images_that_came_with_the_tenant_go() -> None:
    """E20: also one whose name the node had under another digest; what is used, pinned or was there before stays."""
    images = (
        NodeImage("old:1", "sha256:a"),
        NodeImage("moved:1", "sha256:b"),
        NodeImage("new:1", "sha256:c"),
        NodeImage("sha256:cfg", "sha256:c"),
        NodeImage("used:1", "sha256:d"),
        NodeImage("used@sha256:d", "sha256:d"),
        NodeImage("own:1", "sha256:e", pinned=True),
        NodeImage("own@sha256:e", "sha256:e"),
    )
    daemon = PodContainer("1", "d", "kube-system/agent", "used:1")
    before = {"old:1": "sha256:a", "moved:1": "sha256:x"}
    found = NodeContents(images=images, containers=(daemon,))
    assert leftovers.find(found, [DAEMON], "web-1", before).images == ("moved:1", "new:1", "sha256:cfg")
    # Where it is not known for certain what was there before, that goes as well.
    assert "old:1" in leftovers.find(found, [DAEMON], "web-1", {}).images


def test_what_is_of_pods_that_are_no_more_goes() -> None:
    """E20: of deleted pods, and of the slice's that have ended; those of DaemonSets and static pods stay."""
    containers = tuple(PodContainer(uid, uid, "ns/pod", "a:1") for uid in ("d", "e", "r", "digest", "gone"))
    folders = tuple(PodFolder(Path(f"/pods/{each.pod_uid}"), each.pod_uid) for each in containers)
    found = NodeContents(containers=containers, folders=folders)
    left = leftovers.find(found, [DAEMON, RUNS, ENDED, STATIC], "web-1", {})
    assert [each.id for each in left.containers] == ["e", "gone"]
    assert [each.pod_uid for each in left.folders] == ["e", "gone"]
    # The agent does not end running pods; the node is not clean while one runs.
    assert left.running == ("acme/runs",)
    assert left
    assert not leftovers.find(NodeContents(), [DAEMON, ENDED, STATIC], "web-1", {})


def test_it_is_told_what_is_left_and_why() -> None:
    """E20: the first things by name with what stopped them, none longer than an annotation may be."""
    left = Leftovers(
        images=("a:1", "b:1"),
        containers=(PodContainer("1", "u", "acme/web", "a:1"),),
        folders=(PodFolder(Path("/pods/u"), "u"),),
        running=("acme/runs",),
    )
    told = leftovers.messages(left, {"/pods/u": "Device or resource busy", "1": "x" * 99}, most=4, longest=60)
    assert told[0] == "pod acme/runs runs"
    assert told[1].endswith("x…")
    assert len(told[1]) == 60
    assert told[2:] == ("folder /pods/u: Device or resource busy", "image a:1")
    assert leftovers.count(left, Leftovers(images=("a:1",))) == {"images": 1, "containers": 1, "folders": 1}


def test_folders_of_pods_are_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    """E20: volumes and logs of a pod go, and nothing that they only point to."""
    pods, logs, links, outside = (tmp_path / each for each in ("pods", "logs/pods", "logs/containers", "outside"))
    for folder in (pods / "u1" / "volumes", logs / "ns_web_u1", links, outside):
        folder.mkdir(parents=True)
    (outside / "kept").write_text("kept")
    (pods / "u1" / "volumes" / "link").symlink_to(outside)
    (logs / "ns_web_u1" / "0.log").write_text("secret")
    (links / "web.log").symlink_to(logs / "ns_web_u1" / "0.log")
    disk = Disk(tmp_path, logs)
    found = disk.folders()
    assert {each.pod_uid for each in found} == {"u1"}
    assert [disk.remove(each) for each in found] == ["", ""]
    disk.sweep()
    assert (disk.folders(), list(links.iterdir())) == ((), [])
    assert (outside / "kept").read_text() == "kept"
    # Another process was faster.
    assert disk.remove(found[0]) == ""


def test_what_was_there_before_outlives_the_agent(tmp_path: Path) -> None:
    """E20: it is kept on the disk, and one that does not read is none."""
    file = BaselineFile(tmp_path / "before.json")
    assert file.read() is None
    kept = Baseline(slice="web-1", images={"a:1": "sha256:a"})
    file.write(kept)
    assert file.read() == kept
    (tmp_path / "before.json").write_text("{")
    assert file.read() is None
    file.drop()
    assert list(tmp_path.iterdir()) == []
