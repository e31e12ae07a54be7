"""What `tenantry node list` prints, and what pods ask of nodes."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import click
import msgspec
import pytest

from tenantry.cli import output
from tenantry.cli.nodes.table import bar, lines
from tenantry.views.nodes import NodesView, NodeUsage, PartView, WaitingView
from tenantry.views.pods import PodRequests, total
from tenantry.world.naming import numeric_order
from tenantry.world.quantity import parse

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HAS = {"cpu": "8", "memory": "32Gi"}

MIXED = NodesView(
    nodes=(
        NodeUsage(name="n1", ready=True, allocatable=HAS, requested={"cpu": "2"}, pods={"": 1, "b": 1, "a": 3, "c": 2}),
        NodeUsage(
            name="n2",
            state="Bound",
            tenant="acme",
            claim="acme/fast",
            ends="2026-11-21T14:00:00Z",
            next="globex/ml",
            ready=False,
            cordoned=True,
            allocatable=HAS,
            requested={"cpu": "8", "memory": "16Gi"},
            pods={"acme": 2},
        ),
        NodeUsage(name="n3", state="Reserved", tenant="acme", claim="acme-web/own", ready=True),
    ),
    waiting=(WaitingView(claim="globex/ml", since="2026-11-21T11:57:00Z", count=2, why="too few"),),
)


def shown(view: NodesView, *, blocks: bool = False) -> list[str]:
    return output.plain(*lines(view, NOW, blocks=blocks))


def test_the_map_says_who_has_parts_of_a_node() -> None:
    """E20: how large each is; a node that is given out in parts is not free, and no tenant's."""
    parts = (
        PartView(tenant="acme", claim="acme/web", slice="web-1", cpu="2", memory="4Gi"),
        PartView(tenant="globex", claim="globex-dev/db", slice="db-2", cpu="500m", memory="1Gi"),
    )
    view = NodesView(
        nodes=(
            NodeUsage(name="n1", state="Shared", ready=True, parts=parts),
            NodeUsage(name="n2", state="Shared", ready=True),
            NodeUsage(name="n3", ready=True),
        )
    )
    assert shown(view) == [
        "NODE   STATE    TENANT         CLAIM                                     CPU   MEMORY   PODS OF",
        "n1     Shared   acme, globex   web (2, 4Gi), globex-dev/db (500m, 1Gi)   ?     ?        ?",
        "n2     Shared   -              -                                         ?     ?        ?",
        "n3     Free     -              -                                         ?     ?        ?",
        "",
        "2 of 3 nodes taken, 1 free",
        "TENANT       NODES   CLAIMS",
        "(in parts)   2       acme/web 1, globex-dev/db 1",
        "(free)       1       -",
    ]


def test_the_map_says_whose_each_node_is_what_is_used_and_who_is_next() -> None:
    """E12: free and taken, in text that a script can cut; what is not known is a question mark."""
    assert shown(MIXED) == [
        "NODE   STATE                     TENANT   CLAIM          ENDS    NEXT        CPU    MEMORY   PODS OF",
        (
            "n1     Free                      -        -              -       -           25%    0%       "
            "a 3, c 2, and 2 more"
        ),
        "n2     Bound,NotReady,Cordoned   acme     fast           in 2h   globex/ml   100%   50%      acme 2",
        "n3     Reserved                  acme     acme-web/own   -       -           ?      ?        ?",
        "",
        "2 of 3 nodes taken, 1 free",
        "TENANT   NODES   CLAIMS",
        "acme     2       acme-web/own 1, acme/fast 1",
        "(free)   1       -",
        "",
        "WAITING     FOR   NODES   BECAUSE",
        "globex/ml   3m    2       too few",
    ]


