"""What pods may do to their node: the controls of the Pod Security Standards, each a switch.

Source: Kubernetes, "Pod Security Standards" (1.36). Stricter in one thing: a pod with a user namespace of its own
(`hostUsers: false`) is let off nothing.
"""

from __future__ import annotations

from typing import Any

from tenantry.policy.check import one_of, told_one_of
from tenantry.policy.items import ALL, SECURED, SYSCTLS_SET, VOLUMES, Item, Told, no_item, no_pod, of_each
from tenantry.policy.request import Json, Judged, part, parts, texts

SPEC = "variables.spec"
"""CEL: the spec of the pod, or of the pods that are made from a template."""

CAPABILITIES = "podSecurity.capabilities"
SYSCTLS = "podSecurity.sysctls"
VOLUME_TYPES = "podSecurity.volumeTypes"

SE_LINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")


def _context(item: Json) -> dict[str, Any]:
    """Return the security context of a container or of a pod's spec."""
    return part(item, "securityContext")


def _is_linux(spec: Json) -> bool:
    return part(spec, "os").get("name") != "windows"


def has(*path: str) -> str:
    """Return CEL that tells whether a field is there, and all those above it."""
    first, *rest = path
    parts = [f"{first}.{'.'.join(rest[: length + 1])}" for length in range(len(rest))]
    return " && ".join(f"has({part})" for part in parts)


# -- what touches the host ------------------------------------------------------------------------


def _uses_host(judged: Judged) -> bool:
    return any(judged.spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))


def _has_host_port(item: Item, _: Json) -> bool:
    return any(port.get("hostPort", 0) != 0 for port in parts(item, "ports"))


def _probes_name_host() -> str:
    """Return CEL: none of most containers' handlers is looked at, since there is none."""
    there = " || ".join(f"has(c.{field})" for field in dict.fromkeys(path.split(".")[0] for path in _HANDLERS))
    handlers = ", ".join(f"?dyn(c).?{path.replace('.', '.?')}" for path in _HANDLERS)
    named = " || ".join(f"h.?{kind}.?host.orValue('') != ''" for kind in ("httpGet", "tcpSocket"))
    return f"({there}) && [{handlers}].exists(h, {named})"


def _names_host(item: Item, _: Json) -> bool:
    for field in _HANDLERS:
        handler = part(item, *field.split("."))
        if any(part(handler, kind).get("host") for kind in ("httpGet", "tcpSocket")):
            return True
    return False


def _is_host_process(holder: Json) -> bool:
    return bool(part(_context(holder), "windowsOptions").get("hostProcess"))


def _host_process(where: str) -> str:
    options = ("securityContext", "windowsOptions", "hostProcess")
    return f"{has(where, *options)} && {where}.{'.'.join(options)}"


HOST = (
    no_item(
        SECURED,
        "podSecurity.privileged",
        bad="has(c.securityContext.privileged) && c.securityContext.privileged",
        what="is privileged",
        fix="set securityContext.privileged to false",
        is_bad=lambda c, _: bool(_context(c).get("privileged")),
    ),
    no_pod(
        "podSecurity.hostNamespaces",
        bad=" || ".join(f"has({SPEC}.{f}) && {SPEC}.{f}" for f in ("hostNetwork", "hostPID", "hostIPC")),
        what="is in a namespace of its node",
        fix="leave out hostNetwork, hostPID and hostIPC",
        is_bad=_uses_host,
    ),
    no_item(
        VOLUMES,
        "podSecurity.hostPath",
        bad="has(c.hostPath)",
        what="is a path of the node",
        fix="use another type than hostPath",
        is_bad=lambda v, _: "hostPath" in v,
    ),
    no_item(
        ALL,
        "podSecurity.hostPorts",
        bad="has(c.ports) && c.ports.exists(p, has(p.hostPort) && p.hostPort != 0)",
        what="has a port of the node",
        fix="leave out hostPort; use a Service",
        is_bad=_has_host_port,
    ),
    no_item(
        ALL,
        "podSecurity.hostProbes",
        bad=_probes_name_host(),
        what="has a probe or hook that names a host",
        fix="leave out host in httpGet and tcpSocket",
        is_bad=_names_host,
    ),
    no_pod(
        "podSecurity.hostProcess",
        bad=_host_process("variables.spec"),
        what="runs on the host",
        fix="leave out securityContext.windowsOptions.hostProcess",
        is_bad=lambda judged: _is_host_process(judged.spec),
    ),
    no_item(
        SECURED,
        "podSecurity.hostProcess",
        bad=_host_process("c"),
        what="runs on the host",
        fix="leave out securityContext.windowsOptions.hostProcess",
        is_bad=lambda c, _: _is_host_process(c),
    ),
)


# -- what confines containers ---------------------------------------------------------------------


