"""What the pods of an audit found out, and what it proves. Pure.

A connection that fails proves nothing by itself: the target may be down. So a pod of the tenant and a witness without
policies try the same, and the failure of one counts as a refusal only if the other succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tenantry.audit.check import AttemptResult, NotApplicable
from tenantry.audit.context import AuditContext
from tenantry.audit.verdict import AttemptOutcome


class ProbeAnswer(msgspec.Struct, frozen=True):
    """The result of one attempt of a pod: whether it worked, and the answer or error."""

    ok: bool
    said: str = ""


class ContainerView(msgspec.Struct, frozen=True, rename="camel"):
    """What a container sees of itself and of its node; see go/probe/inside.go."""

    uid: int = 0
    cap_bnd: str = ""
    cap_eff: str = ""
    no_new_privs: str = ""
    seccomp: str = ""
    version: str = ""
    boot_id: str = ""
    messages: str = ""
    strangers: int = 0
    opened: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    memory_limit: str = ""


class ProbeReport(msgspec.Struct, frozen=True):
    """What the probe prints."""

    attempts: dict[str, ProbeAnswer] = {}
    inside: ContainerView = ContainerView()


class ProbeFailure(msgspec.Struct, frozen=True):
    """A pod that reported nothing, and why."""

    why: str


class ProbeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that made attempts.

    Args:
        report: What it printed.
        node: The node that it ran on.
        is_bare: It was admitted without a securityContext.
    """

    report: ProbeReport
    node: str = ""
    is_bare: bool = True

    def answer(self, attempt: str) -> ProbeAnswer:
        """Return the result of an attempt."""
        return self.report.attempts.get(attempt, ProbeAnswer(ok=False, said="it was not tried"))


class MemoryTest(msgspec.Struct, frozen=True, kw_only=True):
    """A container that allocated more memory than its limit.

    Args:
        told: What it did, as in "allocate 192 MiB of memory with a limit of 64 MiB".
        survived: It got all of it.
        end: How it ended.
    """

    told: str
    survived: bool
    end: str


class VolumeContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a new volume; see go/probe/volume.go.

    Args:
        files: The names of the first files.
        count: How many files there are.
        found: One has the data that the writer left.
        unread: Why the volume could not be read, "" if it could.
    """

    files: tuple[str, ...] = ()
    count: int = 0
    found: bool = False
    unread: str = ""


class ProbeFindings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the pods found out.

    Args:
        own: The tenant's pod.
        other: The witness.
        told: Id of an attempt to what is tried, as in "connect to the Service of another namespace".
        memory: The container that exceeded its memory limit.
        volume: The volume of a claim that the tenant created after the writer had used one of the same StorageClass.
        pid_limits: Name of a node to how many processes a pod may have there; -1 for any number.
    """

    own: ProbeRun | ProbeFailure
    other: ProbeRun | ProbeFailure
    told: Mapping[str, str] = {}
    memory: MemoryTest | ProbeFailure = ProbeFailure("it was not tried")
    volume: VolumeContent | ProbeFailure = ProbeFailure("it was not tried")
    pid_limits: Mapping[str, int] | ProbeFailure = ProbeFailure("they were not read")

    def what(self, attempt: str) -> str:
        """Return what an attempt tries."""
        return self.told.get(attempt, attempt)


WITHOUT_TOKEN = "the pod has no token"  # noqa: S105 - no password
"""What the probe prints if the pod has no token."""

Derived = Sequence[AttemptResult] | NotApplicable
ProbeCheck = Callable[[AuditContext, ProbeFindings], Derived]
OfOwnRun = Callable[[AuditContext, ProbeFindings, ProbeRun], Derived]

OWN = ("peer-address", "peer-service")
"""Attempts that must work for every pod of the tenant; if they fail, its other failures prove nothing."""
OWN_NAME = "peer-name"
PUBLIC = ("open-address", "open-service")
"""Attempts that must work for every pod without policies."""


def nothing(message: str) -> ProbeFindings:
    """Return empty findings, and why they are empty."""
    failure = ProbeFailure(message)
    return ProbeFindings(own=failure, other=failure, memory=failure, volume=failure, pid_limits=failure)


def of_own(derive: OfOwnRun) -> ProbeCheck:
    """Return the check of what the tenant's pod found out; it is not applicable if the pod reported nothing."""

    def derived(context: AuditContext, findings: ProbeFindings) -> Derived:
        own = findings.own
        return NotApplicable(own.why) if isinstance(own, ProbeFailure) else derive(context, findings, own)

    return derived


