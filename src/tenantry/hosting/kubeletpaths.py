"""Translates paths of a kubelet into paths of the host's API server: pure.

    GET  /containerLogs/shop/web/main?follow=true
         ─► /api/v1/namespaces/acme/pods/web-3f2a/log?container=main&follow=true
    POST /exec/shop/web/main?command=ls&command=-l&output=1
         ─► /api/v1/namespaces/acme/pods/web-3f2a/exec?container=main&command=ls&command=-l&stdout=true
    POST /portForward/shop/web?port=80,443
         ─► /api/v1/namespaces/acme/pods/web-3f2a/portforward?ports=80&ports=443

The path and the query of the result are built from checked parts. No part of a given target is copied unread, so a
target can name only a pod that `locate` knows. Targets that two parsers could read differently have no translation:
escapes in the path, empty segments, a semicolon or a broken escape in the query, a repeated single value.

Source: Kubernetes, pkg/registry/core/pod/strategy.go (`LogLocation`, `streamParams`) and pkg/kubelet/server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from tenantry.api.names import DNS_LABEL, DNS_SUBDOMAIN
from tenantry.hosting.destinations import HostPath

Locate = Callable[[str, str, str], tuple[str, str] | None]
"""Returns namespace and name on the host of (namespace, pod, node); None for a pod that does not run on the node."""

_LABEL = re.compile(DNS_LABEL, re.ASCII)
_SUBDOMAIN = re.compile(DNS_SUBDOMAIN, re.ASCII)
_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253

_PATH = re.compile(r"/[A-Za-z0-9./-]+")
_QUERY = re.compile(r"(?:[!$&'()*+,\-./0-9:=?@A-Z_a-z~]|%[0-9A-Fa-f]{2})*")
_MOST_PARAMETERS = 1000

_BOOL = re.compile("true|false")
_COUNT = re.compile("[0-9]{1,18}")
_LAST_PORT = 65535

_LOG_VALUES: Mapping[str, re.Pattern[str]] = {
    "follow": _BOOL,
    "previous": _BOOL,
    "timestamps": _BOOL,
    "sinceSeconds": _COUNT,
    "tailLines": _COUNT,
    "limitBytes": _COUNT,
    "sinceTime": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9:]{5})"),
    "stream": re.compile("All|Stdout|Stderr"),
}
_STREAMS = {"input": "stdin", "output": "stdout", "error": "stderr", "tty": "tty"}
"""Names of the kubelet's parameters and of the API's."""

_Pairs = list[tuple[str, str]]


def translate(node: str, method: str, target: str, *, locate: Locate) -> HostPath | None:
    """Return the request to the host for a request to a kubelet.

    Args:
        node: The node whose kubelet is asked.
        method: As in "GET".
        target: The path and the query, as they stand in the request.
        locate: Finds the pod on the host.

    Returns:
        None if the target is not one of the four paths of a pod on this node, or is ambiguous.
    """
    path, _, raw = target.partition("?")
    given = _parameters(raw)
    if given is None or not _PATH.fullmatch(path):
        return None
    first, *names = path[1:].split("/")
    verb = _VERBS.get(first)
    if verb is None or method not in verb.methods or not _are_names(names, has_container=verb.has_container):
        return None
    query = verb.query(given)
    place = locate(names[0], names[1], node) if query is not None else None
    if query is None or place is None:
        return None
    namespace, name = (quote(each, safe="") for each in place)
    container = [("container", names[2])] if verb.has_container else []
    return HostPath(
        path=f"/api/v1/namespaces/{namespace}/pods/{name}/{verb.subresource}",
        query=(*container, *query),
        is_upgrade=verb.is_upgrade,
    )


def _parameters(raw: str) -> _Pairs | None:
    """Return the pairs of a query; None if it is malformed."""
    if not _QUERY.fullmatch(raw):
        return None
    try:
        return parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        # Too many, or escapes that are not UTF-8.
        return None


def _single(given: _Pairs, names: Mapping[str, object]) -> dict[str, str] | None:
    """Return the values of these names; None if one occurs twice, because readers disagree which of them counts."""
    chosen = [(name, value) for name, value in given if name in names]
    found = dict(chosen)
    return found if len(found) == len(chosen) else None


def _log_query(given: _Pairs) -> _Pairs | None:
    found = _single(given, _LOG_VALUES)
    if found is None or not all(_LOG_VALUES[name].fullmatch(value) for name, value in found.items()):
        return None
    return list(found.items())


def _attach_query(given: _Pairs) -> _Pairs | None:
    found = _single(given, _STREAMS)
    if found is None:
        return None
    # The kubelet reads every value except "1" as false.
    return [(name, "true") for own, name in _STREAMS.items() if found.get(own) == "1"]


def _exec_query(given: _Pairs) -> _Pairs | None:
    streams = _attach_query(given)
    return None if streams is None else [*((name, value) for name, value in given if name == "command"), *streams]


def _port_query(given: _Pairs) -> _Pairs | None:
    found = _single(given, {"port": None})
    if found is None:
        return None
    ports = found["port"].split(",") if "port" in found else []
    return [("ports", port) for port in ports] if all(_is_port(port) for port in ports) else None


def _is_port(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]{0,4}", text, re.ASCII) is not None and int(text) <= _LAST_PORT


def _are_names(names: list[str], *, has_container: bool) -> bool:
    """Return whether these are a namespace, a pod and perhaps a container."""
    if len(names) != (3 if has_container else 2):
        return False
    namespace, pod, *rest = names
    labels = (namespace, *rest)
    return (
        all(len(each) <= _LABEL_LENGTH and _LABEL.fullmatch(each) for each in labels)
        and len(pod) <= _SUBDOMAIN_LENGTH
        and _SUBDOMAIN.fullmatch(pod) is not None
    )


class _Verb(NamedTuple):
    """One path of the kubelet: its methods, the subresource of the API, and its query."""

    methods: frozenset[str]
    subresource: str
    query: Callable[[_Pairs], _Pairs | None]
    has_container: bool = True
    is_upgrade: bool = True


# SPDY uses POST, and WebSockets use GET.
_SWITCHING = frozenset({"GET", "POST"})
_VERBS: Mapping[str, _Verb] = {
    "containerLogs": _Verb(frozenset({"GET"}), "log", _log_query, is_upgrade=False),
    "exec": _Verb(_SWITCHING, "exec", _exec_query),
    "attach": _Verb(_SWITCHING, "attach", _attach_query),
    "portForward": _Verb(_SWITCHING, "portforward", _port_query, has_container=False),
}
