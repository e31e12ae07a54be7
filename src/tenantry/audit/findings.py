"""What pods that an audit ran have seen, and what it means. Pure.

A connection that fails proves nothing by itself: nobody may answer there. So the same is tried from a pod of the tenant
and from one of nobody's, and what the one may not is a refusal only where the other can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tenantry.audit.check import Nothing, Tried
from tenantry.audit.place import Place
from tenantry.audit.verdict import Outcome


class Said(msgspec.Struct, frozen=True):
    """What came of one attempt of a pod: whether it worked, and what was said."""

    ok: bool
    said: str = ""


class Inside(msgspec.Struct, frozen=True, rename="camel"):
    """What a container saw of itself and of its node; see go/probe/inside.go."""

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


class Report(msgspec.Struct, frozen=True):
    """What the probe prints."""

    attempts: dict[str, Said] = {}
    inside: Inside = Inside()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that made attempts.

    Args:
        report: What it printed.
        node: Where it ran.
        is_bare: It was admitted without a securityContext.
    """

    report: Report
    node: str = ""
    is_bare: bool = True


class Missed(msgspec.Struct, frozen=True):
    """A pod that there is no word of, and why."""

    why: str


class Eaten(msgspec.Struct, frozen=True, kw_only=True):
    """A container that took more memory than its limit.

    Args:
        told: What it did, as in "take 192 MiB where the limit is 64Mi".
        survived: It has all of it.
        end: How it ended.
    """

    told: str
    survived: bool
    end: str


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """What was in a new volume; see go/probe/volume.go.

    Args:
        files: The names of the first files.
        count: How many there are.
        found: One has what somebody else wrote.
        unread: Why it was not looked through, "" where it was.
    """

    files: tuple[str, ...] = ()
    count: int = 0
    found: bool = False
    unread: str = ""


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All that pods have seen.

    Args:
        own: The tenant's pod.
        other: The pod in a namespace of nobody's.
        told: By the id of an attempt, what is tried, as in "connect to the Service of another namespace".
        eaten: Of memory.
        volume: Of a claim that the tenant made after somebody else had used one of the same StorageClass.
        pid_limits: By the name of a node, how many processes a pod may have there; -1 for any number.
    """

    own: Run | Missed
    other: Run | Missed
    told: Mapping[str, str] = {}
    eaten: Eaten | Missed = Missed("it was not tried")
    volume: Volume | Missed = Missed("it was not tried")
    pid_limits: Mapping[str, int] | Missed = Missed("they were not read")


WITHOUT_TOKEN = "the pod has no token"  # noqa: S105 - no password
"""What the probe says where the pod was not given one."""

Probed = Callable[[Place, Findings], "Sequence[Tried] | Nothing"]

OWN = ("peer-address", "peer-service")
"""Attempts that work for every pod of the tenant, or nothing is known of its others."""
OWN_NAME = "peer-name"
PUBLIC = ("open-address", "open-service")
"""Attempts that work for every pod without policies."""


def nothing(message: str) -> Findings:
    """Return the findings of nothing, and why."""
    missed = Missed(message)
    return Findings(own=missed, other=missed, eaten=missed, volume=missed, pid_limits=missed)


def outwards(*prefixes: str, needs: tuple[str, ...] = OWN, by: str = "the network") -> Probed:
    """Return what comes of attempts of the tenant's that must not work.

    Args:
        prefixes: What their ids begin with.
        needs: The attempts of its own that must have worked.
        by: What refuses.
    """

    def probed(_: Place, findings: Findings) -> Sequence[Tried] | Nothing:
        ids = [each for each in findings.told if each.startswith(prefixes)]
        return _compared(findings, ids, findings.own, findings.other, needs, by)

    return probed


def inwards(*ids: str) -> Probed:
    """Return what comes of attempts of others' that must not work."""
    return lambda _, findings: _compared(findings, ids, findings.other, findings.own, PUBLIC, "the network")


