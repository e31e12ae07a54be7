"""Checks of pods: each tries a legitimate pod with one change (dry runs). Pure.

Source: Kubernetes, "Pod Security Standards".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.audit import kinds
from tenantry.audit.attempts import DRY_RUN, create, pod
from tenantry.audit.check import (
    STRATEGIC_PATCH,
    Attempt,
    AttemptResponse,
    AttemptsOf,
    AuditCheck,
    NotApplicable,
    Severity,
    WhenNotFound,
    WithoutTenantry,
)
from tenantry.audit.checks.table import check
from tenantry.audit.context import AuditContext
from tenantry.policy.catalog import CHECKS as RULE_CHECKS
from tenantry.policy.request import part
from tenantry.policy.rules.priorityclasses import SYSTEM_PRIORITIES
from tenantry.policy.targets.pods import PODS, SYSCTLS, VOLUMES

Attempts = Callable[[AuditContext], list[Attempt]]

SOCKET = "/run/containerd/containerd.sock"
UNKNOWN_IMAGE = "registry.invalid/tenantry/audit:latest"


def honest(context: AuditContext) -> Attempt:
    """Return the creation of a legitimate pod, which every rule should admit."""
    return create(kinds.PODS, pod(context), context.namespace, what="that is restricted")


def tried(what: str, spec: Json | None = None, container: Json | None = None, *, init: bool = True) -> Attempts:
    """Return the creation of a pod with changes; changes of a container are tried in an init container, too.

    Args:
        what: What is special about the pod.
        spec: A merge patch of its spec.
        container: A merge patch of a container.
        init: The change is valid in an init container.
    """

    def attempts(context: AuditContext) -> list[Attempt]:
        found = [create(kinds.PODS, pod(context, spec, container), context.namespace, what=what)]
        if container is not None and init:
            hidden = pod(context, spec, container, init=True)
            found.append(create(kinds.PODS, hidden, context.namespace, what=f"{what} in an init container"))
        return found

    return attempts


def both(*made: Attempts) -> Attempts:
    """Return several attempts as one."""
    return lambda context: [attempt for each in made for attempt in each(context)]


def example(rule: str, what: str, *, init: bool = True) -> Attempts:
    """Return the creation of a pod for each example that a rule declares as refused; see `policy/rules/`.

    Args:
        rule: The path of the rule, as in podSecurity.hostPath.
        what: What is special about the pod.
        init: The example is valid in an init container.
    """
    found = [each for each in RULE_CHECKS if each.rule == rule and each.scope.target == PODS.name]
    return both(*(_with(each.scope.among, dict(each.example), what, init=init) for each in found))


def _with(among: str, fragment: Json, what: str, *, init: bool) -> Attempts:
    """Return the creation of a pod with a fragment where the scope of a rule expects it."""
    match among:
        case "":
            # A fragment without a spec is about annotations, which the API server itself turns into fields.
            return tried(f"{what} (pod)", fragment["spec"]) if "spec" in fragment else lambda _: []
        case VOLUMES.among:
            return tried(what, {"volumes": [{"name": "v", **fragment}]})
        case SYSCTLS.among:
            return tried(what, {"securityContext": {"sysctls": [fragment]}})
        case _:
            return tried(what, container=fragment, init=init)


def _secured(what: str, **context: object) -> Attempts:
    return tried(what, container={"securityContext": context})


def _ephemeral(context: AuditContext) -> list[Attempt]:
    name = context.pods[0] if context.pods else context.name
    container = {"name": context.name, "image": context.image, "securityContext": {"privileged": True}}
    return [
        Attempt(
            what=f"add a privileged ephemeral container to the pod {name!r} (dry run)",
            method="PATCH",
            path=f"/api/v1/namespaces/{context.namespace}/pods/{name}/ephemeralcontainers",
            body={"spec": {"ephemeralContainers": [container]}},
            content_type=STRATEGIC_PATCH,
            query=DRY_RUN,
            # Without such a pod, the answer is 404 before any rule looks at the container.
            missing=WhenNotFound.SKIPPED,
        )
    ]


def _priorities(context: AuditContext) -> list[Attempt]:
    names = (*SYSTEM_PRIORITIES, *(context.priority_classes or ()))
    return both(*(tried(f"of priority {name}", {"priorityClassName": name}) for name in names))(context)


def _sandboxed(context: AuditContext) -> list[Attempt] | NotApplicable:
    classes = context.runtime_classes
    if classes is None:
        return NotApplicable("the administrator may not read RuntimeClasses")
    if not any(classes.values()):
        return NotApplicable(
            "the cluster has no RuntimeClass of a sandbox (gVisor, Kata): tenants share the nodes' kernel"
        )

    def judge(answer: AttemptResponse) -> str:
        name = str(part(answer.body, "spec").get("runtimeClassName", ""))
        if marks.SLICE in part(answer.body, "spec", "nodeSelector"):
            return ""  # on nodes of its own slice the tenant chooses the runtime
        return "" if classes.get(name) else f"it would run with the runtime {name or 'default'!r}"

    found = [create(kinds.PODS, pod(context), context.namespace, what="without a runtime class", judge=judge)]
    for name in sorted(name for name, is_sandbox in classes.items() if not is_sandbox):
        changed = pod(context, {"runtimeClassName": name})
        found.append(create(kinds.PODS, changed, context.namespace, what=f"of the runtime {name!r}", judge=judge))
    return found


def _check(  # noqa: PLR0917 - a row of the table below
    id_: str,
    title: str,
    severity: Severity,
    proves: str,
    fix: str,
    attempts: AttemptsOf,
    **more: Any,  # noqa: ANN401
) -> AuditCheck:
    tries = more.pop("tries", "Creates a restricted pod with this one change (dry run).")
    more = {"control": honest, "alone": WithoutTenantry.OPEN, **more}
    return check(f"POD-{id_}", title, severity, tries, proves, attempts, fix=fix, **more)


BASELINE = "Set spec.rules.podSecurity.level of the Tenant to Baseline or Restricted."
RESTRICTED = "Set spec.rules.podSecurity.level of the Tenant to Restricted."
_WINDOWS: Json = {"windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}

CHECKS: Sequence[AuditCheck] = (
    _check(
        "001",
        "Containers cannot be privileged",
        Severity.CRITICAL,
        "No container controls its node.",
        BASELINE,
        _secured("that is privileged", privileged=True, allowPrivilegeEscalation=None),
        benchmark="block_privileged_containers",
    ),
    _check(
        "002",
        "Pods cannot share the node's processes (hostPID)",
        Severity.CRITICAL,
        "No container sees or kills processes of its node.",
        BASELINE,
        tried("with hostPID", {"hostPID": True}),
        benchmark="block_use_of_host_pid",
    ),
    _check(
        "003",
        "Pods cannot share the node's memory segments (hostIPC)",
        Severity.HIGH,
        "No container reads the shared memory of others.",
        BASELINE,
        tried("with hostIPC", {"hostIPC": True}),
        benchmark="block_use_of_host_ipc",
    ),
    _check(
        "004",
        "Pods cannot share the node's network (hostNetwork)",
        Severity.CRITICAL,
        "Network policies apply to every pod, and no pod sees the node's traffic.",
        BASELINE,
        tried("with hostNetwork", {"hostNetwork": True}),
        benchmark="block_use_of_host_networking_and_ports",
    ),
    _check(
        "005",
        "Pods cannot use ports of the node (hostPort)",
        Severity.HIGH,
        "No pod takes a port of its node from others.",
        BASELINE,
        example("podSecurity.hostPorts", "with a hostPort"),
        benchmark="block_use_of_host_networking_and_ports",
    ),
    _check(
        "006",
        "Pods cannot mount the node's files (hostPath)",
        Severity.CRITICAL,
        "No container reads or writes files of its node or of other pods.",
        BASELINE,
        both(
            example("podSecurity.hostPath", "with hostPath /"),
            tried("with the runtime's socket", {"volumes": [{"name": "v", "hostPath": {"path": SOCKET}}]}),
        ),
        benchmark="block_use_of_host_path, block_use_of_bind_mounts",
    ),
    _check(
        "007",
        "Containers cannot add capabilities",
        Severity.HIGH,
        "No container mounts file systems, loads kernel modules or forges packets.",
        BASELINE,
        both(
            *(
                _secured(f"with {name}", capabilities={"add": [name], "drop": ["ALL"]})
                for name in ("NET_RAW", "NET_ADMIN", "SYS_PTRACE")
            ),
            # Kubernetes itself refuses SYS_ADMIN together with allowPrivilegeEscalation: false.
            _secured(
                "with SYS_ADMIN", capabilities={"add": ["SYS_ADMIN"], "drop": ["ALL"]}, allowPrivilegeEscalation=None
            ),
        ),
        benchmark="block_add_capabilities",
    ),
    _check(
        "008",
        "Containers cannot unmask /proc",
        Severity.HIGH,
        "No container sees the parts of /proc that runtimes hide.",
        BASELINE,
        tried("with procMount Unmasked", {"hostUsers": False}, {"securityContext": {"procMount": "Unmasked"}}),
    ),
    _check(
        "009",
        "Containers cannot disable seccomp",
        Severity.HIGH,
        "The runtime's profile filters the system calls of every container.",
        BASELINE,
        example("podSecurity.seccompUnconfined", "with seccomp Unconfined"),
    ),
    _check(
        "010",
        "Containers cannot disable AppArmor",
        Severity.MEDIUM,
        "The runtime's AppArmor profile applies to every container.",
        BASELINE,
        example("podSecurity.appArmor", "with AppArmor Unconfined"),
    ),
    _check(
        "011",
        "Containers cannot choose an SELinux type",
        Severity.MEDIUM,
        "No container chooses the label that separates it from others.",
        BASELINE,
        example("podSecurity.seLinux", "with an SELinux type"),
    ),
    _check(
        "012",
        "Pods cannot set unsafe sysctls",
        Severity.MEDIUM,
        "No pod changes its node's kernel.",
        BASELINE,
        example("podSecurity.sysctls", "with kernel.msgmax"),
    ),
    _check(
        "013",
        "Windows pods cannot run as host processes",
        Severity.HIGH,
        "No Windows pod controls its node.",
        BASELINE,
        tried("with hostProcess", {"securityContext": _WINDOWS, "hostNetwork": True}),
    ),
    _check(
        "014",
        "Probes cannot go to other hosts",
        Severity.MEDIUM,
        "No kubelet connects to addresses that the tenant chooses, such as the metadata service.",
        BASELINE,
        example("podSecurity.hostProbes", "whose probe goes to 169.254.169.254", init=False),
    ),
    _check(
        "015",
        "Processes cannot gain privileges",
        Severity.MEDIUM,
        "No process gets more rights than its parent.",
        RESTRICTED,
        _secured("with allowPrivilegeEscalation", allowPrivilegeEscalation=True),
        benchmark="block_privilege_escalation",
    ),
    _check(
        "016",
        "Containers cannot run as root",
        Severity.MEDIUM,
        "A process that breaks out of a container is not root.",
        RESTRICTED,
        both(
            tried("that may run as root", {"securityContext": {"runAsNonRoot": None, "runAsUser": None}}),
            tried("that runs as root", {"securityContext": {"runAsNonRoot": None, "runAsUser": 0}}),
            _secured("that runs as root", runAsUser=0, runAsNonRoot=False),
        ),
        benchmark="require_run_as_non_root_user",
    ),
    _check(
        "017",
        "Containers cannot keep default capabilities",
        Severity.LOW,
        "Containers have only the capabilities that they need.",
        RESTRICTED,
        _secured("that drops nothing", capabilities=None),
    ),
    _check(
        "018",
        "Pods cannot leave out a seccomp profile",
        Severity.LOW,
        "Every container has a profile, whatever the kubelet's default is.",
        RESTRICTED,
        tried("without a seccomp profile", {"securityContext": {"seccompProfile": None}}),
    ),
    _check(
        "019",
        "Pods cannot make the node mount file systems",
        Severity.MEDIUM,
        "No node connects to storage servers that the tenant chooses.",
        RESTRICTED,
        both(
            example("podSecurity.nfs", "with an NFS volume"),
            example("podSecurity.iscsi", "with an iSCSI volume"),
            example("podSecurity.flexVolume", "with a flexVolume"),
        ),
    ),
    _check(
        "020",
        "Pods cannot use images that other tenants pulled",
        Severity.MEDIUM,
        "Nodes check the credentials for an image again before they run it.",
        "Set spec.rules.images.pullPolicies of the Tenant to [Always].",
        both(
            tried("with imagePullPolicy IfNotPresent", container={"imagePullPolicy": "IfNotPresent"}),
            tried("with imagePullPolicy Never", container={"imagePullPolicy": "Never"}),
        ),
        benchmark="require_always_pull_image",
    ),
    _check(
        "021",
        "Images come from allowed registries",
        Severity.LOW,
        "Only images of known registries run.",
        "Set spec.rules.images.allowed of the Tenant to patterns of your registries.",
        tried("of an image from another registry", container={"image": UNKNOWN_IMAGE}),
    ),
    _check(
        "022",
        "Pods cannot have priority over others",
        Severity.HIGH,
        "No pod of the tenant preempts pods of others or of the cluster.",
        "Set spec.rules.priorityClasses of the Tenant: system to Refuse, and allowed.",
        _priorities,
        tries="Creates a restricted pod of each PriorityClass, those of the system among them (dry runs).",
    ),
    _check(
        "023",
        "Pods run in a sandbox",
        Severity.HIGH,
        "Pods on shared nodes have a kernel of their own, or a sandbox in front of the node's.",
        "Set spec.isolation.runtime of the Tenant to Sandboxed.",
        _sandboxed,
        tries="Creates a pod without a runtime class, and one of each that is no sandbox (dry runs).",
    ),
    _check(
        "024",
        "Cannot add privileged ephemeral containers",
        Severity.CRITICAL,
        "The rules for new pods apply to containers that are added later, too.",
        BASELINE,
        _ephemeral,
        tries="Adds a privileged ephemeral container to a pod (dry run).",
        control=None,
        alone=WithoutTenantry.DEPENDS,
    ),
)