def test_a_terminal_gets_bars_and_colours_that_only_repeat_the_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """E12: what is used of a node is seen at a glance; without colours nothing is missing."""
    drawn = shown(MIXED, blocks=True)
    assert "██░░░░░░  25%   ░░░░░░░░   0%" in drawn[1]
    assert "████████ 100%   ████░░░░  50%" in drawn[2]
    assert "acme       2 ██████████████████████████▌   acme-web/own 1" in drawn[7]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in {"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    output.show(*lines(MIXED, NOW, blocks=True))
    painted = capsys.readouterr().out.splitlines()
    assert "\x1b[36mBound\x1b[0m,NotReady" in painted[2]
    assert [click.unstyle(line).rstrip() for line in painted] == drawn


def test_who_may_not_read_nodes_gets_what_its_claims_say() -> None:
    """E12: no sum over nodes that the asker does not see, and amounts rather than shares."""
    view = NodesView(nodes=(NodeUsage(name="n1", state="Bound", requested={"cpu": "500m"}, pods={}),), partial=True)
    assert shown(view, blocks=True) == [
        "NODE   STATE   TENANT   CLAIM   CPU    MEMORY   PODS OF",
        "n1     Bound   -        -       500m   0        -",
    ]
    assert shown(NodesView(nodes=()), blocks=True) == []


def test_nodes_that_are_not_clean_and_those_that_were_contributed_are_told() -> None:
    """E19, E20: why a node is not given back, and for whom a node was brought."""
    nodes = (
        NodeUsage(
            name="n1", state="Releasing", tenant="acme", claim="acme/fast", ready=True, unclean="2 images are left"
        ),
        NodeUsage(name="n2", ready=True, contributed_by="lab"),
    )
    told = shown(NodesView(nodes=nodes, partial=True))
    assert [line.split()[:5] for line in told[:3]] == [
        ["NODE", "STATE", "TENANT", "CLAIM", "FROM"],
        ["n1", "Releasing,NotClean", "acme", "fast", "-"],
        ["n2", "Free", "-", "-", "lab"],
    ]
    assert told[4:] == ["n1 is set aside until it is clean: 2 images are left"]


def test_a_node_that_serves_another_cluster_is_handed_over() -> None:
    """H05: it is neither ready nor schedulable here, which is no trouble."""
    node = NodeUsage(name="n1", state="Bound", tenant="acme", ready=False, cordoned=True, serves="acme/prod")
    told = shown(NodesView(nodes=(node,), partial=True))
    assert told[1].split()[:3] == ["n1", "Bound,HandedOver", "acme"]
    assert told[3:] == ["n1 serves the cluster acme/prod, and runs no pods here"]


@pytest.mark.parametrize(
    ("share", "drawn"),
    [("0", "░░░░"), ("1/1000", "▌░░░"), ("1/4", "█░░░"), ("3/8", "█▌░░"), ("1", "████"), ("9/8", "████")],
)
def test_a_bar_shows_half_characters_and_never_hides_a_little(share: str, drawn: str) -> None:
    """E12: in use at all is more than an empty bar, and more than all is no longer bar."""
    assert bar(Fraction(share), 4) == drawn


def test_names_are_in_the_order_of_their_numbers() -> None:
    """E12: node-2 before node-10."""
    names = ["node-10", "10", "node-2", "a1b2", "node", "a1b", "2"]
    assert sorted(names, key=numeric_order) == ["2", "10", "a1b", "a1b2", "node", "node-2", "node-10"]


def _container(cpu: str, **more: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


SPECS: list[tuple[dict[str, Any], str]] = [
    ({"containers": [_container("1"), _container("500m"), {}]}, "1500m"),
    ({"containers": [_container("1")], "initContainers": [_container("2")]}, "2"),
    # A sidecar counts beside the containers, and beside what starts after it.
    ({"containers": [_container("1")], "initContainers": [_container("1", restartPolicy="Always")]}, "2"),
    (
        {
            "containers": [_container("1")],
            "initContainers": [_container("1", restartPolicy="Always"), _container("4")],
        },
        "5",
    ),
    ({"containers": [_container("1")], "overhead": {"cpu": "250m"}}, "1250m"),
    ({"containers": [_container("1")], "resources": {"requests": {"cpu": "3"}}}, "3"),
    ({"containers": [{"resources": {}}], "initContainers": []}, "0"),
]


@pytest.mark.parametrize(("spec", "cpu"), SPECS)
def test_a_pod_asks_for_what_the_scheduler_counts(spec: dict[str, Any], cpu: str) -> None:
    """E12: init containers, sidecars, overhead and the pod's own requests, as Kubernetes sums them."""
    pod = msgspec.convert({"metadata": {"namespace": "acme"}, "spec": spec}, PodRequests)
    assert pod.spec.requested("cpu") == parse(cpu)
    assert total([pod, pod], "cpu") == 2 * parse(cpu)


def test_a_finished_pod_takes_no_room() -> None:
    """E12: only pods that can run count."""
    spec = {"nodeName": "n1", "containers": [_container("1")]}
    here = {
        phase: msgspec.convert({"metadata": {"namespace": "a"}, "spec": spec, "status": {"phase": phase}}, PodRequests)
        for phase in ("Running", "Succeeded", "Failed")
    }
    assert {phase: pod.node for phase, pod in here.items()} == {"Running": "n1", "Succeeded": "", "Failed": ""}
