"""Reconciles that are stopped before each write, so that a test can lose it, lose its answer, or never go on."""

from __future__ import annotations

from contextlib import suppress

from tenantry.api.errors import ApiError, Unreachable
from testkit.model import Call, Running

FAULTS = ("none", "none", "none", "lost", "answer lost", "crash")
"""What may happen to one write; mostly nothing."""

Operators = dict[int, tuple[Running, Call]]
"""By operator, its reconcile and the request that it wants."""


def begin(
    running: Operators,
    who: int,
    work: Running,
) -> None:
    """Begin a reconcile: what it asks for first is under way."""
    try:
        running[who] = (work, next(work))
    except StopIteration:
        running.pop(who, None)


def go_on(running: Operators, who: int, fault: str) -> None:
    """Let the request that an operator has under way be carried out, lost, or its answer; or the operator crash."""
    work, request = running.pop(who)
    if fault == "crash":
        work.close()
        return
    try:
        if fault == "lost":
            asked = work.throw(Unreachable("the request was lost"))
        elif fault == "answer lost":
            with suppress(ApiError):
                request()
            asked = work.throw(Unreachable("the answer was lost"))
        else:
            asked = carried_out(work, request)
    except StopIteration:
        return
    running[who] = (work, asked)


def carried_out(work: Running, request: Call) -> Call:
    """Carry a request out, and return what is asked for next.

    Raises:
        StopIteration: The reconcile has ended; its value is the outcome.
    """
    try:
        answer = request()
    except ApiError as error:
        return work.throw(error)
    return work.send(answer)