def _se_linux(where: str) -> str:
    options = f"{where}.securityContext.seLinuxOptions"
    types = ", ".join(f"'{each}'" for each in SE_LINUX_TYPES)
    return (
        f"{has(where, 'securityContext', 'seLinuxOptions')} && (has({options}.type) && !({options}.type in [{types}])"
        f" || has({options}.user) && {options}.user != '' || has({options}.role) && {options}.role != '')"
    )


def _has_se_linux(holder: Json) -> bool:
    options = part(_context(holder), "seLinuxOptions")
    return options.get("type", "") not in SE_LINUX_TYPES or bool(options.get("user") or options.get("role"))


def _profile(where: str, field: str) -> str:
    profile = ("securityContext", field, "type")
    return f"{has(where, *profile)} && {where}.{'.'.join(profile)} == 'Unconfined'"


def _is_unconfined(holder: Json, field: str) -> bool:
    return part(_context(holder), field).get("type") == "Unconfined"


_ANNOTATIONS = "variables.pod.metadata.annotations"
_ANNOTATED = (
    f"has(variables.pod.metadata) && has({_ANNOTATIONS})"
    f" && {_ANNOTATIONS}.exists(k, k.startsWith('{APP_ARMOR}') && {_ANNOTATIONS}[k] != ''"
    f" && {_ANNOTATIONS}[k] != 'runtime/default' && !{_ANNOTATIONS}[k].startsWith('localhost/'))"
)


def _is_annotated(judged: Judged) -> bool:
    annotations: dict[str, str] = part(judged.request.object, "metadata", "annotations")
    return any(
        key.startswith(APP_ARMOR) and value not in {"", "runtime/default"} and not value.startswith("localhost/")
        for key, value in annotations.items()
    )


_SE_LINUX = "has SELinux options of its own", "leave out user and role, and types not of containers"
_APP_ARMOR = "is not confined by AppArmor", "use the profile RuntimeDefault, or none"
_SECCOMP = "is not confined by seccomp", "use the profile RuntimeDefault, or none"

CONFINED = (
    no_item(
        SECURED,
        "podSecurity.procMount",
        bad="has(c.securityContext.procMount) && c.securityContext.procMount != 'Default'",
        what="sees /proc unmasked",
        fix="leave out securityContext.procMount",
        is_bad=lambda c, _: _context(c).get("procMount", "Default") != "Default",
    ),
    no_pod(
        "podSecurity.seLinux",
        bad=_se_linux("variables.spec"),
        is_bad=lambda judged: _has_se_linux(judged.spec),
        what=_SE_LINUX[0],
        fix=_SE_LINUX[1],
    ),
    no_item(
        SECURED,
        "podSecurity.seLinux",
        bad=_se_linux("c"),
        is_bad=lambda c, _: _has_se_linux(c),
        what=_SE_LINUX[0],
        fix=_SE_LINUX[1],
    ),
    no_pod(
        "podSecurity.appArmor",
        bad=f"{_profile('variables.spec', 'appArmorProfile')} || {_ANNOTATED}",
        is_bad=lambda judged: _is_unconfined(judged.spec, "appArmorProfile") or _is_annotated(judged),
        what=_APP_ARMOR[0],
        fix=_APP_ARMOR[1],
    ),
    no_item(
        SECURED,
        "podSecurity.appArmor",
        bad=_profile("c", "appArmorProfile"),
        is_bad=lambda c, _: _is_unconfined(c, "appArmorProfile"),
        what=_APP_ARMOR[0],
        fix=_APP_ARMOR[1],
    ),
    no_pod(
        "podSecurity.seccompUnconfined",
        bad=_profile("variables.spec", "seccompProfile"),
        is_bad=lambda judged: _is_unconfined(judged.spec, "seccompProfile"),
        what=_SECCOMP[0],
        fix=_SECCOMP[1],
    ),
    no_item(
        SECURED,
        "podSecurity.seccompUnconfined",
        bad=_profile("c", "seccompProfile"),
        is_bad=lambda c, _: _is_unconfined(c, "seccompProfile"),
        what=_SECCOMP[0],
        fix=_SECCOMP[1],
    ),
)


# -- what the level Restricted has besides --------------------------------------------------------


def _escalates(item: Item, spec: Json) -> bool:
    return _is_linux(spec) and _context(item).get("allowPrivilegeEscalation") is not False


def _is_root(item: Item, spec: Json) -> bool:
    own, pod = _context(item), _context(spec)
    return own.get("runAsNonRoot", pod.get("runAsNonRoot", False)) is not True or own.get("runAsUser", 1) == 0


def _keeps_capabilities(item: Item, spec: Json) -> bool:
    return _is_linux(spec) and "ALL" not in texts(_context(item), "capabilities", "drop")


