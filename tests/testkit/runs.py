"""Reconciles that stop before each write: a test can lose the request or its answer, or crash the operator."""

from __future__ import annotations

from contextlib import suppress

from tenantry.api.errors import ApiError, Unreachable
from testkit.model import Call, Running

FAULTS = ("none", "none", "none", "lost", "answer lost", "crash")
"""The possible faults of one write; mostly none."""

Operators = dict[int, tuple[Running, Call]]
"""By operator, its reconcile and its next request."""


def begin(
    running: Operators,
    who: int,
    work: Running,
) -> None:
    """Begin a reconcile up to its first request."""
    try:
        running[who] = (work, next(work))
    except StopIteration:
        running.pop(who, None)


def go_on(running: Operators, who: int, fault: str) -> None:
    """Carry out an operator's request, lose it or its answer, or crash the operator."""
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
    """Carry out a request, and return the next one.

    Raises:
        StopIteration: The reconcile has ended; its value is the outcome.
    """
    try:
        answer = request()
    except ApiError as error:
        return work.throw(error)
    return work.send(answer)
