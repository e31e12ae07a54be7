"""Annotations whose values are dangerous: references to other namespaces, and syntax of configuration files."""

from __future__ import annotations

import pytest

from tenantry.api.tenancyrules import Section
from tenantry.policy.catalog import violations
from tenantry.policy.request import Request
from tenantry.policy.rules.annotationkeys import DANGEROUS, UNKNOWN

NGINX = "nginx.ingress.kubernetes.io"


def refused(rule: str, key: str, value: str) -> bool:
    """Return whether a rule refuses an Ingress of the namespace `own` with an annotation."""
    ingress = {"metadata": {"name": "i", "annotations": {key: value}}, "spec": {}}
    request = Request(group="networking.k8s.io", resource="ingresses", namespace="own", object=ingress)
    return bool(violations(request, Section(refused={rule: "Tenant 'a'"})))


@pytest.mark.parametrize("value", ["", "a", "own/a", "own/a,own/b", " own/a, b ", "a,b", "own/a.b"])
def test_references_to_the_own_namespace_pass(value: str) -> None:
    """X02: also in lists."""
    assert not refused(DANGEROUS, f"{NGINX}/auth-secret", value)


@pytest.mark.parametrize(
    "value",
    [
        *("other/a", "own/a,other/b", "own/a other/b", "own/a\nother/b", "a;other/b", "own/a/b", "own/../other/a"),
        *("own/..", "owner/a", "/a", "own//a", "secret://own/a"),
    ],
)
def test_references_to_other_namespaces_are_refused(value: str) -> None:
    """X02: each part of a list counts."""
    assert refused(DANGEROUS, f"{NGINX}/auth-secret", value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{NGINX}/rewrite-target", "/a; }"),
        (f"{NGINX}/rewrite-target", "/a\n"),
        (f"{NGINX}/auth-realm", 'x"'),
        (f"{NGINX}/proxy-cookie-path", "/ '/a'"),
        (f"{NGINX}/auth-url", "http://a{b"),
        ("haproxy.org/path-rewrite", "/a\nhttp-request deny"),
        ("haproxy-ingress.github.io/timeout-client", "5s;"),
    ],
)
def test_syntax_of_configuration_files_is_refused(key: str, value: str) -> None:
    """X02: ingress-nginx and HAProxy write these values into their configuration."""
    assert refused(DANGEROUS, key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{NGINX}/rewrite-target", "/$1/(a|b)?[c-d]*"),
        (f"{NGINX}/auth-realm", "Members only, please log in"),
        ("haproxy.org/path-rewrite", r"/foo/(.*) /\1"),
        ("alb.ingress.kubernetes.io/listen-ports", '[{"HTTP": 80}]'),
        ("kubectl.kubernetes.io/last-applied-configuration", '{"kind": "Ingress"}'),
    ],
)
def test_ordinary_values_pass(key: str, value: str) -> None:
    """X02: regular expressions, and JSON for controllers that parse it."""
    assert not refused(DANGEROUS, key, value)


def test_the_settings_of_proxies_are_a_list() -> None:
    """X02: a setting that a later version adds is unknown."""
    assert not refused(UNKNOWN, f"{NGINX}/proxy-body-size", "8m")
    assert refused(UNKNOWN, f"{NGINX}/proxy-next-generation", "x")
