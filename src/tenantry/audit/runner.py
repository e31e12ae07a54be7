"""Makes the attempts of an audit, many at a time, and none of them as an administrator."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry.api.errors import ApiError, Forbidden, InputError, NotFound, TooManyRequests, Unauthorized
from tenantry.api.model import Resource
from tenantry.audit import verdict
from tenantry.audit.attempts import may, table
from tenantry.audit.check import Answer, Attempt, Check, Missing, Nothing, Result, Seen, Tried, Verdict
from tenantry.audit.findings import Findings, nothing
from tenantry.audit.place import Place
from tenantry.audit.verdict import Audit, Outcome
from tenantry.kube import wire
from tenantry.kube.client import Client

Json = dict[str, Any]

AT_ONCE = 16
"""How many checks are under way at the same time."""

ATTEMPTS = 3
NOT_AS_ADMINISTRATOR = "it would be made as an administrator, to whom everything is allowed"
REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
MOST_TEXT = 400


async def who(client: Client) -> tuple[str, tuple[str, ...]]:
    """Return whom the API server takes a client for: user and groups."""
    body = wire.encode_json({"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind})
    answer = msgspec.json.decode(await client.request("POST", wire.path(REVIEWS), body=body), type=dict[str, Any])
    info = table(answer, "status", "userInfo")
    return str(info.get("username", "")), tuple(info.get("groups") or ())


async def require(client: Client, user: str = "") -> tuple[str, tuple[str, ...]]:
    """Check who a client is taken for, and return it: user and groups.

    Args:
        client: With which the attempts will be made.
        user: Who it has to be; "" for anybody but an administrator.

    Raises:
        InputError: It is somebody else, or nobody was named and it is somebody to whom everything is allowed.
    """
    found, groups = await who(client)
    if user and found != user:
        raise InputError(f"the attempts would be made as {found!r}, not as {user!r}: the server ignores impersonation")
    if not user and await _is_administrator(client):
        raise InputError(
            f"{found!r} is an administrator, to whom everything is allowed: name a tenant, or its user with --as"
        )
    return found, groups


async def _is_administrator(client: Client) -> bool:
    return (await attempted(client, may("*", "*", group="*"))).outcome == Outcome.THROUGH


async def audit(client: Client, place: Place, checks: Sequence[Check], findings: Findings | None = None) -> Audit:
    """Make all checks and return what came of them, in their order.

    As an administrator the first alone is made, which says so.

    Args:
        client: The tenant's; see `require`.
        place: Where.
        checks: What to try.
        findings: What pods have seen; None where none were run.
    """
    seen = findings or nothing(verdict.NEEDS_PROBE)
    began, now = time.perf_counter(), dt.datetime.now(dt.UTC)
    if await _is_administrator(client):
        checks, untried = checks[:1], checks[1:]
    else:
        untried = ()
    free = asyncio.Semaphore(AT_ONCE)
    controls: dict[str, asyncio.Task[Tried]] = {}

    async def one(check: Check) -> Result:
        async with free:
            return await _carried_out(client, check, place, controls, seen)

    async with asyncio.TaskGroup() as group:
        for check in checks:
            if check.control is None:
                continue
            attempt = check.control(place)
            if attempt.what not in controls:
                controls[attempt.what] = group.create_task(attempted(client, attempt))
        tasks = [group.create_task(one(check)) for check in checks]
    not_made = (verdict.result(check, Verdict.SKIPPED, NOT_AS_ADMINISTRATOR) for check in untried)
    results = (*(task.result() for task in tasks), *not_made)
    return Audit(
        tenant=place.tenant,
        namespace=place.namespace,
        user=place.user,
        time=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        seconds=round(time.perf_counter() - began, 2),
        score=verdict.score(results),
        summary=verdict.counts(results),
        checks=results,
    )


async def _carried_out(
    client: Client, check: Check, place: Place, controls: dict[str, asyncio.Task[Tried]], findings: Findings
) -> Result:
    if check.probe is not None:
        probed = check.probe(place, findings)
        if isinstance(probed, Nothing):
            return verdict.result(check, Verdict.SKIPPED, probed.why)
        return verdict.of_check(check, probed)
    attempts = check.attempts(place)
    if isinstance(attempts, Nothing):
        return verdict.result(check, Verdict.SKIPPED, attempts.why)
    if isinstance(attempts, Seen):
        return verdict.of_seen(check, attempts)
    if check.control is not None:
        control = await controls[check.control(place).what]
        if control.outcome != Outcome.THROUGH:
            return verdict.without_control(check, control)
    tried = [await attempted(client, attempt) for attempt in attempts]
    return verdict.of_check(check, tried)


async def attempted(client: Client, attempt: Attempt) -> Tried:
    """Make one attempt and return what came of it."""
    body = msgspec.json.encode(attempt.body) if attempt.body is not None else None

    def came(outcome: Outcome, message: str = "") -> Tried:
        return Tried(what=attempt.what, outcome=outcome, message=_short(message))

    for left in reversed(range(ATTEMPTS)):
        try:
            async with client.open(
                attempt.method, attempt.path, query=attempt.query, body=body, content_type=attempt.content_type
            ) as response:
                data = await response.read()
                headers = {name.lower(): value for name, value in response.headers.items()}
        except (Forbidden, Unauthorized) as error:
            return _refused(attempt, str(error))
        except NotFound as error:
            if attempt.missing is Missing.SKIPPED:
                return came(Outcome.SKIPPED, f"there is nothing to try it on: {error}")
            return came(Outcome.THROUGH, f"allowed, though nothing is there: {error}")
        except TooManyRequests as error:
            if not left:
                return came(Outcome.UNDECIDED, str(error))
            await asyncio.sleep(error.retry_after_seconds or 1.0)
        except ApiError as error:
            return came(Outcome.UNDECIDED, str(error))
        else:
            return _judged(attempt, data, headers)
    raise AssertionError("the loop returns")


def _refused(attempt: Attempt, said: str) -> Tried:
    if attempt.judge is not None and attempt.method == "GET":
        told = f"what would be looked at may not be read: {said}"
        return Tried(what=attempt.what, outcome=Outcome.SKIPPED, message=_short(told))
    return Tried(what=attempt.what, outcome=Outcome.REFUSED, by=verdict.refused_by(said), message=_short(said))


def _judged(attempt: Attempt, data: bytes, headers: dict[str, str]) -> Tried:
    if attempt.judge is None:
        return Tried(what=attempt.what, outcome=Outcome.THROUGH)
    wrong = attempt.judge(Answer(msgspec.json.decode(data, type=dict[str, Any]), headers))
    if wrong:
        return Tried(what=attempt.what, outcome=Outcome.THROUGH, message=_short(wrong))
    return Tried(what=attempt.what, outcome=Outcome.REFUSED, message=f"{attempt.what}: nothing is open")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else f"{line[: MOST_TEXT - 3]}..."
