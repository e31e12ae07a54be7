"""What pods may do to their node: the controls of the Pod Security Standards, each a switch.

Source: Kubernetes, "Pod Security Standards" (1.36). Stricter in one thing: a pod with its own user namespace
(`hostUsers: false`) is not exempted from any control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tenantry.api.podsecurity import NODE_VOLUMES
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import Mend, RuleCheck, has, listed
from tenantry.policy.forms import LIST, allow, refuse
from tenantry.policy.mend import drops, into, sets
from tenantry.policy.request import Item, Json, Review, part, parts, texts
from tenantry.policy.targets.pods import CONTAINERS, POD, SECURED, SPEC, SYSCTLS, VOLUMES, context, context_of

CAPABILITIES = "podSecurity.capabilities"
SYSCTLS_ALLOWED = "podSecurity.sysctls"

SE_LINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")


def _is_linux(spec: Json) -> bool:
    return part(spec, "os").get("name") != "windows"


def _of_both(
    rule: str,
    *,
    bad: Callable[[str], str],
    is_bad: Callable[[Json], bool],
    what: str,
    fix: str,
    mend: Mend,
    example: Json,
) -> tuple[RuleCheck, RuleCheck]:
    """Return the checks of a field that pods and containers have in their securityContext.

    Args:
        rule: The path of the rule.
        bad: CEL: whether the rule refuses the pod's spec, or the container, with this name.
        is_bad: The same in Python.
        what: What is wrong.
        fix: What would pass.
        mend: Changes a container, or the spec of a pod.
        example: A securityContext that it refuses.
    """
    refused = partial(refuse, rule, what=what, fix=fix)
    return (
        refused(
            POD,
            bad=bad(SPEC),
            is_bad=lambda spec, _: is_bad(spec),
            mend=lambda pod, rules: mend(into(pod, "spec"), rules),
            example={"spec": {"securityContext": example}},
        ),
        refused(
            SECURED,
            bad=bad("c"),
            is_bad=lambda c, _: is_bad(c),
            mend=mend,
            example={"securityContext": example},
        ),
    )


# -- the host -------------------------------------------------------------------------------------


def _probes_name_host() -> str:
    """Return CEL: whether a handler names a host; most containers have no handlers, so that is asked first."""
    there = " || ".join(f"has(c.{field})" for field in dict.fromkeys(path.split(".")[0] for path in _HANDLERS))
    handlers = ", ".join(f"?dyn(c).?{path.replace('.', '.?')}" for path in _HANDLERS)
    named = " || ".join(f"h.?{kind}.?host.orValue('') != ''" for kind in ("httpGet", "tcpSocket"))
    return f"({there}) && [{handlers}].exists(h, {named})"


def _targets_of_handlers(container: Json) -> list[Item]:
    return [part(container, *path.split("."), kind) for path in _HANDLERS for kind in ("httpGet", "tcpSocket")]


def _drop_hosts(container: Item, _: Section) -> None:
    for each in _targets_of_handlers(container):
        each.pop("host", None)


def _drop_host_ports(container: Item, _: Section) -> None:
    for port in parts(container, "ports"):
        port.pop("hostPort", None)


def _host_process(where: str) -> str:
    options = ("securityContext", "windowsOptions", "hostProcess")
    return f"{has(where, *options)} && {where}.{'.'.join(options)}"


def _mounted_by_node(type_: str, example: Json) -> RuleCheck:
    """Return the check of a type of volume that kubelet mounts itself, from a server that the pod names."""
    return refuse(
        f"podSecurity.{type_}",
        VOLUMES,
        bad=f"has(c.{type_})",
        is_bad=lambda v, _: type_ in v,
        what=f"is of type {type_}, which the node itself mounts",
        fix="use a persistentVolumeClaim",
        example={type_: example},
    )


HOST = (
    refuse(
        "podSecurity.privileged",
        SECURED,
        bad="has(c.securityContext.privileged) && c.securityContext.privileged",
        is_bad=lambda c, _: bool(context(c).get("privileged")),
        what="is privileged",
        fix="set securityContext.privileged to false",
        mend=sets("securityContext.privileged", to=False),
        example={"securityContext": {"privileged": True}},
    ),
    refuse(
        "podSecurity.hostNamespaces",
        POD,
        bad=" || ".join(f"has({SPEC}.{field}) && {SPEC}.{field}" for field in _HOST_NAMESPACES),
        is_bad=lambda spec, _: any(spec.get(field) for field in _HOST_NAMESPACES),
        what="is in a namespace of its node",
        fix="leave out hostNetwork, hostPID and hostIPC",
        mend=drops(*(f"spec.{field}" for field in _HOST_NAMESPACES)),
        example={"spec": {"hostPID": True}},
    ),
    refuse(
        "podSecurity.hostPath",
        VOLUMES,
        bad="has(c.hostPath)",
        is_bad=lambda v, _: "hostPath" in v,
        what="is a path of the node",
        fix="use another type than hostPath",
        example={"hostPath": {"path": "/"}},
    ),
    _mounted_by_node("nfs", {"server": "10.0.0.1", "path": "/"}),
    _mounted_by_node("iscsi", {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:a", "lun": 0}),
    _mounted_by_node("flexVolume", {"driver": "example.com/driver"}),
    refuse(
        "podSecurity.nodeVolumes",
        VOLUMES,
        bad=f"dyn(c).exists(k, k in {listed(NODE_VOLUMES)})",
        is_bad=lambda volume, _: any(each in volume for each in NODE_VOLUMES),
        what="is of a type that the node itself attaches from elsewhere",
        fix="use a persistentVolumeClaim",
        example={"rbd": {"monitors": ["10.0.0.1:6789"], "image": "i"}},
    ),
    refuse(
        "podSecurity.hostPorts",
        CONTAINERS,
        bad="has(c.ports) && c.ports.exists(p, has(p.hostPort) && p.hostPort != 0)",
        is_bad=lambda c, _: any(port.get("hostPort", 0) != 0 for port in parts(c, "ports")),
        what="has a port of the node",
        fix="leave out hostPort; use a Service",
        mend=_drop_host_ports,
        example={"ports": [{"containerPort": 80, "hostPort": 80}]},
    ),
    refuse(
        "podSecurity.hostProbes",
        CONTAINERS,
        bad=_probes_name_host(),
        is_bad=lambda c, _: any(each.get("host") for each in _targets_of_handlers(c)),
        what="has a probe or hook that names a host",
        fix="leave out host in httpGet and tcpSocket",
        mend=_drop_hosts,
        example={"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}},
    ),
    *_of_both(
        "podSecurity.hostProcess",
        bad=_host_process,
        is_bad=lambda holder: bool(part(context(holder), "windowsOptions").get("hostProcess")),
        what="runs on the host",
        fix="leave out securityContext.windowsOptions.hostProcess",
        mend=drops("securityContext.windowsOptions.hostProcess"),
        example={"windowsOptions": {"hostProcess": True}},
    ),
)


# -- confinement ----------------------------------------------------------------------------------


def _se_linux(where: str) -> str:
    options = f"{where}.securityContext.seLinuxOptions"
    return (
        f"{has(where, 'securityContext', 'seLinuxOptions')}"
        f" && (has({options}.type) && !({options}.type in {listed(SE_LINUX_TYPES)})"
        f" || has({options}.user) && {options}.user != '' || has({options}.role) && {options}.role != '')"
    )


def _has_se_linux(holder: Json) -> bool:
    options = part(context(holder), "seLinuxOptions")
    return options.get("type", "") not in SE_LINUX_TYPES or bool(options.get("user") or options.get("role"))


def _drop_se_linux(holder: Item, _: Section) -> None:
    options = part(holder, "securityContext", "seLinuxOptions")
    options.pop("user", None)
    options.pop("role", None)
    if options.get("type", "") not in SE_LINUX_TYPES:
        options.pop("type")


def _profile(field: str) -> Callable[[str], str]:
    path = ("securityContext", field, "type")
    return lambda where: f"{has(where, *path)} && {where}.{'.'.join(path)} == 'Unconfined'"


def _is_unconfined(field: str) -> Callable[[Json], bool]:
    return lambda holder: part(context(holder), field).get("type") == "Unconfined"


def _confines(field: str) -> Mend:
    return sets(f"securityContext.{field}", to={"type": "RuntimeDefault"})


_ANNOTATIONS = "variables.pod.metadata.annotations"
_ANNOTATED = (
    f"has(variables.pod.metadata) && has({_ANNOTATIONS})"
    f" && {_ANNOTATIONS}.exists(k, k.startsWith('{APP_ARMOR}') && {_ANNOTATIONS}[k] != ''"
    f" && {_ANNOTATIONS}[k] != 'runtime/default' && !{_ANNOTATIONS}[k].startsWith('localhost/'))"
)


def _annotated(pod: Json) -> list[str]:
    """Return the annotations by which older manifests leave a container unconfined by AppArmor."""
    annotations: dict[str, str] = part(pod, "metadata", "annotations")
    return [
        key
        for key, value in annotations.items()
        if key.startswith(APP_ARMOR) and value not in {"", "runtime/default"} and not value.startswith("localhost/")
    ]


def _confine_pod(pod: Item, rules: Section) -> None:
    for key in _annotated(pod):
        pod["metadata"]["annotations"][key] = "runtime/default"
    if _is_unconfined("appArmorProfile")(part(pod, "spec")):
        _confines("appArmorProfile")(pod["spec"], rules)


_APP_ARMOR = partial(
    refuse,
    "podSecurity.appArmor",
    what="is not confined by AppArmor",
    fix="use the profile RuntimeDefault, or none",
)

CONFINED = (
    refuse(
        "podSecurity.procMount",
        SECURED,
        bad="has(c.securityContext.procMount) && c.securityContext.procMount != 'Default'",
        is_bad=lambda c, _: context(c).get("procMount", "Default") != "Default",
        what="sees /proc unmasked",
        fix="leave out securityContext.procMount",
        mend=drops("securityContext.procMount"),
        example={"securityContext": {"procMount": "Unmasked"}},
    ),
    *_of_both(
        "podSecurity.seLinux",
        bad=_se_linux,
        is_bad=_has_se_linux,
        what="has SELinux options of its own",
        fix="leave out user and role, and types not of containers",
        mend=_drop_se_linux,
        example={"seLinuxOptions": {"type": "spc_t"}},
    ),
    _APP_ARMOR(
        POD,
        bad=f"{_profile('appArmorProfile')(SPEC)} || {_ANNOTATED}",
        is_bad=lambda spec, review: _is_unconfined("appArmorProfile")(spec) or bool(_annotated(review.request.object)),
        mend=_confine_pod,
        example={"metadata": {"annotations": {f"{APP_ARMOR}c": "unconfined"}}},
    ),
    _APP_ARMOR(
        SECURED,
        bad=_profile("appArmorProfile")("c"),
        is_bad=lambda c, _: _is_unconfined("appArmorProfile")(c),
        mend=_confines("appArmorProfile"),
        example={"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    ),
    *_of_both(
        "podSecurity.seccompUnconfined",
        bad=_profile("seccompProfile"),
        is_bad=_is_unconfined("seccompProfile"),
        what="is not confined by seccomp",
        fix="use the profile RuntimeDefault, or none",
        mend=_confines("seccompProfile"),
        example={"seccompProfile": {"type": "Unconfined"}},
    ),
)


# -- the level Restricted -------------------------------------------------------------------------


def _is_root(container: Item, review: Review) -> bool:
    own, pod = context(container), context(review.spec)
    return own.get("runAsNonRoot", pod.get("runAsNonRoot", False)) is not True or own.get("runAsUser", 1) == 0


def _no_root(holder: Item, _: Section) -> None:
    if context_of(holder).get("runAsUser") == 0:
        context_of(holder).pop("runAsUser")


def _not_as_root(container: Item, rules: Section) -> None:
    _no_root(container, rules)
    context_of(container)["runAsNonRoot"] = True


def _drop_all(container: Item, _: Section) -> None:
    capabilities = into(container, "securityContext", "capabilities")
    capabilities["drop"] = [*texts(capabilities, "drop"), "ALL"]


RESTRICTED = (
    refuse(
        "podSecurity.privilegeEscalation",
        CONTAINERS,
        bad=f"variables.linux && !({has('c', 'securityContext', 'allowPrivilegeEscalation')}"
        " && !c.securityContext.allowPrivilegeEscalation)",
        is_bad=lambda c, review: _is_linux(review.spec) and context(c).get("allowPrivilegeEscalation") is not False,
        what="may gain privileges",
        fix="set securityContext.allowPrivilegeEscalation to false",
        mend=sets("securityContext.allowPrivilegeEscalation", to=False),
        example={},
        usual=True,
    ),
    refuse(
        "podSecurity.runAsRoot",
        POD,
        bad=f"{has(SPEC, 'securityContext', 'runAsUser')} && {SPEC}.securityContext.runAsUser == 0",
        is_bad=lambda spec, _: context(spec).get("runAsUser", 1) == 0,
        what="runs as root",
        fix="set securityContext.runAsUser to another number than 0, or leave it out",
        mend=lambda pod, rules: _no_root(into(pod, "spec"), rules),
        example={"spec": {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}},
    ),
    refuse(
        "podSecurity.runAsRoot",
        CONTAINERS,
        bad=f"!({has('c', 'securityContext', 'runAsNonRoot')} ? c.securityContext.runAsNonRoot"
        f" : variables.nonRoot) || {has('c', 'securityContext', 'runAsUser')} && c.securityContext.runAsUser == 0",
        is_bad=_is_root,
        what="may run as root",
        fix="set securityContext.runAsNonRoot to true, and runAsUser not to 0",
        mend=_not_as_root,
        example={},
        usual=True,
    ),
    refuse(
        "podSecurity.defaultCapabilities",
        CONTAINERS,
        bad=f"variables.linux && !({has('c', 'securityContext', 'capabilities', 'drop')}"
        " && 'ALL' in c.securityContext.capabilities.drop)",
        is_bad=lambda c, review: _is_linux(review.spec) and "ALL" not in texts(context(c), "capabilities", "drop"),
        what="has capabilities that it does not need",
        fix="set securityContext.capabilities.drop to [ALL]",
        mend=_drop_all,
        example={},
        usual=True,
    ),
    refuse(
        "podSecurity.seccompUnset",
        CONTAINERS,
        bad=f"variables.linux && !variables.seccomp && !({has('c', 'securityContext', 'seccompProfile')})",
        is_bad=lambda c, review: (
            _is_linux(review.spec)
            and "seccompProfile" not in context(c)
            and "seccompProfile" not in context(review.spec)
        ),
        what="has no seccomp profile",
        fix="set securityContext.seccompProfile.type to RuntimeDefault",
        mend=_confines("seccompProfile"),
        example={},
        usual=True,
    ),
)


# -- lists ----------------------------------------------------------------------------------------

_ADDED = has("c", "securityContext", "capabilities", "add")
_ADDS = "c.securityContext.capabilities.add"


def _capability(container: Item, allowed: Sequence[str], _: Review) -> str | None:
    return next((name for name in texts(context(container), "capabilities", "add") if name not in allowed), None)


def _add_fewer(container: Item, rules: Section) -> None:
    capabilities = into(container, "securityContext", "capabilities")
    allowed = rules.allowed[CAPABILITIES].values
    capabilities["add"] = [each for each in texts(capabilities, "add") if each in allowed]


def _set_fewer(pod: Item, rules: Section) -> None:
    settings, allowed = context_of(into(pod, "spec")), rules.allowed[SYSCTLS_ALLOWED].values
    settings["sysctls"] = [each for each in parts(settings, "sysctls") if each.get("name") in allowed]


LISTS = (
    allow(
        CAPABILITIES,
        SECURED,
        bad=f"{_ADDED} && {_ADDS}.exists(a, !(a in {LIST}))",
        find=_capability,
        what="adds the capability",
        value=f"{_ADDS}.filter(a, !(a in {LIST}))[0]",
        mend=_add_fewer,
        example={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        usual=False,
    ),
    allow(
        SYSCTLS_ALLOWED,
        SYSCTLS,
        bad=f"!(c.name in {LIST})",
        find=lambda sysctl, allowed, _: None if sysctl["name"] in allowed else "",
        what="is not one that may be set",
        value="",
        mend=_set_fewer,
        example={"name": "kernel.msgmax", "value": "1"},
        usual=False,
    ),
    allow(
        "podSecurity.csiDrivers",
        VOLUMES,
        bad=f"has(c.csi) && !(c.csi.driver in {LIST})",
        find=lambda volume, allowed, _: (
            driver if (driver := part(volume, "csi").get("driver")) is not None and driver not in allowed else None
        ),
        what="is inline, of the CSI driver",
        value="c.csi.driver",
        example={"csi": {"driver": "smb.csi.k8s.io"}},
        given=["secrets-store.csi.k8s.io"],
        usual=False,
        note="Attributes of an inline volume name any server or share. A claim has those of its StorageClass.",
    ),
    allow(
        "podSecurity.volumeTypes",
        VOLUMES,
        # Every volume has a name, which is a field beside those of the types.
        bad=f"!(dyn(c).exists(k, k != 'name' && k in {LIST}))",
        find=lambda volume, allowed, _: None if any(t in volume for t in allowed if t != "name") else "",
        what="is of a type that is not allowed",
        value="",
        example={"emptyDir": {}},
        note="A list without `projected` refuses pods that mount a token of their ServiceAccount.",
    ),
)

CHECKS = (*HOST, *CONFINED, *RESTRICTED, *LISTS)
