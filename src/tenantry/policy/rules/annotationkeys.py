"""Annotations of Ingresses, Gateways, routes, Services and Pods: an allow-list, because controllers read them.

An annotation is dangerous if its key names hosts, objects of other namespaces, or raw configuration of a controller
that all tenants share. Any other key is known, by the lists below or by `annotations.known`, or it is unknown.
Many tools annotate pods. So of pods, only the keys of DNS controllers count, and no key is unknown.

Sources: the manuals of ingress-nginx ("Annotations", "Annotations risks"), NGINX Ingress Controller, HAProxy Ingress,
HAProxy Technologies' controller, Traefik, Contour, Kong, Skipper, Emissary, ExternalDNS ("Annotations"), cert-manager,
kOps' dns-controller, AWS Load Balancer Controller, GKE, AKS and Application Gateway, and Gateway API v1.5
(`spec.infrastructure.annotations` of a Gateway goes to the Service that its controller creates).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tenantry.api.marks import TENANT
from tenantry.policy.check import CheckScope, Problem, RuleCheck, listed, matches, quoted
from tenantry.policy.request import Json, Review, part
from tenantry.policy.rules.hostnames import ALLOWED_HOSTS, DOMAIN, PLAIN_HOST
from tenantry.policy.rules.services import SERVICE
from tenantry.policy.targets.hosts import (
    ALIASES,
    DNS_KEYS,
    GATEWAY_SCOPES,
    INGRESS,
    POD_RECORD,
    ROUTE,
    STREAM_ROUTE,
)
from tenantry.policy.targets.objects import strings
from tenantry.world.rules import KNOWN_ANNOTATIONS

DANGEROUS, UNKNOWN = "annotations.dangerous", "annotations.unknown"

CONFIGURATION = (
    "(?i).+[/.-]snippets?"
    "|(haproxy-ingress[.]github|haproxy|ingress[.]kubernetes)[.](io|org)/config-.+|.+/(.*server-alias-regex|redirect-from-regex|auth-tls-match-cn|modsecurity-.+|mirror-.+)"
    "|.+/(from-to-www-redirect|redirect-from)"
    "|alb[.]ingress[.]kubernetes[.]io/(conditions|actions|transforms)[.].+|alb[.]ingress[.]kubernetes[.]io/group[.].+"
    "|traefik[.]ingress[.]kubernetes[.]io/(router[.](pathmatcher|rulesyntax|middlewares|tls[.]options|tls[.]domains.*)"
    "|service[.]serverstransport)"
    "|projectcontour[.]io/tls-cert-namespace"
    "|getambassador[.]io/.+|zalando[.]org/skipper-.+"
    "|ingress[.]appscode[.]com/.+|konghq[.]com/override"
    "|lbipam[.]cilium[.]io/sharing-cross-namespace"
)
"""Keys whose values are configuration of the controller, join its objects across namespaces, or name one there."""

REFERENCES = (
    "(?i).+/(.+[.-])?(secrets?|configmap|client-ca|server-ca|server-crt|ca-crt|ssl-certificate|jwt-key"
    "|proxy-set-headers|custom-headers)"
)
"""Keys whose values may name a Secret or ConfigMap of another namespace, as NAMESPACE/NAME."""

HOSTS = (
    "(?i).+[/.-](hostnames?|host-?names?|host-alias(es)?|server-alias(es)?|common-name|alt-names|dns-names?"
    "|dns-label-name|domain-names?|loadbalancerhostname|hostname-extension)"
    "|dns[.]alpha[.]kubernetes[.]io/(external|internal)|external-dns[.](alpha[.])?kubernetes[.]io/target"
)
"""Keys whose values are hosts, or a name in a zone that all tenants share, with commas between them."""

KNOWN_PREFIXES = (
    "(?:[^/]+|(?:kubectl[.]kubernetes|app[.]kubernetes|prometheus|(?:meta[.])?helm|argocd[.]argoproj"
    "|(?:[a-z-]+[.])?toolkit[.]fluxcd|backstage|(?:.+[.])?tenantry)[.](?:io|sh|dev)/.+"
    "|alb[.]ingress[.]kubernetes[.]io/healthcheck-.+|nginx[.]ingress[.]kubernetes[.]io/(?:cors|session-cookie)-[a-z-]+"
    "|haproxy[.]org/(?:timeout|cors|rate-limit)-[a-z-]+|(?:cert-manager[.]io/private-key|haproxy-ingress[.]github[.]io/(?:cors"
    "|timeout|session-cookie))-[a-z-]+)"
)
"""Keys without a prefix, keys of tools that annotate every object, and families of plain settings."""

_NGINX = (
    *("affinity", "affinity-mode", "affinity-canary-behavior", "allowlist-source-range", "app-root", "auth-realm"),
    *("auth-secret", "auth-secret-type", "auth-tls-secret", "auth-type", "backend-protocol", "canary"),
    *("canary-by-cookie", "canary-by-header", "canary-by-header-value", "canary-weight", "canary-weight-total"),
    *("client-body-buffer-size", "denylist-source-range", "enable-access-log", "enable-cors", "enable-rewrite-log"),
    *("force-ssl-redirect", "http2-push-preload", "limit-burst-multiplier", "limit-connections", "limit-rate"),
    *("limit-rate-after", "limit-rpm", "limit-rps", "limit-whitelist", "load-balance", "preserve-trailing-slash"),
    *("proxy-body-size", "proxy-buffer-size", "proxy-buffering", "proxy-buffers-number", "proxy-busy-buffers-size"),
    *("proxy-connect-timeout", "proxy-cookie-domain", "proxy-cookie-path", "proxy-http-version"),
    *("proxy-max-temp-file-size", "proxy-next-upstream", "proxy-next-upstream-timeout", "proxy-next-upstream-tries"),
    *("proxy-read-timeout", "proxy-redirect-from", "proxy-redirect-to", "proxy-request-buffering"),
    *("proxy-send-timeout", "proxy-ssl-ciphers", "proxy-ssl-name", "proxy-ssl-protocols", "proxy-ssl-secret"),
    *("proxy-ssl-server-name", "proxy-ssl-verify", "proxy-ssl-verify-depth"),
    *("rewrite-target", "satisfy", "service-upstream", "ssl-passthrough", "ssl-redirect", "use-regex"),
    *("websocket-services", "whitelist-source-range"),
)
_HAPROXY = (
    *("allow-list", "auth-realm", "auth-secret", "auth-type", "balance-algorithm", "check", "check-interval"),
    *("cookie-persistence", "forwarded-for", "hsts", "load-balance", "maxconn", "path-rewrite", "pod-maxconn"),
    *("rewrite-target", "secure-backends", "server-proto", "server-ssl", "ssl-passthrough", "ssl-redirect"),
    *("ssl-redirect-code", "whitelist", "whitelist-source-range"),
)
CONFIGURED = (
    r"nginx[.]ingress[.]kubernetes[.]io/.+|(?:haproxy[.]org|haproxy-ingress[.]github[.]io)/"
    rf"(?:{'|'.join(_HAPROXY)}|(?:timeout|cors|rate-limit|session-cookie)-[a-z-]+)"
)
"""Keys whose values the controller writes into a configuration file. Values of other HAProxy keys may have lines."""

SYNTAX = r"""(?s).*[[:cntrl:];{}"'].*"""
"""Values that end a directive or a block of such a file. Regular expressions need `$1`, `()` and `|`, which pass.

Source: ingress-nginx, "Annotations" (annotation validation), and CVE-2023-5043, CVE-2025-1097.
"""

_TRAEFIK = (
    *("router.entrypoints", "router.tls", "service.passhostheader", "service.nativelb", "service.serversscheme"),
    *("service.sticky.cookie", "service.sticky.cookie.httponly", "service.sticky.cookie.maxage"),
    *("service.sticky.cookie.name", "service.sticky.cookie.samesite", "service.sticky.cookie.secure"),
)
_CONTOUR = (
    *("max-connections", "max-pending-requests", "max-requests", "max-retries", "num-retries", "per-try-timeout"),
    *("response-timeout", "retry-on", "tls-minimum-protocol-version", "websocket-routes"),
)
_CERT_MANAGER = (
    *("cluster-issuer", "duration", "issue-temporary-certificate", "issuer", "issuer-group", "issuer-kind"),
    *("renew-before", "revision-history-limit", "usages"),
)
_ALB = (
    *("backend-protocol", "backend-protocol-version", "listen-ports", "ssl-redirect", "success-codes", "target-type"),
)
KNOWN = tuple(
    sorted({
        *ALIASES,  # the register of hosts has them
        *(f"nginx.ingress.kubernetes.io/{each}" for each in _NGINX),
        *(f"{prefix}/{each}" for prefix in ("haproxy.org", "haproxy-ingress.github.io") for each in _HAPROXY),
        *(f"traefik.ingress.kubernetes.io/{each}" for each in _TRAEFIK),
        *(f"projectcontour.io/{each}" for each in _CONTOUR),
        *(f"cert-manager.io/{each}" for each in _CERT_MANAGER),
        *(f"alb.ingress.kubernetes.io/{each}" for each in _ALB),
        *(f"external-dns.{each}kubernetes.io/ttl" for each in ("", "alpha.")),
        *("kubernetes.io/ingress.class", "kubernetes.io/ingress.allow-http", "kubernetes.io/tls-acme"),
        *("kubernetes.io/description", "konghq.com/strip-path", "konghq.com/preserve-host", "konghq.com/protocols"),
        *("ingress.kubernetes.io/ssl-redirect", "ingress.kubernetes.io/force-ssl-redirect"),
        *("service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"),
        "service.alpha.kubernetes.io/tolerate-unready-endpoints",
        "service.beta.kubernetes.io/load-balancer-source-ranges",
    })
)  # fmt: skip
"""Keys of settings that concern the object's own traffic only."""

# -- what a request writes ------------------------------------------------------------------------

_HELD = ("metadata.annotations", "spec.infrastructure.annotations")


def _pairs(of: str, fields: tuple[str, ...]) -> str:
    """Return CEL: the keys and values of the annotations of an object, in order: Go's maps have none."""
    maps = (f"{of}.?{field}.orValue({{}})" for field in fields)
    return " + ".join(f"{each}.map(k, string(k)).sort().map(k, [k, string({each}[k])])" for each in maps)


def _written(fields: tuple[str, ...]) -> str:
    new, old = _pairs("object", fields), _pairs("oldObject", fields)
    return f"request.operation == 'CREATE' ? {new} : [{old}].map(before, ({new}).filter(p, !(p in before)))[0]"


def _written_by(review: Review) -> list[tuple[str, str]]:
    request = review.request
    before = _annotations(request.old_object) if request.operation != "CREATE" else []
    return [each for each in _annotations(request.object) if each not in before]


def _annotations(value: Json) -> list[tuple[str, str]]:
    return [pair for field in _HELD for pair in sorted(part(value, *field.split(".")).items())]


# -- what is wrong --------------------------------------------------------------------------------

_KEY, _VALUE = "c[0]", "c[1]"


def _is(pattern: str) -> str:
    return f"{_KEY}.matches({quoted(f'^(?:{pattern})$')})"


def _own_hosts() -> str:
    """Return CEL: whether the rules give all hosts in a value to the tenant."""
    lists, domain = f"variables.patterns[{quoted(ALLOWED_HOSTS)}]", f"variables.chosen[{quoted(DOMAIN)}].value"
    has_lists, has_domain = f"{quoted(ALLOWED_HOSTS)} in variables.patterns", f"{quoted(DOMAIN)} in variables.chosen"
    own = f"namespaceObject.metadata.labels['{TENANT}'] + '.' + {domain}"
    fits = f"{lists}.all(l, l.values.exists(p, h.matches('^(?:' + p + ')$')))"
    return (
        f"({has_lists} || {has_domain}) && {_VALUE}.split(',').map(h, h.trim()).all(h,"
        f" h.matches({quoted(PLAIN_HOST)}) && (!({has_lists}) || {fits})"
        f" && (!({has_domain}) || h == {own} || h.endsWith('.' + {own})))"
    )


def _has_own_hosts(value: str, review: Review) -> bool:
    lists, domain = review.rules.patterns.get(ALLOWED_HOSTS), review.rules.chosen.get(DOMAIN)
    if lists is None and domain is None:
        return False
    own = f"{review.request.namespace_labels.get(TENANT, '')}.{domain.value if domain is not None else ''}"
    for host in (each.strip() for each in value.split(",")):
        fits = all(any(matches(pattern, host) for pattern in each.values) for each in lists or ())
        is_own = domain is None or host == own or host.endswith(f".{own}")
        if not (re.fullmatch(PLAIN_HOST, host) and fits and is_own):
            return False
    return True


_ALIAS = f"{_KEY} in {listed(ALIASES)}"
# Some controllers accept a list. A name without a namespace is in the namespace of the object.
_OWN_REFERENCES = (r"[,\s]*(?:(?:", r"/[^/,\s.][^/,\s]*|[^/,\s]+)(?:[,\s]+|$))*")
_BEFORE, _AFTER = (quoted(each) for each in (f"^{_OWN_REFERENCES[0]}", f"{_OWN_REFERENCES[1]}$"))
_ELSEWHERE = f"!{_VALUE}.matches({_BEFORE} + request.namespace + {_AFTER})"
_DANGEROUS = (
    f"{_is(CONFIGURATION)} || {_is(REFERENCES)} && {_ELSEWHERE} || {_is(HOSTS)} && !({_ALIAS}) && !({_own_hosts()})"
    f" || {_is(CONFIGURED)} && {_VALUE}.matches({quoted(f'^(?:{SYNTAX})$')})"
)
_MORE = f"variables.patterns[{quoted(KNOWN_ANNOTATIONS)}]"
_UNKNOWN = (
    f"!({_KEY} in {listed(KNOWN)} || {_is(KNOWN_PREFIXES)} || {_is(CONFIGURATION)} || {_is(HOSTS)}"
    f" || {quoted(KNOWN_ANNOTATIONS)} in variables.patterns"
    f" && {_MORE}.exists(l, l.values.exists(p, {_KEY}.matches('^(?:' + p + ')$'))))"
)


def _is_dangerous(pair: tuple[str, str], review: Review) -> bool:
    key, value = pair
    elsewhere = not matches(review.request.namespace.join(_OWN_REFERENCES), value)
    names_hosts = matches(HOSTS, key) and key not in ALIASES
    return (
        matches(CONFIGURATION, key)
        or (matches(REFERENCES, key) and elsewhere)
        or (names_hosts and not _has_own_hosts(value, review))
        or (matches(CONFIGURED, key) and matches(SYNTAX, value))
    )


def _is_unknown(pair: tuple[str, str], review: Review) -> bool:
    key, _ = pair
    more = [pattern for each in review.rules.patterns.get(KNOWN_ANNOTATIONS, ()) for pattern in each.values]
    return key not in KNOWN and not any(
        matches(pattern, key) for pattern in (KNOWN_PREFIXES, CONFIGURATION, HOSTS, *more)
    )


# -- checks ---------------------------------------------------------------------------------------

_EXAMPLE = "external-dns.alpha.kubernetes.io/hostname"


def _check(
    rule: str,
    scope: CheckScope,
    fields: tuple[str, ...],
    *,
    bad: str,
    is_bad: Callable[[tuple[str, str], Review], bool],
    why: str,
    fix: str,
    key: str,
    note: str,
) -> RuleCheck:
    """Return one check of the annotations of a kind of object; see `_checks`, and `RuleCheck` for the rest."""

    def judge(pair: tuple[str, str], review: Review) -> Problem | None:
        return (
            (f"has the annotation '{pair[0]}'{why}", review.rules.refused[rule], fix) if is_bad(pair, review) else None
        )

    return RuleCheck(
        rule=rule,
        form="refused",
        scope=strings(scope, "variables.written", _written_by),
        bad=bad,
        what=f"'has the annotation \\'' + {_KEY} + '\\'{why}'",
        source=f"variables.refused[{quoted(rule)}]",
        fix=quoted(fix),
        judge=judge,
        usual=True,
        variables={"written": _written(fields)},
        example={"metadata": {"annotations": {key: "www.other.example"}}},
        note=note,
    )


def _checks(scope: CheckScope, fields: tuple[str, ...] = _HELD[:1]) -> tuple[RuleCheck, RuleCheck]:
    """Return the checks of the annotations of one kind of object.

    Args:
        scope: The object.
        fields: The paths of the fields with annotations.
    """
    return (
        _check(
            DANGEROUS,
            scope,
            fields,
            bad=_DANGEROUS,
            is_bad=_is_dangerous,
            why=", which names hosts, objects of other namespaces or raw configuration",
            fix="leave it out; hosts must fit hostnames.allowed or hostnames.domain, Secrets must be of the namespace,"
            " and settings must not contain control characters, quotes, ';', '{' or '}'",
            key=_EXAMPLE,
            note="Keys that name hosts pass if `hostnames.allowed` or `hostnames.domain` gives every host to the"
            " tenant. Keys that name Secrets or ConfigMaps pass if these are in the same namespace. Values that"
            " ingress-nginx or HAProxy writes into its configuration must not contain control characters, quotes, `;`,"
            " `{` or `}`. Only annotations that the request adds or changes count.",
        ),
        _check(
            UNKNOWN,
            scope,
            fields,
            bad=_UNKNOWN,
            is_bad=_is_unknown,
            why=", which may configure what all tenants share",
            fix="leave it out, or ask an administrator to add its key to annotations.known",
            key="example.com/unknown",
            note="Known are keys without a prefix, keys of tools such as Helm, and settings of common controllers that"
            " concern only the traffic of the object (`KNOWN` in `src/tenantry/policy/rules/annotationkeys.py`).",
        ),
    )


_OF_PODS = _check(
    DANGEROUS,
    POD_RECORD,
    _HELD[:1],
    bad=f"{_is(DNS_KEYS)} && !({_own_hosts()})",
    is_bad=lambda pair, review: matches(DNS_KEYS, pair[0]) and not _has_own_hosts(pair[1], review),
    why=", by which DNS controllers create records",
    fix="leave it out; hosts must fit hostnames.allowed or hostnames.domain",
    key=_EXAMPLE,
    note="Of pods, only the keys of ExternalDNS and of kOps' dns-controller count.",
)

CHECKS = (
    *_checks(INGRESS),
    *_checks(ROUTE),
    *(check for scope in GATEWAY_SCOPES for check in _checks(scope, _HELD)),
    *_checks(SERVICE),
    *_checks(STREAM_ROUTE),
    _OF_PODS,
)