def _compared(  # noqa: PLR0917 - called twice
    findings: Findings,
    ids: Sequence[str],
    attacker: Run | Missed,
    witness: Run | Missed,
    needs: tuple[str, ...],
    by: str,
) -> Sequence[Tried] | Nothing:
    if isinstance(attacker, Missed):
        return Nothing(attacker.why)
    if isinstance(witness, Missed):
        return Nothing(witness.why)
    tried = [_tried(findings.told.get(each, each), attacker, witness, each, by) for each in ids]
    if any(each.outcome == Outcome.THROUGH for each in tried):
        return tried
    broken = [each for each in needs if not said(attacker, each).ok]
    if broken:
        told, why = findings.told.get(broken[0], broken[0]), said(attacker, broken[0]).said
        return Nothing(f"it cannot be told, because what must work does not: {told}: {why}")
    return tried


def _tried(what: str, attacker: Run, witness: Run, attempt: str, by: str) -> Tried:
    mine, theirs = said(attacker, attempt), said(witness, attempt)
    if mine.ok:
        return Tried(what=what, outcome=Outcome.THROUGH, message=mine.said)
    if theirs.ok:
        return Tried(what=what, outcome=Outcome.REFUSED, by=by, message=f"{what}: {mine.said}")
    return Tried(what=what, outcome=Outcome.SKIPPED, message=f"{what}: nobody can here: {theirs.said}")


def said(run: Run, attempt: str) -> Said:
    """Return what came of an attempt of a pod."""
    return run.report.attempts.get(attempt, Said(ok=False, said="it was not tried"))


def answers(*ids: str) -> Probed:
    """Return what comes of requests to the API server; an answer that is no success is a refusal of its."""

    def probed(_: Place, findings: Findings) -> Sequence[Tried] | Nothing:
        own, other = findings.own, findings.other
        if isinstance(own, Missed):
            return Nothing(own.why)
        found: list[Tried] = []
        for attempt in ids:
            what, mine = findings.told.get(attempt, attempt), said(own, attempt)
            if mine.ok:
                outcome = Outcome.THROUGH if mine.said.startswith("2") else Outcome.REFUSED
                by = "" if outcome == Outcome.THROUGH else "the API server"
                found.append(Tried(what=what, outcome=outcome, by=by, message=f"{what}: {mine.said}"))
            elif mine.said == WITHOUT_TOKEN:
                found.append(
                    Tried(what=what, outcome=Outcome.REFUSED, by="the pod", message=f"{what}: {WITHOUT_TOKEN}")
                )
            elif isinstance(other, Run):
                found.append(_tried(what, own, other, attempt, "the network"))
            else:
                found.append(Tried(what=what, outcome=Outcome.SKIPPED, message=other.why))
        return found

    return probed


def works(*ids: str) -> Probed:
    """Return what comes of attempts of the tenant's that must work."""

    def probed(_: Place, findings: Findings) -> Sequence[Tried] | Nothing:
        own = findings.own
        if isinstance(own, Missed):
            return Nothing(own.why)
        return [
            Tried(
                what=findings.told.get(each, each),
                outcome=Outcome.THROUGH if said(own, each).ok else Outcome.REFUSED,
                message=f"{findings.told.get(each, each)}: {said(own, each).said}",
            )
            for each in ids
        ]

    return probed


def looks(what: str, wrong: Callable[[Inside, Place, Run], str], by: str = "") -> Probed:
    """Return what comes of a look at what the tenant's container saw.

    Args:
        what: What is looked at.
        wrong: What is wrong with it, "" for nothing.
        by: What keeps it from being so.
    """

    def probed(place: Place, findings: Findings) -> Sequence[Tried] | Nothing:
        own = findings.own
        if isinstance(own, Missed):
            return Nothing(own.why)
        found = wrong(own.report.inside, place, own)
        if found:
            return [Tried(what=what, outcome=Outcome.THROUGH, message=found)]
        # Where the careless pod was refused, the rules have made it what it is.
        kept = by if own.is_bare else "the rules"
        return [Tried(what=what, outcome=Outcome.REFUSED, by=kept, message=f"{what}: nothing is open")]

    return probed


def kernel(inside: Inside, boot_ids: Mapping[str, str], node: str) -> str:
    """Return what kernel of its own a container has; "" where it has its node's, or that is not known.

    gVisor says its name in the kernel's log. A virtual machine (Kata) has started at another moment than its node.
    """
    if "gVisor" in inside.messages or "gvisor" in inside.version.casefold():
        return "gVisor"
    of_node = boot_ids.get(node, "")
    return "a virtual machine" if of_node and inside.boot_id and inside.boot_id != of_node else ""
