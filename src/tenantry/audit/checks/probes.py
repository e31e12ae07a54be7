"""Checks that need pods that run: what a container of the tenant's reaches, and what it sees of its node. Pure.

Source: capabilities(7); proc_pid_status(5); Kubernetes, "Pod Security Standards".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.audit.check import Alone, Area, Attempts, Check, Nothing, Severity, Tried
from tenantry.audit.checks.network import ISOLATED
from tenantry.audit.checks.pods import BASELINE, RESTRICTED
from tenantry.audit.findings import (
    OWN,
    OWN_NAME,
    Findings,
    Inside,
    Missed,
    Probed,
    Run,
    answers,
    inwards,
    kernel,
    looks,
    outwards,
    works,
)
from tenantry.audit.place import Place
from tenantry.audit.verdict import Outcome, named

NO_REQUEST: Attempts = lambda _: []  # noqa: E731 - pods try, and not requests
SANDBOXED = "Set spec.isolation.runtime of the Tenant to Sandboxed."
FILTERED = "0", "1"
"""`Seccomp` of a process without a filter: none, or the strict mode, which no container is in."""

CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)
"""By their numbers."""

USUAL = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
"""What runtimes give to every container that does not say otherwise."""


def capabilities(mask: str) -> list[str]:
    """Return the names of a set of capabilities, which the kernel writes in hexadecimal digits."""
    bits = int(mask or "0", 16)
    known = [name for number, name in enumerate(CAPABILITIES) if bits >> number & 1]
    return [*known, *(["others"] if bits >> len(CAPABILITIES) else [])]


def _own_kernel(inside: Inside, place: Place, run: Run) -> str:
    return kernel(inside, place.boot_ids, run.node)


def _more_capabilities(inside: Inside, place: Place, run: Run) -> str:
    if not inside.cap_bnd:
        return "the kernel does not say which"
    found = [name for name in capabilities(inside.cap_bnd) if name not in USUAL]
    # Those of a sandbox's own kernel are no rights at the node.
    return f"it may have {named(found)}" if found and not _own_kernel(inside, place, run) else ""


def _forged(inside: Inside, _: Place, __: Run) -> str:
    return f"it opens sockets of the kind {', '.join(inside.raw)}" if inside.raw else ""


def _root(inside: Inside, _: Place, __: Run) -> str:
    return "it runs as root" if inside.uid == 0 else ""


def _unfiltered(inside: Inside, place: Place, run: Run) -> str:
    if inside.seccomp not in FILTERED or _own_kernel(inside, place, run):
        return ""
    return "every system call reaches the node's kernel"


def _raised(inside: Inside, place: Place, run: Run) -> str:
    if inside.no_new_privs == "1" or _own_kernel(inside, place, run):
        return ""
    return "a program with the setuid bit gives a process more privileges than it began with"


def _of_the_node(inside: Inside, place: Place, run: Run) -> str:
    # A sandbox has devices of its own under the names of a node's.
    opened = () if _own_kernel(inside, place, run) else inside.opened
    strangers = f"{inside.strangers} processes of others" if inside.strangers else ""
    found = [f"opens {each}" for each in opened] + ([f"sees {strangers}"] if strangers else [])
    return f"it {named(found)}" if found else ""


def _messages(inside: Inside, place: Place, run: Run) -> str:
    if not inside.messages or _own_kernel(inside, place, run):
        return ""
    return "it reads the log of the node's kernel, in which addresses and other pods are named"


def _kernel(place: Place, findings: Findings) -> Sequence[Tried] | Nothing:
    own, what = findings.own, "look at the kernel that a container has"
    if isinstance(own, Missed):
        return Nothing(own.why)
    found = _own_kernel(own.report.inside, place, own)
    if found:
        return [Tried(what=what, outcome=Outcome.REFUSED, by=found, message=f"{what}: it is {found}")]
    if not place.boot_ids.get(own.node):
        return Nothing(f"whoever asked may not read the boot id of the node {own.node!r}")
    return [Tried(what=what, outcome=Outcome.THROUGH, message=f"it is the kernel of the node {own.node!r}")]


def _eaten(_: Place, findings: Findings) -> Sequence[Tried] | Nothing:
    eaten = findings.eaten
    if isinstance(eaten, Missed):
        return Nothing(eaten.why)
    if eaten.survived:
        return [Tried(what=eaten.told, outcome=Outcome.THROUGH, message=eaten.end)]
    message = f"{eaten.told}: {eaten.end}"
    return [Tried(what=eaten.told, outcome=Outcome.REFUSED, by="the node's kernel", message=message)]


def _processes(_: Place, findings: Findings) -> Sequence[Tried] | Nothing:
    limits = findings.pid_limits
    if isinstance(limits, Missed):
        return Nothing(limits.why)
    found: list[Tried] = []
    for node, limit in sorted(limits.items()):
        what = f"read how many processes a pod may have on the node {node!r}"
        if limit > 0:
            found.append(Tried(what=what, outcome=Outcome.REFUSED, by="kubelet", message=f"{what}: {limit}"))
        else:
            found.append(Tried(what=what, outcome=Outcome.THROUGH, message="as many as the node can have"))
    return found


def _left(_: Place, findings: Findings) -> Sequence[Tried] | Nothing:
    volume, what = findings.volume, "look through the volume of a new claim"
    if isinstance(volume, Missed):
        return Nothing(volume.why)
    if volume.found:
        return [Tried(what=what, outcome=Outcome.THROUGH, message="it has what another namespace has written")]
    if volume.count:
        names = f"it has {volume.count} files already: {named(volume.files)}"
        return [Tried(what=what, outcome=Outcome.THROUGH, message=names)]
    if volume.unread:
        return Nothing(f"the volume could not be looked through: {volume.unread}")
    return [Tried(what=what, outcome=Outcome.REFUSED, by="the storage", message=f"{what}: it is empty")]


def _check(  # noqa: PLR0917 - a row of the table below
    id_: str,
    title: str,
    severity: Severity,
    tries: str,
    proves: str,
    fix: str,
    probe: Probed,
    alone: Alone = Alone.DEPENDS,
    **more: Any,  # noqa: ANN401
) -> Check:
    areas = {"NET": Area.NETWORK, "POD": Area.PODS, "QTA": Area.QUOTA, "STO": Area.STORAGE}
    return Check(
        id=f"TNT-{id_}",
        title=title,
        area=areas[id_.partition("-")[0]],
        severity=severity,
        tries=tries,
        proves=proves,
        fix=fix,
        attempts=NO_REQUEST,
        probe=probe,
        alone=alone,
        **more,
    )


PODS: Sequence[Check] = (
    _check(
        "POD-025",
        "Capabilities in a container",
        Severity.CRITICAL,
        "Runs a pod with as little of a securityContext as is admitted, and reads which capabilities it may have.",
        "Root in a container is not root of its node.",
        BASELINE,
        looks("read the capabilities of a container", _more_capabilities, "the runtime"),
        Alone.REFUSED,
    ),
    _check(
        "POD-026",
        "Packets in the name of others",
        Severity.MEDIUM,
        "Opens raw sockets in such a pod.",
        "No pod sends packets from another's address past what NetworkPolicies see.",
        f"{RESTRICTED} Or {SANDBOXED[0].lower()}{SANDBOXED[1:]}",
        looks("open raw sockets", _forged, "the kernel"),
        Alone.OPEN,
    ),
    _check(
        "POD-027",
        "Root in a container",
        Severity.MEDIUM,
        "Runs an image of which nobody says as whom, and looks as whom it runs.",
        "Who breaks out of a container is nobody on its node.",
        RESTRICTED,
        looks("run an image that names no user", _root, "the rules"),
        Alone.OPEN,
    ),
    _check(
        "POD-028",
        "System calls without a filter",
        Severity.MEDIUM,
        "Reads whether a filter stands between such a container and the node's kernel.",
        "The rare system calls, in which most of the kernel's faults are, are not a tenant's.",
        f"{RESTRICTED} Or {SANDBOXED[0].lower()}{SANDBOXED[1:]}",
        looks("read the filter of a container's system calls", _unfiltered, "the runtime"),
        Alone.OPEN,
    ),
    _check(
        "POD-029",
        "More privileges than at the start",
        Severity.LOW,
        "Reads whether programs in such a container can gain privileges (setuid).",
        "A process stays what it began as.",
        f"{RESTRICTED} Or {SANDBOXED[0].lower()}{SANDBOXED[1:]}",
        looks("read no_new_privs of a container", _raised, "the runtime"),
        Alone.OPEN,
    ),
    _check(
        "POD-030",
        "Files, devices and processes of the node",
        Severity.CRITICAL,
        "Opens memory, disks, sockets of runtimes and switches of the kernel in such a container, without writing.",
        "A container sees itself alone.",
        BASELINE,
        looks("open what is the node's", _of_the_node, "the runtime"),
        Alone.REFUSED,
    ),
    _check(
        "POD-031",
        "A kernel of its own",
        Severity.HIGH,
        "Looks in a container whether its kernel is gVisor's, or has started at another moment than its node.",
        "A fault of the node's kernel is not for the tenant to use.",
        f"Install a sandbox (gVisor, Kata) with a RuntimeClass. {SANDBOXED}",
        _kernel,
        Alone.OPEN,
    ),
    _check(
        "POD-032",
        "Messages of the kernel",
        Severity.LOW,
        "Reads the kernel's log (dmesg) in such a container.",
        "What happens to others on the node is not told.",
        "Set the sysctl kernel.dmesg_restrict of the nodes to 1.",
        looks("read the kernel's log", _messages, "the kernel"),
    ),
)

NETWORK: Sequence[Check] = (
    _check(
        "NET-020",
        "Policies are carried out",
        Severity.CRITICAL,
        "Connects from a pod of the tenant to a pod, and its Service, that a NetworkPolicy closes to other namespaces.",
        "The network plugin does what the NetworkPolicies say.",
        "Use a network plugin that implements NetworkPolicy.",
        outwards("closed-address", "closed-service"),
    ),
    _check(
        "NET-021",
        "Metadata and nodes' addresses",
        Severity.CRITICAL,
        "Connects from a pod of the tenant to the metadata address and to kubelets.",
        "Pods do not get the credentials of their node.",
        ISOLATED,
        outwards("node-", "metadata"),
        Alone.OPEN,
    ),
    _check(
        "NET-022",
        "DNS names of others",
        Severity.MEDIUM,
        "Resolves Services of another namespace from a pod of the tenant, and the name that belongs to an address.",
        "What others run is not told by DNS.",
        "Let CoreDNS have Tenantry's plugin: without it every pod resolves every name of the cluster.",
        outwards("closed-name", "closed-reverse", "open-name", needs=(OWN_NAME,), by="DNS"),
        Alone.OPEN,
    ),
    _check(
        "NET-024",
        "Others do not reach its pods",
        Severity.CRITICAL,
        "Connects from a pod in a namespace of nobody's to a pod of the tenant, and to its Service.",
        "What the tenant runs is closed to others.",
        f"{ISOLATED} Use a network plugin that implements NetworkPolicy.",
        inwards(*OWN),
        Alone.OPEN,
    ),
    _check(
        "NET-025",
        "It does not reach others that are open",
        Severity.MEDIUM,
        "Connects from a pod of the tenant to a pod, and to its Service, in a namespace without NetworkPolicies.",
        "A pod that was broken into does not reach those who have not closed themselves.",
        ISOLATED,
        outwards("open-address", "open-service"),
        Alone.OPEN,
    ),
    _check(
        "NET-026",
        "The API server without a login",
        Severity.CRITICAL,
        "Asks the API server from a pod for the Secrets of all namespaces: without a token, and with the pod's own.",
        "Being in the cluster gives no rights.",
        "Set --anonymous-auth=false, and bind nothing to system:unauthenticated or the ServiceAccount default.",
        answers("api", "api-token"),
        Alone.REFUSED,
    ),
    _check(
        "NET-027",
        "Its own pods reach each other",
        Severity.LOW,
        "Connects from a pod of the tenant to another of its own, to its Service, and by its name; this must work.",
        "Isolation leaves the tenant's own work alone.",
        "Look at the NetworkPolicies of the namespace, and whether DNS answers.",
        works(*OWN, OWN_NAME),
        allowed=True,
    ),
)

STORAGE: Sequence[Check] = (
    _check(
        "STO-009",
        "Data that others left",
        Severity.CRITICAL,
        "Writes to a volume in another namespace, deletes its claim, and looks through the volume of a new claim.",
        "Volumes come empty, and not with the data of who had them before.",
        "Use a StorageClass that makes volumes anew, with reclaimPolicy Delete, and no volumes that are used again.",
        _left,
    ),
)

QUOTA: Sequence[Check] = (
    _check(
        "QTA-008",
        "Memory beyond the limit",
        Severity.HIGH,
        "Takes three times as much memory as the container's limit.",
        "A limit is kept by the node's kernel, and not by good will.",
        "Let the nodes have the memory controller of cgroups.",
        _eaten,
        Alone.REFUSED,
    ),
    _check(
        "QTA-009",
        "Processes without number",
        Severity.MEDIUM,
        "Reads, as an administrator, how many processes kubelets let a pod have.",
        "A pod does not take all process numbers of its node.",
        "Set podPidsLimit in the configuration of the kubelets.",
        _processes,
    ),
)
