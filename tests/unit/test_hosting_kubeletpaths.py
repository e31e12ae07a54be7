"""Targets of a kubelet: hostile ones have no translation, the others name only pods that run on the node."""

from __future__ import annotations

import pytest

from tenantry.hosting import kubeletpaths
from tenantry.hosting.destinations import HostPath

POD = "/api/v1/namespaces/acme/pods/web-3f2a"
MAIN = ("container", "main")


def locate(namespace: str, pod: str, node: str) -> tuple[str, str] | None:
    """Know one pod, and answer every other question, so that only the checks of names refuse."""
    if (namespace, pod, node) == ("shop", "gone", "node-1") or node != "node-1":
        return None
    return ("acme", "web-3f2a") if pod == "web" else ("acme", pod)


def translate(target: str, method: str = "GET", node: str = "node-1") -> HostPath | None:
    """Translate with the pods above."""
    return kubeletpaths.translate(node, method, target, locate=locate)


@pytest.mark.parametrize(
    "target",
    [
        # Ways out of the path.
        "/exec/../shop/web/main",
        "/exec/shop/../main",
        "/exec/shop/web/..",
        "/exec/shop/web/../../../../secrets",
        "/exec/./web/main",
        "/exec/shop/web/main/..",
        "/exec//shop/web/main",
        "/exec/shop//main",
        "/exec/shop/web/",
        "/exec/shop/web/main/",
        "//exec/shop/web/main",
        "exec/shop/web/main",
        "",
        "/",
        "*",
        "http://host/exec/shop/web/main",
        # Escapes: no name needs one.
        "/exec/shop%2fweb/main/x",
        "/exec/shop/web%2F..%2Fother/main",
        "/exec/shop/%2e%2e/main",
        "/exec/sho%70/web/main",
        "/ex%65c/shop/web/main",
        "/exec/shop/web/main%00",
        "/exec/shop/web/main%3Fcommand=ls",
        "/exec/shop/web\\..\\x/main",
        "/exec/shop/web/main;x=1",
        "/exec/shop/web/main#?command=ls",
        "/exec/shop/web/main?command=ls#x",
        # Names that are not names.
        "/exec/Shop/web/main",
        "/exec/shop/Web/main",
        "/exec/shop/web/Main",
        "/exec/shop.x/web/main",
        "/exec/shop/web/main.x",
        "/exec/-shop/web/main",
        "/exec/shop/web-/main",
        "/exec/shop/.web/main",
        "/exec/shop/web..x/main",
        f"/exec/{'s' * 64}/web/main",
        f"/exec/shop/{'w' * 254}/main",
        f"/exec/shop/web/{'m' * 64}",
        "/exec/shop/web/mäin",
        "/exec/shop/web/main\n",
        "/exec/shop/web/main?command=a b",
        "/exec/shop/web/main?command=a\r\nX: y",
        # Other paths of kubelet.
        "/exec/shop/web",
        "/exec/shop/web/1234-uid/main",
        "/run/shop/web/main?cmd=id",
        "/cri/exec/token",
        "/containerLogs/shop/web",
        "/portForward/shop/web/main",
        "/logs/",
        "/logs/kubelet.log",
        "/pods",
        "/runningpods/",
        "/metrics",
        "/metrics/cadvisor",
        "/stats/summary",
        "/configz",
        "/debug/pprof/heap",
        "/checkpoint/shop/web/main",
        "/healthz",
        "/EXEC/shop/web/main",
        # Values that readers understand differently.
        "/exec/shop/web/main?command=ls&input=1&input=0",
        "/attach/shop/web/main?tty=0&tty=1",
        "/containerLogs/shop/web/main?follow=true&follow=false",
        "/containerLogs/shop/web/main?tailLines=1&tail%4Cines=2",
        "/portForward/shop/web?port=80&port=22",
        "/exec/shop/web/main?command=a;input=1",
        "/exec/shop/web/main?command=%",
        "/exec/shop/web/main?command=%zz",
        "/exec/shop/web/main?command=%ff",
        f"/exec/shop/web/main?{'command=a&' * 1001}",
        # Values of the wrong type.
        "/containerLogs/shop/web/main?follow=1",
        "/containerLogs/shop/web/main?follow",
        "/containerLogs/shop/web/main?tailLines=-1",
        "/containerLogs/shop/web/main?tailLines=1e9",
        "/containerLogs/shop/web/main?tailLines=1234567890123456789",
        "/containerLogs/shop/web/main?tailLines=%D9%A3",
        "/containerLogs/shop/web/main?sinceTime=yesterday",
        "/containerLogs/shop/web/main?stream=Other",
        "/portForward/shop/web?port=0",
        "/portForward/shop/web?port=65536",
        "/portForward/shop/web?port=80,",
        "/portForward/shop/web?port=%2B80",
        "/portForward/shop/web?port=",
        # Pods that are not on this node.
        "/exec/shop/gone/main?command=ls",
    ],
)
def test_hostile_targets_have_no_translation(target: str) -> None:
    assert translate(target, "GET") is None
    assert translate(target, "POST") is None


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/containerLogs/shop/web/main"),
        ("HEAD", "/containerLogs/shop/web/main"),
        ("PUT", "/exec/shop/web/main?command=ls"),
        ("DELETE", "/exec/shop/web/main"),
        ("get", "/exec/shop/web/main"),
        ("CONNECT", "/portForward/shop/web"),
    ],
)
def test_other_methods_have_no_translation(method: str, target: str) -> None:
    assert translate(target, method) is None