def _has_no_seccomp(item: Item, spec: Json) -> bool:
    return _is_linux(spec) and "seccompProfile" not in _context(item) and "seccompProfile" not in _context(spec)


RESTRICTED = (
    no_item(
        ALL,
        "podSecurity.privilegeEscalation",
        bad=f"variables.linux && !({has('c', 'securityContext', 'allowPrivilegeEscalation')}"
        " && !c.securityContext.allowPrivilegeEscalation)",
        what="may gain privileges",
        fix="set securityContext.allowPrivilegeEscalation to false",
        is_bad=_escalates,
        usual=True,
    ),
    no_pod(
        "podSecurity.runAsRoot",
        bad=f"{has('variables.spec', 'securityContext', 'runAsUser')} && variables.spec.securityContext.runAsUser == 0",
        what="runs as root",
        fix="set securityContext.runAsUser to another number than 0, or leave it out",
        is_bad=lambda judged: _context(judged.spec).get("runAsUser", 1) == 0,
    ),
    no_item(
        ALL,
        "podSecurity.runAsRoot",
        bad=f"!({has('c', 'securityContext', 'runAsNonRoot')} ? c.securityContext.runAsNonRoot"
        f" : variables.nonRoot) || {has('c', 'securityContext', 'runAsUser')} && c.securityContext.runAsUser == 0",
        what="may run as root",
        fix="set securityContext.runAsNonRoot to true, and runAsUser not to 0",
        is_bad=_is_root,
        usual=True,
    ),
    no_item(
        ALL,
        "podSecurity.defaultCapabilities",
        bad=f"variables.linux && !({has('c', 'securityContext', 'capabilities', 'drop')}"
        " && 'ALL' in c.securityContext.capabilities.drop)",
        what="has capabilities that it does not need",
        fix="set securityContext.capabilities.drop to [ALL]",
        is_bad=_keeps_capabilities,
        usual=True,
    ),
    no_item(
        ALL,
        "podSecurity.seccompUnset",
        bad=f"variables.linux && !variables.seccomp && !({has('c', 'securityContext', 'seccompProfile')})",
        what="has no seccomp profile",
        fix="set securityContext.seccompProfile.type to RuntimeDefault",
        is_bad=_has_no_seccomp,
        usual=True,
    ),
)


# -- lists ----------------------------------------------------------------------------------------

_ADDABLE = f"variables.allowed['{CAPABILITIES}']"
_SETTABLE = f"variables.allowed['{SYSCTLS}']"
_TYPES = f"variables.allowed['{VOLUME_TYPES}']"
_ADDED = has("c", "securityContext", "capabilities", "add")
_TYPED = f"{_TYPES}.values.exists(t, t != 'name' && t in dyn(c))"


def _capability(item: Item, judged: Judged) -> Told | None:
    listed = judged.rules.allowed[CAPABILITIES]
    for name in texts(_context(item), "capabilities", "add"):
        if name not in listed.values:
            return f"adds the capability '{name}'", listed.source, told_one_of(listed.values)
    return None


def _sysctl(item: Item, judged: Judged) -> Told | None:
    listed = judged.rules.allowed[SYSCTLS]
    if item["name"] in listed.values:
        return None
    return "is not one that may be set", listed.source, told_one_of(listed.values)


def _volume_type(item: Item, judged: Judged) -> Told | None:
    listed = judged.rules.allowed[VOLUME_TYPES]
    if any(type_ in item for type_ in listed.values if type_ != "name"):
        return None
    return "is of a type that is not allowed", listed.source, told_one_of(listed.values)


LISTS = (
    of_each(
        SECURED,
        CAPABILITIES,
        "allowed",
        bad=f"{_ADDED} && c.securityContext.capabilities.add.exists(a, !(a in {_ADDABLE}.values))",
        what=f"'adds the capability \\'' + c.securityContext.capabilities.add.filter(a, !(a in {_ADDABLE}.values))[0]"
        " + '\\''",
        source=f"{_ADDABLE}.source",
        fix=one_of(f"{_ADDABLE}.values"),
        find=_capability,
    ),
    of_each(
        SYSCTLS_SET,
        SYSCTLS,
        "allowed",
        bad=f"!(c.name in {_SETTABLE}.values)",
        what="'is not one that may be set'",
        source=f"{_SETTABLE}.source",
        fix=one_of(f"{_SETTABLE}.values"),
        find=_sysctl,
    ),
    of_each(
        VOLUMES,
        VOLUME_TYPES,
        "allowed",
        bad=f"!({_TYPED})",
        what="'is of a type that is not allowed'",
        source=f"{_TYPES}.source",
        fix=one_of(f"{_TYPES}.values"),
        find=_volume_type,
        usual=True,
    ),
)

POD_SECURITY = (*HOST, *CONFINED, *RESTRICTED, *LISTS)
