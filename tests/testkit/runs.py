"""Reconciles that stop before each write: a test can lose the request or its answer, or crash the operator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tenantry.api.errors import ApiError, Unreachable
from tenantry.engine.apply import Outcome
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
    try:
        asked = answered(work, request, fault)
    except StopIteration:
        return
    if asked is not None:
        running[who] = (work, asked)


def run(work: Running, fault: Callable[[], str]) -> Outcome | None:
    """Carry a reconcile through to its end, and return its outcome; None if the operator crashed.

    Args:
        work: The reconcile.
        fault: Called before each request; returns one of FAULTS.
    """
    try:
        asked: Call | None = next(work)
        while asked is not None:
            asked = answered(work, asked, fault())
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome
    return None


def answered(work: Running, request: Call, fault: str) -> Call | None:
    """Let a request be carried out, lost, or its answer, and return what is asked for next; None after a crash.

    Raises:
        StopIteration: The reconcile has ended; its value is the outcome.
    """
    if fault == "crash":
        work.close()
        return None
    if fault == "lost":
        return work.throw(Unreachable("the request was lost"))
    if fault == "answer lost":
        with suppress(ApiError):
            request()
        return work.throw(Unreachable("the answer was lost"))
    return carried_out(work, request)


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