def outwards(*prefixes: str, needs: tuple[str, ...] = OWN, by: str = "the network") -> ProbeCheck:
    """Return the check of attempts of the tenant that must not work.

    Args:
        prefixes: The prefixes of the attempts' ids.
        needs: The tenant's attempts that must have worked.
        by: What refuses the attempts.
    """

    def derived(_: AuditContext, findings: ProbeFindings) -> Derived:
        ids = [each for each in findings.told if each.startswith(prefixes)]
        return _compared(findings, ids, findings.own, findings.other, needs, by)

    return derived


def inwards(*ids: str) -> ProbeCheck:
    """Return the check of attempts of others that must not work."""
    return lambda _, findings: _compared(findings, ids, findings.other, findings.own, PUBLIC, "the network")


def _compared(  # noqa: PLR0917 - called twice
    findings: ProbeFindings,
    ids: Sequence[str],
    attacker: ProbeRun | ProbeFailure,
    witness: ProbeRun | ProbeFailure,
    needs: tuple[str, ...],
    by: str,
) -> Derived:
    if isinstance(attacker, ProbeFailure):
        return NotApplicable(attacker.why)
    if isinstance(witness, ProbeFailure):
        return NotApplicable(witness.why)
    results = [_result(findings.what(each), attacker, witness, each, by) for each in ids]
    if any(each.outcome is AttemptOutcome.THROUGH for each in results):
        return results
    for need in needs:
        answer = attacker.answer(need)
        if not answer.ok:
            return NotApplicable(f"unknown, because what must work fails: {findings.what(need)}: {answer.said}")
    return results


def _result(what: str, attacker: ProbeRun, witness: ProbeRun, attempt: str, by: str) -> AttemptResult:
    answer, other = attacker.answer(attempt), witness.answer(attempt)
    if answer.ok:
        return AttemptResult.through(what, answer.said)
    if other.ok:
        return AttemptResult.refused(what, by, answer.said)
    return AttemptResult.skipped(what, f"{what}: it fails for every pod: {other.said}")


def answers(*ids: str) -> ProbeCheck:
    """Return the check of requests to the API server; an answer that is no success is a refusal."""

    def derived(_: AuditContext, findings: ProbeFindings, own: ProbeRun) -> Derived:
        found: list[AttemptResult] = []
        for attempt in ids:
            what, answer = findings.what(attempt), own.answer(attempt)
            if answer.ok and answer.said.startswith("2"):
                found.append(AttemptResult.through(what, f"{what}: {answer.said}"))
            elif answer.ok:
                found.append(AttemptResult.refused(what, "the API server", answer.said))
            elif answer.said == WITHOUT_TOKEN:
                found.append(AttemptResult.refused(what, "the pod", WITHOUT_TOKEN))
            elif isinstance(findings.other, ProbeRun):
                found.append(_result(what, own, findings.other, attempt, "the network"))
            else:
                found.append(AttemptResult.skipped(what, findings.other.why))
        return found

    return of_own(derived)


def works(*ids: str) -> ProbeCheck:
    """Return the check of attempts of the tenant that must work."""

    def derived(_: AuditContext, findings: ProbeFindings, own: ProbeRun) -> Derived:
        found: list[AttemptResult] = []
        for each in ids:
            what, answer = findings.what(each), own.answer(each)
            passed = AttemptResult.through(what, f"{what}: {answer.said}")
            found.append(passed if answer.ok else AttemptResult.refused(what, message=answer.said))
        return found

    return of_own(derived)


def looks(what: str, wrong: Callable[[ContainerView, AuditContext, ProbeRun], str], by: str = "") -> ProbeCheck:
    """Return the check of what the tenant's container saw.

    Args:
        what: What is inspected.
        wrong: Returns what is wrong with it, "" for nothing.
        by: What prevents it.
    """

    def derived(context: AuditContext, _: ProbeFindings, own: ProbeRun) -> Derived:
        found = wrong(own.report.inside, context, own)
        if found:
            return [AttemptResult.through(what, found)]
        # If the pod without a securityContext was refused, the rules made the container what it is.
        return [AttemptResult.refused(what, by if own.is_bare else "the rules", "nothing is open")]

    return of_own(derived)


def kernel(inside: ContainerView, boot_ids: Mapping[str, str], node: str) -> str:
    """Return the separate kernel of a container; "" if it has its node's, or if that is unknown.

    gVisor names itself in the kernel's log. A virtual machine (Kata) has another boot id than its node.
    """
    if "gVisor" in inside.messages or "gvisor" in inside.version.casefold():
        return "gVisor"
    of_node = boot_ids.get(node, "")
    return "a virtual machine" if of_node and inside.boot_id and inside.boot_id != of_node else ""
