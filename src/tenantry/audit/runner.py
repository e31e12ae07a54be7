"""Makes the attempts of an audit, many at once, and never as an administrator."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Sequence

import msgspec

from tenantry.api.errors import ApiError, Forbidden, InputError, NotFound, TooManyRequests, Unauthorized
from tenantry.api.model import Json, Resource
from tenantry.audit import verdict
from tenantry.audit.attempts import may
from tenantry.audit.check import (
    Attempt,
    AttemptOutcome,
    AttemptResponse,
    AttemptResult,
    AuditCheck,
    CheckResult,
    NotApplicable,
    Observation,
    Verdict,
    WhenNotFound,
)
from tenantry.audit.context import AuditContext
from tenantry.audit.probe.findings import ProbeFindings, nothing
from tenantry.audit.verdict import Audit
from tenantry.engine.tasks import first_error
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.policy.request import part

AT_ONCE = 16
"""How many checks are under way at the same time."""

ATTEMPTS = 3
AS_ADMINISTRATOR = "the attempt would be made as an administrator, who may do everything"
WITHOUT_RIGHTS = (
    "RBAC lets {user!r} neither read nor create pods in {namespace!r}, so that its refusals prove nothing about"
    " isolation: name a user of the namespace with --as"
)
INSIDE = "owners write nothing here: they work with the control plane {name!r}, inside of which they are administrators"
REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
MAX_MESSAGE = 400

Progress = Callable[[str], None]


async def require(client: Client, user: str = "") -> tuple[str, tuple[str, ...]]:
    """Check which user the API server authenticates, and return the user and the groups.

    Args:
        client: The client that will make the attempts.
        user: The user that it must be; "" for any user except an administrator.

    Raises:
        InputError: It is another user, or it is an administrator although no user was named.
    """
    body = wire.encode_json({"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind})
    answer = client.decode(Json, await client.request("POST", wire.path(REVIEWS), body=body))
    info = part(answer, "status", "userInfo")
    found, groups = str(info.get("username", "")), tuple(info.get("groups") or ())
    if user and found != user:
        raise InputError(f"the attempts would be made as {found!r}, not as {user!r}: the server ignores impersonation")
    if not user and await _is_administrator(client):
        raise InputError(f"{found!r} is an administrator, who may do everything: name a tenant, or its user with --as")
    return found, groups


async def _is_administrator(client: Client) -> bool:
    return (await attempted(client, may("*", "*", group="*"))).outcome is AttemptOutcome.THROUGH


async def _is_user(client: Client, namespace: str) -> bool:
    for verb in ("get", "create"):
        # An error is no proof of missing rights: the checks report it.
        if (await attempted(client, may(verb, "pods", namespace=namespace))).outcome is not AttemptOutcome.REFUSED:
            return True
    return False


async def audit(
    client: Client, context: AuditContext, checks: Sequence[AuditCheck], findings: ProbeFindings | None = None
) -> Audit:
    """Run all checks and return their results in order.

    If the client is an administrator's, only the first check runs, which reports that. Results that
    only show that the client's user has no rights in the namespace become Skipped.

    Args:
        client: The tenant's client; see `require`.
        context: The namespace and its surroundings.
        checks: The checks to run.
        findings: What pods found out; None if none ran.
    """
    found = findings or nothing(verdict.NEEDS_PROBE)
    began, now = time.perf_counter(), dt.datetime.now(dt.UTC)
    if await _is_administrator(client):
        checks, untried, is_user = checks[:1], checks[1:], True
    else:
        untried, is_user = (), await _is_user(client, context.namespace)
    free = asyncio.Semaphore(AT_ONCE)
    controls: dict[str, asyncio.Task[AttemptResult]] = {}

    async def one(check: AuditCheck) -> CheckResult:
        async with free:
            return await _result(client, check, context, controls, found)

    with first_error():
        async with asyncio.TaskGroup() as group:
            for check in checks:
                if check.control is None:
                    continue
                attempt = check.control(context)
                # Many checks share a control, which is attempted once.
                if attempt.what not in controls:
                    controls[attempt.what] = group.create_task(attempted(client, attempt))
            tasks = [group.create_task(one(check)) for check in checks]
    not_made = (verdict.result(check, Verdict.SKIPPED, AS_ADMINISTRATOR) for check in untried)
    made = [task.result() for task in tasks]
    if not is_user:
        why = WITHOUT_RIGHTS.format(user=context.user, namespace=context.namespace)
        made = [verdict.of_stranger(check, each, why) for check, each in zip(checks, made, strict=True)]
    results = (*made, *not_made)
    return Audit(
        tenant=context.tenant,
        namespace=context.namespace,
        user=context.user,
        time=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        seconds=round(time.perf_counter() - began, 2),
        score=verdict.score(results),
        summary=verdict.counts(results),
        checks=results,
    )


async def _result(
    client: Client,
    check: AuditCheck,
    context: AuditContext,
    controls: dict[str, asyncio.Task[AttemptResult]],
    findings: ProbeFindings,
) -> CheckResult:
    attempts = check.attempts(context) if check.probe is None else check.probe(context, findings)
    if check.allowed and check.probe is None and context.control_plane:
        return verdict.result(check, Verdict.SKIPPED, INSIDE.format(name=context.control_plane))
    if isinstance(attempts, NotApplicable):
        return verdict.result(check, Verdict.SKIPPED, attempts.why)
    if isinstance(attempts, Observation):
        return verdict.of_observation(check, attempts)
    if check.control is not None:
        control = await controls[check.control(context).what]
        if control.outcome is not AttemptOutcome.THROUGH:
            return verdict.without_control(check, control)
    results = [each if isinstance(each, AttemptResult) else await attempted(client, each) for each in attempts]
    return verdict.of_check(check, results)


async def attempted(client: Client, attempt: Attempt) -> AttemptResult:
    """Make one attempt and return its result."""
    body = msgspec.json.encode(attempt.body) if attempt.body is not None else None
    for left in reversed(range(ATTEMPTS)):
        try:
            # Not `request`, which returns no headers: a judge may read them.
            async with client.open(
                attempt.method, attempt.path, query=attempt.query, body=body, content_type=attempt.content_type
            ) as response:
                data = await response.read()
                headers = {name.lower(): value for name, value in response.headers.items()}
        except (Forbidden, Unauthorized) as error:
            return _refused(attempt, str(error))
        except NotFound as error:
            if attempt.missing is WhenNotFound.SKIPPED:
                return AttemptResult.skipped(attempt.what, _short(f"there is nothing to try it on: {error}"))
            return AttemptResult.through(attempt.what, _short(f"allowed, although the object does not exist: {error}"))
        except ApiError as error:
            if not left or not isinstance(error, TooManyRequests):
                return AttemptResult(attempt.what, AttemptOutcome.UNDECIDED, message=_short(str(error)))
            await asyncio.sleep(error.retry_after_seconds or 1.0)
        else:
            return _judged(attempt, data, headers)
    raise AssertionError("the loop returns")


def _refused(attempt: Attempt, message: str) -> AttemptResult:
    # The tenant may not read the object: its content is neither proved to be open nor closed.
    if attempt.judge is not None and attempt.method == "GET":
        return AttemptResult.skipped(attempt.what, _short(f"the object to inspect may not be read: {message}"))
    return AttemptResult(attempt.what, AttemptOutcome.REFUSED, verdict.refused_by(message), _short(message))


def _judged(attempt: Attempt, data: bytes, headers: dict[str, str]) -> AttemptResult:
    if attempt.judge is None:
        return AttemptResult.through(attempt.what)
    wrong = attempt.judge(AttemptResponse(msgspec.json.decode(data), headers))
    if wrong:
        return AttemptResult.through(attempt.what, _short(wrong))
    return AttemptResult.refused(attempt.what, message="nothing is open")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 3]}..."
