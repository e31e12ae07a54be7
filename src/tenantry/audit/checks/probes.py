"""Checks that need running pods: what a container of the tenant reaches, and what it sees of its node. Pure.

Source: capabilities(7); proc_pid_status(5); Kubernetes, "Pod Security Standards".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.audit.check import AttemptResult, AuditCheck, NotApplicable, Severity, WithoutTenantry
from tenantry.audit.checks.network import ISOLATED
from tenantry.audit.checks.pods import BASELINE, RESTRICTED
from tenantry.audit.checks.table import check
from tenantry.audit.context import AuditContext
from tenantry.audit.probe.findings import (
    OWN,
    OWN_NAME,
    ContainerView,
    Derived,
    ProbeCheck,
    ProbeFailure,
    ProbeFindings,
    ProbeRun,
    answers,
    inwards,
    kernel,
    looks,
    of_own,
    outwards,
    works,
)
from tenantry.audit.verdict import named

SANDBOXED = "Set spec.isolation.runtime of the Tenant to Sandboxed."
RESTRICTED_OR_SANDBOXED = f"{RESTRICTED} Or {SANDBOXED[0].lower()}{SANDBOXED[1:]}"
NO_FILTER = "0", "1"
"""`Seccomp` of a process without a filter: none, or the strict mode, which no container uses."""

CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)
"""Capabilities in the order of their numbers."""

USUAL = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
"""The capabilities that runtimes give to every container by default."""


def capabilities(mask: str) -> list[str]:
    """Return the names of a set of capabilities, which the kernel writes in hexadecimal digits."""
    bits = int(mask or "0", 16)
    known = [name for number, name in enumerate(CAPABILITIES) if bits >> number & 1]
    return [*known, *(["others"] if bits >> len(CAPABILITIES) else [])]


def _own_kernel(inside: ContainerView, context: AuditContext, run: ProbeRun) -> str:
    return kernel(inside, context.boot_ids, run.node)


def _more_capabilities(inside: ContainerView, context: AuditContext, run: ProbeRun) -> str:
    if not inside.cap_bnd:
        return "the kernel does not list them"
    found = [name for name in capabilities(inside.cap_bnd) if name not in USUAL]
    # Capabilities in a sandbox apply to the sandbox's own kernel.
    return f"it may have {named(found)}" if found and not _own_kernel(inside, context, run) else ""


def _forged(inside: ContainerView, _: AuditContext, __: ProbeRun) -> str:
    return f"it opens sockets of the kind {', '.join(inside.raw)}" if inside.raw else ""


def _root(inside: ContainerView, _: AuditContext, __: ProbeRun) -> str:
    return "it runs as root" if inside.uid == 0 else ""


def _unfiltered(inside: ContainerView, context: AuditContext, run: ProbeRun) -> str:
    if inside.seccomp not in NO_FILTER or _own_kernel(inside, context, run):
        return ""
    return "every system call reaches the node's kernel"


def _raised(inside: ContainerView, context: AuditContext, run: ProbeRun) -> str:
    if inside.no_new_privs == "1" or _own_kernel(inside, context, run):
        return ""
    return "a program with the setuid bit gives a process more privileges than it started with"


def _of_node(inside: ContainerView, context: AuditContext, run: ProbeRun) -> str:
    # A sandbox emulates devices under the names of the node's.
    opened = () if _own_kernel(inside, context, run) else inside.opened
    found = [f"opens {each}" for each in opened]
    found += [f"sees {inside.strangers} processes of others"] if inside.strangers else []
    return f"it {named(found)}" if found else ""


def _messages(inside: ContainerView, context: AuditContext, run: ProbeRun) -> str:
    if not inside.messages or _own_kernel(inside, context, run):
        return ""
    return "it reads the log of the node's kernel, which contains addresses and other pods' names"


def _kernel(context: AuditContext, _: ProbeFindings, own: ProbeRun) -> Derived:
    what = "inspect the kernel that a container has"
    found = _own_kernel(own.report.inside, context, own)
    if found:
        return [AttemptResult.refused(what, found, f"it is {found}")]
    if not context.boot_ids.get(own.node):
        return NotApplicable(f"the administrator may not read the boot id of the node {own.node!r}")
    return [AttemptResult.through(what, f"it is the kernel of the node {own.node!r}")]


def _memory(_: AuditContext, findings: ProbeFindings) -> Derived:
    test = findings.memory
    if isinstance(test, ProbeFailure):
        return NotApplicable(test.why)
    if test.survived:
        return [AttemptResult.through(test.told, test.end)]
    return [AttemptResult.refused(test.told, "the node's kernel", test.end)]


def _processes(_: AuditContext, findings: ProbeFindings) -> Derived:
    limits = findings.pid_limits
    if isinstance(limits, ProbeFailure):
        return NotApplicable(limits.why)
    found: list[AttemptResult] = []
    for node, limit in sorted(limits.items()):
        what = f"read how many processes a pod may have on the node {node!r}"
        refused, through = AttemptResult.refused(what, "kubelet", str(limit)), "as many as the node can have"
        found.append(refused if limit > 0 else AttemptResult.through(what, through))
    return found


def _left_data(_: AuditContext, findings: ProbeFindings) -> Derived:
    volume, what = findings.volume, "inspect the volume of a new claim"
    if isinstance(volume, ProbeFailure):
        return NotApplicable(volume.why)
    if volume.found:
        return [AttemptResult.through(what, "it has data that another namespace wrote")]
    if volume.count:
        return [AttemptResult.through(what, f"it has {volume.count} files already: {named(volume.files)}")]
    if volume.unread:
        return NotApplicable(f"the volume could not be read: {volume.unread}")
    return [AttemptResult.refused(what, "the storage", "it is empty")]


def _check(  # noqa: PLR0917 - a row of the table below
    id_: str,
    title: str,
    severity: Severity,
    tries: str,
    proves: str,
    fix: str,
    probe: ProbeCheck,
    alone: WithoutTenantry = WithoutTenantry.DEPENDS,
    **more: Any,  # noqa: ANN401
) -> AuditCheck:
    return check(id_, title, severity, tries, proves, lambda _: [], fix=fix, probe=probe, alone=alone, **more)


PODS: Sequence[AuditCheck] = (
    _check(
        "POD-025",
        "Containers have only the usual capabilities",
        Severity.CRITICAL,
        "Runs a pod with the least securityContext that is admitted, and reads the capabilities that it may have.",
        "Root in a container is not root of its node.",
        BASELINE,
        looks("read the capabilities of a container", _more_capabilities, "the runtime"),
        WithoutTenantry.REFUSED,
    ),
    _check(
        "POD-026",
        "Containers cannot forge packets",
        Severity.MEDIUM,
        "Opens raw sockets in such a pod.",
        "No pod sends packets with another pod's address, which NetworkPolicies would attribute to that pod.",
        RESTRICTED_OR_SANDBOXED,
        looks("open raw sockets", _forged, "the kernel"),
        WithoutTenantry.OPEN,
    ),
    _check(
        "POD-027",
        "Containers do not run as root by default",
        Severity.MEDIUM,
        "Runs an image for which neither the image nor the pod names a user, and reads which user it runs as.",
        "A process that breaks out of a container has no rights on its node.",
        RESTRICTED,
        looks("run an image that names no user", _root, "the rules"),
        WithoutTenantry.OPEN,
    ),
    _check(
        "POD-028",
        "System calls are filtered",
        Severity.MEDIUM,
        "Reads whether a seccomp filter stands between such a container and the node's kernel.",
        "The tenant cannot use rare system calls, which most of the kernel's vulnerabilities are in.",
        RESTRICTED_OR_SANDBOXED,
        looks("read the filter of a container's system calls", _unfiltered, "the runtime"),
        WithoutTenantry.OPEN,
    ),
    _check(
        "POD-029",
        "Running processes cannot gain privileges",
        Severity.LOW,
        "Reads whether programs in such a container can gain privileges (setuid).",
        "A process keeps the privileges that it started with.",
        RESTRICTED_OR_SANDBOXED,
        looks("read no_new_privs of a container", _raised, "the runtime"),
        WithoutTenantry.OPEN,
    ),
    _check(
        "POD-030",
        "Containers do not see the node's files and processes",
        Severity.CRITICAL,
        "Opens memory, disks, runtime sockets and kernel settings in such a container, without writing.",
        "A container sees only itself.",
        BASELINE,
        looks("open files, devices and processes of the node", _of_node, "the runtime"),
        WithoutTenantry.REFUSED,
    ),
    _check(
        "POD-031",
        "Containers have a kernel of their own",
        Severity.HIGH,
        "Checks in a container whether its kernel is gVisor's, or has another boot id than its node.",
        "The tenant cannot use vulnerabilities of the node's kernel.",
        f"Install a sandbox (gVisor, Kata) with a RuntimeClass. {SANDBOXED}",
        of_own(_kernel),
        WithoutTenantry.OPEN,
    ),
    _check(
        "POD-032",
        "Containers cannot read the kernel's log",
        Severity.LOW,
        "Reads the kernel's log (dmesg) in such a container.",
        "The tenant does not learn what happens to others on the node.",
        "Set the sysctl kernel.dmesg_restrict of the nodes to 1.",
        looks("read the kernel's log", _messages, "the kernel"),
    ),
)

NETWORK: Sequence[AuditCheck] = (
    _check(
        "NET-020",
        "The network enforces NetworkPolicies",
        Severity.CRITICAL,
        "Connects from a pod of the tenant to a pod, and its Service, that a NetworkPolicy closes to other namespaces.",
        "The network plugin enforces NetworkPolicies.",
        "Use a network plugin that implements NetworkPolicy.",
        outwards("closed-address", "closed-service"),
    ),
    _check(
        "NET-021",
        "Pods cannot reach the metadata service and kubelets",
        Severity.CRITICAL,
        "Connects from a pod of the tenant to the metadata address, to kubelets at each address of their nodes, and to"
        " its own gateway.",
        "Pods do not get the credentials of their node.",
        ISOLATED,
        outwards("node-", "gateway", "metadata"),
        WithoutTenantry.OPEN,
    ),
    _check(
        "NET-022",
        "DNS does not resolve names of other tenants",
        Severity.MEDIUM,
        "Resolves Services of another namespace from a pod of the tenant, and the name of an address.",
        "DNS does not show what others run.",
        "Use the CoreDNS with Tenantry's plugin: without it, every pod resolves every name of the cluster.",
        outwards("closed-name", "closed-reverse", "open-name", needs=(OWN_NAME,), by="DNS"),
        WithoutTenantry.OPEN,
    ),
    _check(
        "NET-024",
        "Pods of others cannot reach the tenant's pods",
        Severity.CRITICAL,
        "Connects from a pod in the probe's namespace to a pod of the tenant, and to its Service.",
        "The tenant's pods are closed to others.",
        f"{ISOLATED} Use a network plugin that implements NetworkPolicy.",
        inwards(*OWN),
        WithoutTenantry.OPEN,
    ),
    _check(
        "NET-025",
        "Pods cannot reach open pods of others",
        Severity.MEDIUM,
        "Connects from a pod of the tenant to a pod, and to its Service, in a namespace without NetworkPolicies.",
        "A compromised pod cannot reach pods of others, even open ones.",
        ISOLATED,
        outwards("open-address", "open-service"),
        WithoutTenantry.OPEN,
    ),
    _check(
        "NET-026",
        "Pods have no rights at the API server by default",
        Severity.CRITICAL,
        "Requests the Secrets of all namespaces from a pod: without a token, and with the pod's own.",
        "A pod in the cluster has no rights because of that alone.",
        "Set --anonymous-auth=false, and bind nothing to system:unauthenticated or the ServiceAccount default.",
        answers("api", "api-token"),
        WithoutTenantry.REFUSED,
    ),
    _check(
        "NET-027",
        "The tenant's pods reach each other",
        Severity.LOW,
        "Connects from a pod of the tenant to another of its own, to its Service, and by its name; this must work.",
        "Isolation does not break the tenant's own applications.",
        "Check the NetworkPolicies of the namespace, and whether DNS answers.",
        works(*OWN, OWN_NAME),
        allowed=True,
    ),
)

STORAGE: Sequence[AuditCheck] = (
    _check(
        "STO-009",
        "New volumes have no data of others",
        Severity.CRITICAL,
        "Writes to a volume in another namespace, deletes its claim, and inspects the volume of a new claim.",
        "Volumes are empty when a tenant gets them.",
        "Use a StorageClass that creates new volumes, with reclaimPolicy Delete, and no recycled volumes.",
        _left_data,
    ),
)

QUOTA: Sequence[AuditCheck] = (
    _check(
        "QTA-008",
        "Memory limits are enforced",
        Severity.HIGH,
        "Allocates three times as much memory as the container's limit.",
        "The node's kernel enforces limits.",
        "Enable the memory controller of cgroups on the nodes.",
        _memory,
        WithoutTenantry.REFUSED,
    ),
    _check(
        "QTA-009",
        "The number of processes is limited",
        Severity.MEDIUM,
        "Reads, as an administrator, how many processes kubelets allow a pod.",
        "A pod does not use up the process ids of its node.",
        "Set podPidsLimit in the configuration of the kubelets.",
        _processes,
    ),
)
