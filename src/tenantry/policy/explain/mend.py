"""A manifest made to keep the rules: what is refused is left out, or set to what is asked for. Pure.

What only its author can know (another image, another host) is left as it is.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tenantry.api.tenancyrules import Section
from tenantry.policy.explain.parts import CLAIMS, PODS, Part, at
from tenantry.policy.podsecurity import APP_ARMOR, SE_LINUX_TYPES
from tenantry.policy.request import Finding, part, parts, texts
from tenantry.policy.resources import UNBOUNDED
from tenantry.policy.scheduling import ALWAYS_TOLERATED, neighbours
from tenantry.policy.storage import CHOSEN_NODE
from tenantry.world.quantity import parse
from tenantry.world.rules import covers

Json = dict[str, Any]
Mend = Callable[[Json, Section], None]

_NAMED = re.compile(r"(?P<noun>container|volume|sysctl) '(?P<name>.*)'", re.DOTALL)
_LISTS = {
    "container": ("containers", "initContainers", "ephemeralContainers"),
    "volume": ("volumes",),
    "sysctl": (),
}
_HANDLERS = (
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def mended(manifest: Json, found: Sequence[tuple[Part, Finding]], rules: Section) -> Json:
    """Return a manifest that keeps more of the rules; the same where nothing can be told.

    Args:
        manifest: As its author wrote it.
        found: What the rules have against its parts.
        rules: Those that are enforced.
    """
    out = copy.deepcopy(manifest)
    for each, finding in found:
        value = at(out, each.path)
        if value is None:
            continue
        if each.resource == PODS:
            _mend_pod(value, finding, rules)
        elif each.resource == CLAIMS:
            _mend_claim(value, finding, rules)
        elif each.resource.plural == "services":
            _mend_service(value, finding, rules)
        elif finding.rule in _MARKS:
            _mend_marks(value, finding)
        elif finding.rule in _CLASSES:
            _mend_class(value, finding.rule, rules)
    return out


def _context(holder: Json) -> Json:
    return _into(holder, "securityContext")


def _into(holder: Json, *path: str) -> Json:
    """Return the object at a path, made where it is not there."""
    for step in path:
        if not isinstance(holder.get(step), dict):
            holder[step] = {}
        holder = holder[step]
    return holder


# -- pods -----------------------------------------------------------------------------------------


def _mend_pod(pod: Json, finding: Finding, rules: Section) -> None:
    spec = _into(pod, "spec")
    named = _NAMED.fullmatch(finding.path)
    if named is None:
        whole = _OF_PODS.get(finding.rule)
        if whole is not None:
            whole(spec, rules)
        if finding.rule == "podSecurity.appArmor":
            _confine_annotations(pod)
        return
    if named["noun"] == "sysctl":
        settings = _context(spec)
        settings["sysctls"] = [each for each in parts(settings, "sysctls") if each.get("name") != named["name"]]
        return
    mend = _OF_ITEMS.get((named["noun"], finding.rule))
    for item in _items(spec, named["noun"], named["name"]) if mend is not None else ():
        mend(item, rules)  # pyright: ignore[reportOptionalCall] - there is none to go through without it


def _items(spec: Json, noun: str, name: str) -> Iterator[Json]:
    for field in _LISTS[noun]:
        yield from (each for each in parts(spec, field) if each.get("name") == name)


def _sets(*path: str, to: object) -> Mend:
    def mend(holder: Json, _: Section) -> None:
        _into(holder, *path[:-1])[path[-1]] = copy.deepcopy(to)

    return mend


def _drops(*paths: tuple[str, ...]) -> Mend:
    def mend(holder: Json, _: Section) -> None:
        for path in paths:
            found = at(holder, path[:-1])
            if found is not None:
                found.pop(path[-1], None)

    return mend


def _drop_host_ports(container: Json, _: Section) -> None:
    for port in parts(container, "ports"):
        port.pop("hostPort", None)


def _drop_hosts(container: Json, _: Section) -> None:
    for path in _HANDLERS:
        for kind in ("httpGet", "tcpSocket"):
            part(container, *path, kind).pop("host", None)


def _drop_se_linux(holder: Json, _: Section) -> None:
    options = part(holder, "securityContext", "seLinuxOptions")
    options.pop("user", None)
    options.pop("role", None)
    if options.get("type", "") not in SE_LINUX_TYPES:
        options.pop("type")


def _confine_annotations(pod: Json) -> None:
    annotations = part(pod, "metadata", "annotations")
    for key in [key for key in annotations if key.startswith(APP_ARMOR)]:
        if annotations[key] not in {"", "runtime/default"} and not annotations[key].startswith("localhost/"):
            annotations[key] = "runtime/default"


def _no_root(holder: Json, _: Section) -> None:
    context = _context(holder)
    if context.get("runAsUser") == 0:
        context.pop("runAsUser")


def _not_as_root(container: Json, rules: Section) -> None:
    _no_root(container, rules)
    _context(container)["runAsNonRoot"] = True


def _drop_all(container: Json, _: Section) -> None:
    capabilities = _into(container, "securityContext", "capabilities")
    capabilities["drop"] = [*texts(capabilities, "drop"), "ALL"]


def _add_fewer(container: Json, rules: Section) -> None:
    allowed = rules.allowed["podSecurity.capabilities"].values
    capabilities = _into(container, "securityContext", "capabilities")
    capabilities["add"] = [each for each in texts(capabilities, "add") if each in allowed]


def _pull(holder: Json, rules: Section) -> None:
    policies = rules.allowed["images.pullPolicies"].values
    if policies:
        holder["imagePullPolicy"] = policies[0]


def _pull_volume(holder: Json, rules: Section) -> None:
    policies = rules.allowed["images.pullPolicies"].values
    if policies:
        _into(holder, "image")["pullPolicy"] = policies[0]


def _class(field: str, rule: str) -> Mend:
    def mend(spec: Json, rules: Section) -> None:
        values = rules.allowed[rule].values
        if not spec.pop(field, None) and values:
            # The cluster's default is not among them.
            spec[field] = values[0]

    return mend


def _look_nowhere_else(spec: Json, _: Section) -> None:
    for term in neighbours(spec):
        # Then it means the namespace of the pod.
        term.pop("namespaces", None)
        term.pop("namespaceSelector", None)


def _tolerate_less(spec: Json, rules: Section) -> None:
    allowed = (*rules.allowed["scheduling.tolerations"].values, *ALWAYS_TOLERATED)
    spec["tolerations"] = [each for each in parts(spec, "tolerations") if each.get("key", "") in allowed]


def _select_less(spec: Json, rules: Section) -> None:
    allowed = rules.allowed["scheduling.nodeSelectors"].values
    if "nodeSelector" in spec:
        selector = part(spec, "nodeSelector")
        spec["nodeSelector"] = {key: value for key, value in selector.items() if covers(allowed, f"{key}={value}")}
    affinity = part(spec, "affinity", "nodeAffinity")
    required = part(affinity, _REQUIRED)
    terms = [_term(each, allowed) for each in parts(required, "nodeSelectorTerms")]
    required["nodeSelectorTerms"] = [each for each in terms if each]
    if not required["nodeSelectorTerms"]:
        affinity.pop(_REQUIRED, None)
    if _PREFERRED in affinity:
        wishes = [{**each, "preference": _term(part(each, "preference"), allowed)} for each in affinity[_PREFERRED]]
        affinity[_PREFERRED] = [each for each in wishes if each["preference"]]


def _term(term: Json, allowed: Sequence[str]) -> Json:
    def passes(each: Mapping[str, Any]) -> bool:
        values = texts(each, "values")
        named = each.get("operator") == "In" and all(f"{each['key']}={value}" in allowed for value in values)
        return each["key"] in allowed or named

    kept = [each for each in parts(term, "matchExpressions") if passes(each)]
    fields = [each for each in parts(term, "matchFields") if each["key"] in allowed]
    return {k: v for k, v in {"matchExpressions": kept, "matchFields": fields}.items() if v}


def _use_less(container: Json, rules: Section) -> None:
    limits = _into(container, "resources", "limits")
    requests = _into(container, "resources", "requests")
    for resource, bound in rules.maxima.items():
        most = parse(bound.value)
        if resource in limits or resource in UNBOUNDED:
            amount = limits.get(resource)
            limits[resource] = amount if amount is not None and parse(amount) <= most else bound.value
        if resource in requests and parse(requests[resource]) > most:
            requests[resource] = bound.value


def _limit(container: Json, rules: Section) -> None:
    limits = _into(container, "resources", "limits")
    requests = part(container, "resources", "requests")
    for resource in rules.required:
        known = requests.get(resource, rules.maxima[resource].value if resource in rules.maxima else None)
        if known is not None:
            limits.setdefault(resource, known)


_RUNTIME_DEFAULT = {"type": "RuntimeDefault"}
_APP_ARMOR = _sets("securityContext", "appArmorProfile", to=_RUNTIME_DEFAULT)
_SECCOMP = _sets("securityContext", "seccompProfile", to=_RUNTIME_DEFAULT)
_HOST_PROCESS = _drops(("securityContext", "windowsOptions", "hostProcess"))

_OF_PODS: Mapping[str, Mend] = {
    "podSecurity.hostNamespaces": _drops(("hostNetwork",), ("hostPID",), ("hostIPC",)),
    "podSecurity.hostProcess": _HOST_PROCESS,
    "podSecurity.seLinux": _drop_se_linux,
    "podSecurity.appArmor": lambda spec, rules: (
        _APP_ARMOR(spec, rules)
        if part(spec, "securityContext", "appArmorProfile").get("type") == "Unconfined"
        else None
    ),
    "podSecurity.seccompUnconfined": _SECCOMP,
    "podSecurity.runAsRoot": _no_root,
    "isolation.runtime": _drops(("runtimeClassName",)),
    "scheduling.nodeName": _drops(("nodeName",)),
    "scheduling.otherTenants": _look_nowhere_else,
    "runtimeClasses.allowed": _class("runtimeClassName", "runtimeClasses.allowed"),
    "priorityClasses.allowed": _class("priorityClassName", "priorityClasses.allowed"),
    "scheduling.tolerations": _tolerate_less,
    "scheduling.nodeSelectors": _select_less,
}

_OF_ITEMS: Mapping[tuple[str, str], Mend] = {
    ("container", "podSecurity.privileged"): _sets("securityContext", "privileged", to=False),
    ("container", "podSecurity.hostPorts"): _drop_host_ports,
    ("container", "podSecurity.hostProbes"): _drop_hosts,
    ("container", "podSecurity.hostProcess"): _HOST_PROCESS,
    ("container", "podSecurity.procMount"): _drops(("securityContext", "procMount")),
    ("container", "podSecurity.seLinux"): _drop_se_linux,
    ("container", "podSecurity.appArmor"): _APP_ARMOR,
    ("container", "podSecurity.seccompUnconfined"): _SECCOMP,
    ("container", "podSecurity.seccompUnset"): _SECCOMP,
    ("container", "podSecurity.privilegeEscalation"): _sets("securityContext", "allowPrivilegeEscalation", to=False),
    ("container", "podSecurity.runAsRoot"): _not_as_root,
    ("container", "podSecurity.defaultCapabilities"): _drop_all,
    ("container", "podSecurity.capabilities"): _add_fewer,
    ("container", "images.pullPolicies"): _pull,
    ("volume", "images.pullPolicies"): _pull_volume,
    ("container", "containers.max"): _use_less,
    ("container", "containers.requiredLimits"): _limit,
}

# -- others ---------------------------------------------------------------------------------------

_MARKS = {"namespaces.labels": "labels", "namespaces.annotations": "annotations"}
_CLASSES = {"hostnames.ingressClasses": "ingressClassName", "hostnames.gatewayClasses": "gatewayClassName"}


def _mend_class(value: Json, rule: str, rules: Section) -> None:
    values = rules.allowed[rule].values
    if values:
        part(value, "metadata", "annotations").pop("kubernetes.io/ingress.class", None)
        _into(value, "spec")[_CLASSES[rule]] = values[0]


def _mend_marks(subnamespace: Json, finding: Finding) -> None:
    _, key, _ = finding.what.split("'")
    part(subnamespace, "spec", _MARKS[finding.rule]).pop(key, None)


def _mend_claim(claim: Json, finding: Finding, rules: Section) -> None:
    spec = _into(claim, "spec")
    if finding.rule == "storageClasses.allowed":
        values = rules.allowed[finding.rule].values
        chosen = rules.chosen.get("storageClasses.default")
        if values:
            spec["storageClassName"] = chosen.value if chosen is not None and chosen.value in values else values[0]
    elif finding.rule == "storageClasses.existingVolumes":
        for field in ("volumeName", "selector"):
            spec.pop(field, None)
        if spec.get("storageClassName") == "":
            spec.pop("storageClassName")
        # From its own namespace it would be other data.
    elif finding.rule == "scheduling.nodeName":
        part(claim, "metadata", "annotations").pop(CHOSEN_NODE, None)


def _mend_service(service: Json, finding: Finding, rules: Section) -> None:
    spec = _into(service, "spec")
    if finding.rule == "services.types" and rules.allowed[finding.rule].values:
        spec["type"] = rules.allowed[finding.rule].values[0]
        balanced = spec["type"] == "LoadBalancer"
        for field in () if balanced else ("loadBalancerIP", "loadBalancerClass", "loadBalancerSourceRanges"):
            spec.pop(field, None)
        if spec["type"] == "ClusterIP":
            for field in ("externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort"):
                spec.pop(field, None)
            for port in parts(spec, "ports"):
                port.pop("nodePort", None)
    elif finding.rule == "services.externalIPs":
        spec.pop("externalIPs", None)
    elif finding.rule == "services.loadBalancerSourceRanges":
        allowed = rules.allowed[finding.rule].values
        kept = [each for each in texts(spec, "loadBalancerSourceRanges") if covers(allowed, each)]
        spec["loadBalancerSourceRanges"] = kept or list(allowed)
