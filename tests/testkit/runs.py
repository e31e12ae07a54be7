"""Reconciles that are stopped before each write, so that a test can lose it, lose its answer, or never go on."""

from __future__ import annotations

from collections.abc import Generator

from tenantry.api.errors import NotFound, Unreachable
from tenantry.engine.apply import Outcome
from testkit.model import Json, Request

FAULTS = ("none", "none", "none", "lost", "answer lost", "crash")
"""What may happen to one write; mostly nothing."""

Running = dict[int, tuple[Generator[Request, Json, Outcome], Request]]
"""By operator, its reconcile and the write that it wants."""


def begin(
    running: Running,
    who: int,
    work: Generator[Request, Json, Outcome],
) -> None:
    """Begin a reconcile: what it asks for first is under way."""
    try:
        running[who] = (work, next(work))
    except (StopIteration, NotFound):
        running.pop(who, None)


def go_on(running: Running, who: int, fault: str) -> None:
    """Let the request that an operator has under way be carried out, lost, or its answer; or the operator crash."""
    work, request = running.pop(who)
    if fault == "crash":
        work.close()
        return
    try:
        if fault == "lost":
            work.throw(Unreachable("the request was lost"))
        elif fault == "answer lost":
            try:
                request()
            finally:
                work.throw(Unreachable("the answer was lost"))
        else:
            running[who] = (work, carried_out(work, request))
    except (StopIteration, Unreachable):
        return


def carried_out(work: Generator[Request, Json, Outcome], request: Request) -> Request:
    """Carry a request out, and return what is asked for next.

    Raises:
        StopIteration: The reconcile has ended; its value is the outcome.
    """
    try:
        answer = request()
    except Exception as error:  # noqa: BLE001 - whatever the world says goes to the operator
        return work.throw(error)
    return work.send(answer)
