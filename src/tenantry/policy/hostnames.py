"""Which hosts Ingresses, Gateways and routes may have: what the rules of a namespace say.

That no host has two tenants is beyond the rules of one; see `install/hosts.py`. Sources: Kubernetes, "Ingress"; Gateway
API v1.5, HTTPRoute, GRPCRoute, TLSRoute, Gateway and ListenerSet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tenantry.api.marks import TENANT
from tenantry.policy.check import Check, Subject, quoted
from tenantry.policy.objects import allows, call, called, matches_all, refuses, refuses_each
from tenantry.policy.request import Finding, Json, Judged, Request, part, parts, texts

ALLOWED = "hostnames.allowed"
DOMAIN = "hostnames.domain"
CATCH_ALL = "hostnames.catchAll"
INGRESS_CLASSES = "hostnames.ingressClasses"
GATEWAY_CLASSES = "hostnames.gatewayClasses"

ALIASES = (
    "haproxy-ingress.github.io/server-alias",
    "konghq.com/host-aliases",
    "nginx.ingress.kubernetes.io/server-alias",
)
"""Annotations by which an Ingress gets more hosts, with commas between them. Sources: the controllers' manuals."""

OLD_CLASS = "kubernetes.io/ingress.class"
"""The annotation that names the class, still. Source: Kubernetes, "Ingress" (deprecated annotation)."""

NETWORKING = "networking.k8s.io"
GATEWAY = "gateway.networking.k8s.io"
EXPERIMENTAL = "gateway.networking.x-k8s.io"

_TERMINATED = ("HTTP", "HTTPS", "TLS")
"""The protocols of listeners that tell hosts apart."""

_PLAIN = r"^(?:[*][.])?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$"
_TOP_LEVEL = r"^[*][.][^.]+$"


# -- hosts ----------------------------------------------------------------------------------------

_SPLIT = ".join(',').split(',').map(h, h.trim()).filter(h, h != '')"
_ANNOTATIONS = "(has(object.metadata.annotations) ? object.metadata.annotations : {})"
_ALIASES = f"[{', '.join(quoted(each) for each in ALIASES)}]"
HOSTS_OF_INGRESS = (
    "((has(object.spec.rules) ? object.spec.rules : []).map(r, has(r.host) ? r.host : '')"
    " + (has(object.spec.tls) ? object.spec.tls : []).map(t, has(t.hosts) ? t.hosts.join(',') : '')"
    f" + {_ALIASES}.map(a, a in {_ANNOTATIONS} ? {_ANNOTATIONS}[a] : '')){_SPLIT}"
)
HOSTS_OF_ROUTE = "(has(object.spec.hostnames) ? object.spec.hostnames : [])"
HOSTS_OF_GATEWAY = (
    "(has(object.spec.listeners) ? object.spec.listeners : []).map(l, has(l.hostname) ? l.hostname : '')"
    ".filter(h, h != '')"
)


def hosts_of(value: Json) -> list[str]:
    """Return the hosts of an Ingress, a route or a Gateway, as they are written."""
    spec, annotations = part(value, "spec"), part(value, "metadata", "annotations")
    found: list[str] = [each.get("host") or "" for each in parts(spec, "rules")]
    found += [host for each in parts(spec, "tls") for host in texts(each, "hosts")]
    found += [annotations.get(alias, "") for alias in ALIASES]
    found = [each.strip() for text in found for each in text.split(",")]
    found += texts(spec, "hostnames")
    found += [each.get("hostname") or "" for each in parts(spec, "listeners")]
    return [each for each in found if each]


def offered_by(value: Json) -> list[str]:
    """Return the hosts of a Gateway's listeners that routes of other namespaces may have, as they are written.

    Source: Gateway API, AllowedRoutes (without a word it is `Same`).
    """
    listeners = parts(value, "spec", "listeners")
    found = [each for each in listeners if part(each, "allowedRoutes", "namespaces").get("from", "Same") != "Same"]
    return [each["hostname"] for each in found if each.get("hostname")]


def _hosts(judged: Judged) -> list[str]:
    return hosts_of(judged.request.object)


# -- what all of them have in common --------------------------------------------------------------


def _is_wide(host: str) -> bool:
    return not re.fullmatch(_PLAIN, host) or bool(re.fullmatch(_TOP_LEVEL, host))


def _common(noun: str) -> tuple[Check, ...]:
    """Return the checks of each host."""
    return (
        refuses_each(
            noun,
            CATCH_ALL,
            among="variables.hosts",
            bad=f"!c.matches({quoted(_PLAIN)}) || c.matches({quoted(_TOP_LEVEL)})",
            what="has the host",
            fix="must be a host in lower case, or *. before a domain that is not top-level",
            of=lambda judged: [each for each in _hosts(judged) if _is_wide(each)],
        ),
        matches_all(noun, ALLOWED, among="variables.hosts", what="has the host", of=_hosts),
        _in_domain(noun),
    )


