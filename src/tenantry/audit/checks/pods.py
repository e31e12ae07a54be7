"""Checks of pods: each tries an honest pod with one change (dry runs). Pure.

Source: Kubernetes, "Pod Security Standards".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api import marks
from tenantry.audit import kinds
from tenantry.audit.attempts import create, pod, table
from tenantry.audit.check import (
    STRATEGIC_PATCH,
    Alone,
    Answer,
    Area,
    Attempt,
    Attempts,
    Check,
    Missing,
    Nothing,
    Seen,
    Severity,
)
from tenantry.audit.place import Place
from tenantry.policy.rules.priorityclasses import SYSTEM_PRIORITIES

Json = dict[str, Any]

FOREIGN_IMAGE = "registry.invalid/tenantry/audit:latest"


def honest(place: Place) -> Attempt:
    """Return the creation of a pod that nothing should be against."""
    return create(kinds.PODS, pod(place), place.namespace, what="that is restricted")


def tried(what: str, spec: Json | None = None, container: Json | None = None, *, init: bool = True) -> Attempts:
    """Return the creation of a pod with changes; those of a container are tried in an init container too.

    Args:
        what: What is special about it.
        spec: A merge patch of its spec.
        container: A merge patch of a container.
        init: An init container may have it.
    """

    def attempts(place: Place) -> list[Attempt]:
        found = [create(kinds.PODS, pod(place, spec, container), place.namespace, what=what)]
        if container is not None and init:
            hidden = pod(place, spec, container, init=True)
            found.append(create(kinds.PODS, hidden, place.namespace, what=f"{what} in an init container"))
        return found

    return attempts


def both(*made: Attempts) -> Attempts:
    """Return the attempts of several."""

    def attempts(place: Place) -> list[Attempt] | Nothing | Seen:
        found: list[Attempt] = []
        for each in made:
            some = each(place)
            if isinstance(some, Nothing | Seen):
                return some
            found += some
        return found

    return attempts


def _secured(**context: object) -> Json:
    return {"securityContext": context}


def _volume(**source: object) -> Json:
    return {"volumes": [{"name": "v", **source}]}


def _ephemeral(place: Place) -> list[Attempt] | Nothing:
    name = place.pods[0] if place.pods else place.name
    container = {"name": place.name, "image": place.image, "securityContext": {"privileged": True}}
    return [
        Attempt(
            what=f"add a privileged ephemeral container to the pod {name!r} (dry run)",
            method="PATCH",
            path=f"/api/v1/namespaces/{place.namespace}/pods/{name}/ephemeralcontainers",
            body={"spec": {"ephemeralContainers": [container]}},
            content_type=STRATEGIC_PATCH,
            query={"dryRun": "All"},
            missing=Missing.SKIPPED,
        )
    ]


def _priorities(place: Place) -> list[Attempt]:
    names = (*SYSTEM_PRIORITIES, *(place.priority_classes or ()))
    return [
        create(kinds.PODS, pod(place, {"priorityClassName": name}), place.namespace, what=f"of priority {name}")
        for name in names
    ]


def _sandboxed(place: Place) -> list[Attempt] | Nothing:
    classes = place.runtime_classes
    if classes is None:
        return Nothing("whoever asked may not read RuntimeClasses")
    if not any(classes.values()):
        return Nothing("the cluster has no RuntimeClass of a sandbox (gVisor, Kata): tenants share the nodes' kernel")

    def judge(answer: Answer) -> str:
        name = str(table(answer.body, "spec").get("runtimeClassName", ""))
        if marks.SLICE in table(answer.body, "spec", "nodeSelector"):
            return ""  # on nodes of its own a tenant chooses
        return "" if classes.get(name) else f"it would run with the runtime {name or 'default'!r}"

    found = [create(kinds.PODS, pod(place), place.namespace, what="that names no runtime", judge=judge)]
    for name in sorted(name for name, is_sandbox in classes.items() if not is_sandbox):
        changed = pod(place, {"runtimeClassName": name})
        found.append(create(kinds.PODS, changed, place.namespace, what=f"of the runtime {name!r}", judge=judge))
    return found


def _check(  # noqa: PLR0917 - a row of the table below
    id_: str,
    title: str,
    severity: Severity,
    proves: str,
    fix: str,
    attempts: Attempts,
    **more: Any,  # noqa: ANN401
) -> Check:
    facts: Json = {"tries": "Creates a restricted pod with this one change (dry run).", "control": honest, **more}
    return Check(
        id=f"TNT-POD-{id_}",
        title=title,
        area=Area.PODS,
        severity=severity,
        proves=proves,
        fix=fix,
        attempts=attempts,
        alone=facts.pop("alone", Alone.OPEN),
        **facts,
    )


BASELINE = "Set spec.rules.podSecurity.level of the Tenant to Baseline or Restricted."
RESTRICTED = "Set spec.rules.podSecurity.level of the Tenant to Restricted."
_PROBE: Json = {"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}
_ON_WINDOWS: Json = {
    "securityContext": {"windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}
}

CHECKS: Sequence[Check] = (
    _check(
        "001",
        "Privileged containers",
        Severity.CRITICAL,
        "No container has its node.",
        BASELINE,
        tried("that is privileged", container=_secured(privileged=True, allowPrivilegeEscalation=None)),
        benchmark="block_privileged_containers",
    ),
    _check(
        "002",
        "The node's processes (hostPID)",
        Severity.CRITICAL,
        "No container sees or kills what runs on its node.",
        BASELINE,
        tried("with hostPID", {"hostPID": True}),
        benchmark="block_use_of_host_pid",
    ),
    _check(
        "003",
        "The node's memory segments (hostIPC)",
        Severity.HIGH,
        "No container reads the shared memory of others.",
        BASELINE,
        tried("with hostIPC", {"hostIPC": True}),
        benchmark="block_use_of_host_ipc",
    ),
    _check(
        "004",
        "The node's network (hostNetwork)",
        Severity.CRITICAL,
        "No pod is outside of all network policies, nor hears the node's traffic.",
        BASELINE,
        tried("with hostNetwork", {"hostNetwork": True}),
        benchmark="block_use_of_host_networking_and_ports",
    ),
    _check(
        "005",
        "Ports of the node (hostPort)",
        Severity.HIGH,
        "No pod takes a port of its node from others.",
        BASELINE,
        tried("with a hostPort", container={"ports": [{"containerPort": 8080, "hostPort": 8080}]}),
        benchmark="block_use_of_host_networking_and_ports",
    ),
    _check(
        "006",
        "The node's files (hostPath)",
        Severity.CRITICAL,
        "No container reads or writes files of its node or of other pods.",
        BASELINE,
        both(
            tried("with hostPath /", _volume(hostPath={"path": "/"})),
            tried("with the runtime's socket", _volume(hostPath={"path": "/run/containerd/containerd.sock"})),
        ),
        benchmark="block_use_of_host_path, block_use_of_bind_mounts",
    ),
    _check(
        "007",
        "Added capabilities",
        Severity.HIGH,
        "No container mounts file systems, loads modules or forges packets.",
        BASELINE,
        both(
            *(
                tried(f"with {name}", container=_secured(capabilities={"add": [name], "drop": ["ALL"]}))
                for name in ("NET_RAW", "NET_ADMIN", "SYS_PTRACE")
            ),
            # Kubernetes itself refuses it beside allowPrivilegeEscalation: false.
            tried(
                "with SYS_ADMIN",
                container=_secured(capabilities={"add": ["SYS_ADMIN"]}, allowPrivilegeEscalation=None),
            ),
        ),
        benchmark="block_add_capabilities",
    ),
    _check(
        "008",
        "Unmasked /proc",
        Severity.HIGH,
        "No container sees the parts of /proc that runtimes hide.",
        BASELINE,
        tried("with procMount Unmasked", {"hostUsers": False}, _secured(procMount="Unmasked")),
    ),
    _check(
        "009",
        "Unconfined system calls (seccomp)",
        Severity.HIGH,
        "No container calls what the runtime's profile keeps from it.",
        BASELINE,
        tried("with seccomp Unconfined", container=_secured(seccompProfile={"type": "Unconfined"})),
    ),
    _check(
        "010",
        "Unconfined AppArmor",
        Severity.MEDIUM,
        "No container leaves the runtime's profile.",
        BASELINE,
        tried("with AppArmor Unconfined", container=_secured(appArmorProfile={"type": "Unconfined"})),
    ),
    _check(
        "011",
        "SELinux of another role",
        Severity.MEDIUM,
        "No container chooses the label that separates it from others.",
        BASELINE,
        tried("with an SELinux type", container=_secured(seLinuxOptions={"type": "spc_t"})),
    ),
    _check(
        "012",
        "Unsafe sysctls",
        Severity.MEDIUM,
        "No pod changes its node's kernel.",
        BASELINE,
        tried("with kernel.msgmax", _secured(sysctls=[{"name": "kernel.msgmax", "value": "65536"}])),
    ),
    _check(
        "013",
        "Windows processes on the host",
        Severity.HIGH,
        "No Windows pod has its node.",
        BASELINE,
        tried("with hostProcess", {**_ON_WINDOWS, "hostNetwork": True}),
    ),
    _check(
        "014",
        "Probes of other hosts",
        Severity.MEDIUM,
        "No kubelet is sent to addresses that the tenant chooses, as the metadata service.",
        BASELINE,
        tried("whose probe goes to 169.254.169.254", container=_PROBE, init=False),
    ),
    _check(
        "015",
        "Privilege escalation",
        Severity.MEDIUM,
        "No process gets more rights than its parent.",
        RESTRICTED,
        tried("with allowPrivilegeEscalation", container=_secured(allowPrivilegeEscalation=True)),
        benchmark="block_privilege_escalation",
    ),
    _check(
        "016",
        "Containers as root",
        Severity.MEDIUM,
        "Who breaks out of a container is not root.",
        RESTRICTED,
        both(
            tried("that may run as root", _secured(runAsNonRoot=None, runAsUser=None)),
            tried("that runs as root", {"securityContext": {"runAsNonRoot": None, "runAsUser": 0}}),
            tried("that runs as root", container=_secured(runAsUser=0, runAsNonRoot=False)),
        ),
        benchmark="require_run_as_non_root_user",
    ),
    _check(
        "017",
        "Default capabilities kept",
        Severity.LOW,
        "Containers have only what they need.",
        RESTRICTED,
        tried("that drops nothing", container=_secured(capabilities=None)),
    ),
    _check(
        "018",
        "No seccomp profile",
        Severity.LOW,
        "Every container has one, whatever the kubelet's default is.",
        RESTRICTED,
        tried("without a seccomp profile", _secured(seccompProfile=None)),
    ),
    _check(
        "019",
        "File systems that the node mounts",
        Severity.MEDIUM,
        "No node is sent to servers that the tenant chooses.",
        RESTRICTED,
        both(
            tried("with an NFS volume", _volume(nfs={"server": "192.0.2.1", "path": "/"})),
            tried(
                "with an iSCSI volume", _volume(iscsi={"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.t:a", "lun": 0})
            ),
        ),
    ),
    _check(
        "020",
        "Images kept on nodes",
        Severity.MEDIUM,
        "Nobody runs another tenant's private image because a node has it.",
        "Set spec.rules.images.pullPolicies of the Tenant to [Always].",
        both(
            tried("with imagePullPolicy IfNotPresent", container={"imagePullPolicy": "IfNotPresent"}),
            tried("with imagePullPolicy Never", container={"imagePullPolicy": "Never"}),
        ),
        benchmark="require_always_pull_image",
    ),
    _check(
        "021",
        "Images from anywhere",
        Severity.LOW,
        "Only images of known registries run.",
        "Set spec.rules.images.allowed of the Tenant to patterns of your registries.",
        tried("of an image from elsewhere", container={"image": FOREIGN_IMAGE}),
    ),
    _check(
        "022",
        "Priority over others",
        Severity.HIGH,
        "No pod of the tenant throws out others' or the cluster's own.",
        "Set spec.rules.priorityClasses of the Tenant: system to Refuse, and allowed.",
        _priorities,
        tries="Creates a restricted pod of each PriorityClass, those of the system among them (dry runs).",
    ),
    _check(
        "023",
        "Runtime without a sandbox",
        Severity.HIGH,
        "Pods on shared nodes have a kernel of their own, or a sandbox before it.",
        "Set spec.isolation.runtime of the Tenant to Sandboxed.",
        _sandboxed,
        tries="Creates a pod that names no runtime, and one of each that is no sandbox (dry runs).",
        alone=Alone.OPEN,
    ),
    _check(
        "024",
        "Privileged ephemeral containers",
        Severity.CRITICAL,
        "What pods may not have is not added later.",
        BASELINE,
        _ephemeral,
        tries="Adds a privileged ephemeral container to a pod (dry run).",
        control=None,
        alone=Alone.DEPENDS,
    ),
)