def test_a_pod_is_found_only_through_its_own_node() -> None:
    assert translate("/exec/shop/web/main?command=ls", node="node-2") is None


@pytest.mark.parametrize(
    ("target", "subresource", "query"),
    [
        ("/containerLogs/shop/web/main", "log", (MAIN,)),
        ("/containerLogs/shop/web/main?follow=true", "log", (MAIN, ("follow", "true"))),
        (
            "/containerLogs/shop/web/main?limitBytes=9&previous=false&sinceSeconds=5&stream=Stderr&tailLines=10&timestamps=true",
            "log",
            (
                MAIN,
                ("limitBytes", "9"),
                ("previous", "false"),
                ("sinceSeconds", "5"),
                ("stream", "Stderr"),
                ("tailLines", "10"),
                ("timestamps", "true"),
            ),
        ),
        (
            "/containerLogs/shop/web/main?sinceTime=2026-01-02T03%3A04%3A05%2B01%3A00",
            "log",
            (MAIN, ("sinceTime", "2026-01-02T03:04:05+01:00")),
        ),
        # A container of the query would contradict the path; TLS of the backend is not the client's business.
        ("/containerLogs/shop/web/main?container=other&insecureSkipTLSVerifyBackend=true&x=y", "log", (MAIN,)),
        (
            "/exec/shop/web/main?command=ls&command=-l&input=1&output=1&error=1&tty=1",
            "exec",
            (
                MAIN,
                ("command", "ls"),
                ("command", "-l"),
                ("stdin", "true"),
                ("stdout", "true"),
                ("stderr", "true"),
                ("tty", "true"),
            ),
        ),
        (
            "/exec/shop/web/main?command=sh&command=-c&command=echo+a%26b%3Bc%0A%2Fd&output=1&tty=0&stdin=true",
            "exec",
            (MAIN, ("command", "sh"), ("command", "-c"), ("command", "echo a&b;c\n/d"), ("stdout", "true")),
        ),
        ("/exec/shop/web/main?command=&container=other", "exec", (MAIN, ("command", ""))),
        ("/attach/shop/web/main?input=1&output=1&command=ls", "attach", (MAIN, ("stdin", "true"), ("stdout", "true"))),
        ("/portForward/shop/web", "portforward", ()),
        ("/portForward/shop/web?port=80,65535", "portforward", (("ports", "80"), ("ports", "65535"))),
        ("/portForward/shop/web?port=80%2C443&container=x", "portforward", (("ports", "80"), ("ports", "443"))),
    ],
)
def test_targets_of_own_pods_are_translated(target: str, subresource: str, query: tuple[tuple[str, str], ...]) -> None:
    expected = HostPath(path=f"{POD}/{subresource}", query=query, is_upgrade=subresource != "log")
    assert translate(target) == expected


@pytest.mark.parametrize("name", ["a" * 253, "web.example.com", "0", "a-b.c-d"])
def test_pods_may_have_every_name_of_a_pod(name: str) -> None:
    found = translate(f"/exec/shop/{name}/main?command=ls")
    assert found is not None
    assert found.path == f"/api/v1/namespaces/acme/pods/{name}/exec"


def test_names_of_the_host_cannot_change_the_path() -> None:
    """They come from a cache; a mistake there must not become another path."""
    found = kubeletpaths.translate("n", "POST", "/attach/shop/web/main", locate=lambda _, __, ___: ("a/../b", "c?d"))
    assert found is not None
    assert found.path == "/api/v1/namespaces/a%2F..%2Fb/pods/c%3Fd/attach"