def _in_domain(noun: str) -> Check:
    """Return the check that hosts are in the tenant's own part of a domain."""
    chosen = f"variables.chosen[{quoted(DOMAIN)}]"
    own = f"namespaceObject.metadata.labels['{TENANT}'] + '.' + {chosen}.value"

    def find(judged: Judged) -> Iterator[Finding]:
        bound = judged.rules.chosen[DOMAIN]
        own = f"{judged.request.namespace_labels.get(TENANT, '')}.{bound.value}"
        for each in _hosts(judged):
            if each != own and not each.endswith(f".{own}"):
                what, fix = f"has the host '{each}'", f"must be {own} or below it"
                yield Finding(rule=DOMAIN, source=bound.source, path=call(noun, judged), what=what, fix=fix)

    return Check(
        rule=DOMAIN,
        form="chosen",
        each="variables.hosts",
        bad=f"c != {own} && !c.endsWith('.' + {own})",
        usual=True,
        path=called(noun),
        what="'has the host \\'' + c + '\\''",
        source=f"{chosen}.source",
        fix=f"'must be ' + {own} + ' or below it'",
        find=find,
    )


def _is_new(request: Request) -> bool:
    before, after = request.old_object, request.object
    return (
        request.operation == "CREATE"
        or before.get("spec") != after.get("spec")
        or part(before, "metadata", "annotations") != part(after, "metadata", "annotations")
    )


IS_NEW = (
    "request.operation == 'CREATE' || object.?spec != oldObject.?spec"
    " || object.?metadata.annotations.orValue({}) != oldObject.?metadata.annotations.orValue({})"
)


# -- Ingresses ------------------------------------------------------------------------------------


def _classes(judged: Judged) -> list[str]:
    old: str | None = part(judged.request.object, "metadata", "annotations").get(OLD_CLASS)
    named: str | None = judged.spec.get("ingressClassName")
    return [each for each in (named, old) if each is not None] or [""]


INGRESSES = Subject(
    name="ingresses",
    group=NETWORKING,
    resources=("ingresses",),
    conditions={"spec-is-new": IS_NEW},
    variables={
        "hosts": HOSTS_OF_INGRESS,
        "named": "(has(object.spec.ingressClassName) ? [object.spec.ingressClassName] : [])"
        f" + ('{OLD_CLASS}' in {_ANNOTATIONS} ? [{_ANNOTATIONS}['{OLD_CLASS}']] : [])",
        "classes": "size(variables.named) > 0 ? variables.named : ['']",
    },
    checks=(
        refuses(
            "ingress",
            CATCH_ALL,
            bad="has(object.spec.defaultBackend)"
            " || has(object.spec.rules) && object.spec.rules.exists(r, !has(r.host) || r.host == '')",
            what="has no host, and so those of everybody",
            fix="give each rule a host, and leave out defaultBackend",
            is_bad=lambda judged: (
                "defaultBackend" in judged.spec or any(not each.get("host") for each in parts(judged.spec, "rules"))
            ),
        ),
        *_common("ingress"),
        allows("ingress", INGRESS_CLASSES, among="variables.classes", what="has the IngressClass", of=_classes),
    ),
    concerns=_is_new,
)


# -- the Gateway API ------------------------------------------------------------------------------


def _is_elsewhere(reference: Json, namespace: str) -> bool:
    return reference.get("kind", "Gateway") != "Service" and (reference.get("namespace") or namespace) != namespace


ROUTES = Subject(
    name="routes",
    group=GATEWAY,
    resources=("httproutes", "grpcroutes", "tlsroutes"),
    conditions={"spec-is-new": IS_NEW},
    variables={"hosts": HOSTS_OF_ROUTE},
    checks=(
        refuses(
            "route",
            CATCH_ALL,
            # At a Gateway of the namespace's own it has the hosts of the listeners, which are checked.
            bad="size(variables.hosts) == 0 && has(object.spec.parentRefs) && object.spec.parentRefs.exists(p,"
            " (!has(p.kind) || p.kind != 'Service') && has(p.namespace) && !(p.namespace in ['', request.namespace]))",
            what="has no host, and so all those of a Gateway of others",
            fix="give it hostnames",
            is_bad=lambda judged: (
                not _hosts(judged)
                and any(_is_elsewhere(each, judged.request.namespace) for each in parts(judged.spec, "parentRefs"))
            ),
        ),
        *_common("route"),
    ),
    concerns=_is_new,
)


def _listening(name: str, group: str, *resources: str) -> Subject:
    """Return what has listeners: Gateways, and sets of listeners for those of others."""
    protocols = ", ".join(quoted(each) for each in _TERMINATED)
    return Subject(
        name=name,
        group=group,
        resources=resources,
        conditions={"spec-is-new": IS_NEW},
        variables={
            "hosts": HOSTS_OF_GATEWAY,
            "classes": "has(object.spec.gatewayClassName) ? [object.spec.gatewayClassName] : []",
        },
        checks=(
            refuses(
                "gateway",
                CATCH_ALL,
                bad="has(object.spec.listeners) && object.spec.listeners.exists(l,"
                f" has(l.protocol) && l.protocol in [{protocols}] && (!has(l.hostname) || l.hostname == ''))",
                what="has a listener without a host, and so with those of everybody",
                fix="give each listener a hostname",
                is_bad=lambda judged: any(
                    each.get("protocol") in _TERMINATED and not each.get("hostname")
                    for each in parts(judged.spec, "listeners")
                ),
            ),
            *_common("gateway"),
            allows(
                "gateway",
                GATEWAY_CLASSES,
                among="variables.classes",
                what="has the GatewayClass",
                of=lambda judged: [judged.spec["gatewayClassName"]] if "gatewayClassName" in judged.spec else [],
            ),
        ),
        concerns=_is_new,
    )


HOSTNAMES = (
    INGRESSES,
    ROUTES,
    _listening("gateways", GATEWAY, "gateways", "listenersets"),
    _listening("xlistenersets", EXPERIMENTAL, "xlistenersets"),
)
