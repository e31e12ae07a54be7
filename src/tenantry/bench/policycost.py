"""What each of Tenantry's admission policies costs a pod: the benchmark binds copies of it in its own namespaces.

    per policy:  create pods (dry run) ─► copy the policy and its bindings ─► create pods again ─► delete the copies

The policies in force are never removed, not even in these namespaces: a crash of the benchmark would leave the
namespaces unprotected. A tenant of the benchmark owns the copies, so they are deleted with it.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError
from tenantry.api.model import Json, Resource
from tenantry.api.tenant import Tenant
from tenantry.bench.levels import uid
from tenantry.bench.load import POLL_SECONDS, Progress, deadline, delete, post, saturate
from tenantry.kube.client import Client

GROUP = "admissionregistration.k8s.io"
COPIES = 4
SLICE = 400
"""How many pods are created, as dry runs, each time; fewer if the benchmark has fewer."""

SLICES = 3
"""How many times on each side."""

IN_FORCE_SECONDS = 60.0
PROBE = "bench-probe"


class PolicyCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy costs.

    Args:
        policy: The policy's name.
        kind: Validating or Mutating.
        milliseconds: How much longer the API server took for each pod with one more copy of the policy, under full
            load; negative if the noise was greater.
        share: The share of the time that a pod took with every policy in force.
    """

    policy: str
    kind: str
    milliseconds: float
    share: float


def _resources(kind: str) -> tuple[Resource, Resource]:
    """Return the policies of a kind, and their bindings."""
    plural = f"{kind.lower()}admissionpolic"
    return (
        Resource(GROUP, "v1", f"{plural}ies", f"{kind}AdmissionPolicy", namespaced=False),
        Resource(GROUP, "v1", f"{plural}ybindings", f"{kind}AdmissionPolicyBinding", namespaced=False),
    )


async def costs(
    client: Client,
    author: Client,
    *,
    tenants: Sequence[str],
    requests: Sequence[tuple[str, bytes]],
    count: int,
    progress: Progress,
) -> list[PolicyCost]:
    """Return what each policy about pods costs, the most expensive first.

    Args:
        client: An administrator's client.
        author: The client that creates the pods.
        tenants: The benchmark's tenants.
        requests: The path and the body of a pod in each of their namespaces.
        count: How many pods to create, at most, each time.
        progress: Receives a line for each policy.
    """
    count = min(count, SLICE)
    found: list[PolicyCost] = []
    owner = await uid(client, Tenant.resource, tenants[0])
    for kind in ("Validating", "Mutating"):
        policies, bindings = [await _ours(client, resource) for resource in _resources(kind)]
        for policy in sorted(policies, key=lambda each: each["metadata"]["name"]):
            if not is_about_pods(policy):
                continue
            name = policy["metadata"]["name"]
            bound = [each for each in bindings if each["spec"]["policyName"] == name]
            before: list[float] = []
            after: list[float] = []
            # Half of the baseline before and half after, so that a change of the machine's load is on both sides.
            before += [await _slice(author, requests, count) for _ in range(SLICES)]
            async with _copied(client, author, kind, tenants, owner, policy, bound, requests[0]):
                after += [await _slice(author, requests, count) for _ in range(2 * SLICES)]
            before += [await _slice(author, requests, count) for _ in range(SLICES)]
            # The fastest of each: other load on the machine only adds time.
            base = min(before)
            cost = (min(after) - base) / COPIES
            share = round(cost / base, 3)
            found.append(PolicyCost(policy=name, kind=kind, milliseconds=round(1000 * cost, 3), share=share))
            progress(f"{name}: {1000 * cost:.2f} ms of {1000 * base:.2f} ms for each pod")
    return sorted(found, key=lambda each: -each.milliseconds)


def is_about_pods(policy: Json) -> bool:
    """Return whether a policy is evaluated when a pod is created."""
    return any(
        {"", "*"} & set(rule["apiGroups"])
        and {"pods", "*", "*/*"} & set(rule["resources"])
        and {"CREATE", "*"} & set(rule["operations"])
        for rule in policy["spec"]["matchConstraints"].get("resourceRules", ())
    )


async def _ours(client: Client, resource: Resource) -> list[Json]:
    selectors = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}
    return [item async for page in client.pages(resource, Json, selectors=selectors) for item in page.items]


async def _slice(author: Client, requests: Sequence[tuple[str, bytes]], count: int) -> float:
    """Create pods, as dry runs, and return the seconds for each."""
    many = [requests[number % len(requests)] for number in range(count)]
    return (
        await saturate(lambda each: author.request("POST", each[0], query={"dryRun": "All"}, body=each[1]), many)
        / count
    )


# -- copies ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _copied(  # noqa: PLR0917 - the parts of one copy
    client: Client,
    author: Client,
    kind: str,
    tenants: Sequence[str],
    owner: str,
    policy: Json,
    bindings: Sequence[Json],
    request: tuple[str, bytes],
) -> AsyncGenerator[None]:
    """Have copies of a policy in force in the tenants' namespaces while the context is open."""
    resources = _resources(kind)
    name = policy["metadata"]["name"]
    made = [
        *(copied(policy, f"{tenants[0]}-{name}-{number}", owner, tenants) for number in range(COPIES)),
        *(
            copied(
                each,
                f"{tenants[0]}-{each['metadata']['name']}-{number}",
                owner,
                tenants,
                f"{tenants[0]}-{name}-{number}",
            )
            for number in range(COPIES)
            for each in bindings
        ),
        # Created last: once the API server applies the marker, it applies the copies before it.
        *marker(kind, f"{tenants[0]}-marker", owner, tenants),
    ]
    placed = [(resources[1] if "policyName" in value["spec"] else resources[0], value) for value in made]
    try:
        for resource, value in placed:
            await post(client, resource, value)
        await _is_marked(author, request, wanted=True)
        yield
    finally:
        for resource, value in placed:
            await delete(client, resource, value["metadata"]["name"])
    await _is_marked(author, request, wanted=False)


def copied(value: Json, name: str, owner: str, tenants: Sequence[str], policy: str = "") -> Json:
    """Return a copy of a policy, or of a binding if it names the policy, that applies to these tenants only."""
    spec = copy.deepcopy(value["spec"])
    if policy:
        spec["policyName"] = policy
        match = spec.setdefault("matchResources", {})
        selector = match.setdefault("namespaceSelector", {})
        of_these = {"key": marks.TENANT, "operator": "In", "values": list(tenants)}
        selector["matchExpressions"] = [*selector.get("matchExpressions", ()), of_these]
    return {"metadata": _meta(name, owner, tenants), "spec": spec}


def marker(kind: str, name: str, owner: str, tenants: Sequence[str]) -> list[Json]:
    """Return a policy that matches one pod by its name, and its binding."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "probe", "expression": f"object.metadata.name == '{PROBE}'"}],
    }
    bound: Json = {"policyName": name}
    if kind == "Validating":
        spec["validations"] = [{"expression": "false", "message": PROBE}]
        bound["validationActions"] = ["Deny"]
    else:
        patch = f'[JSONPatch{{op: "add", path: "/metadata/labels/{PROBE}", value: "true"}}]'
        spec["reinvocationPolicy"] = "Never"
        spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]
    policy = {"metadata": _meta(name, owner, tenants), "spec": spec}
    return [policy, copied({"spec": bound}, name, owner, tenants, name)]


def _meta(name: str, owner: str, tenants: Sequence[str]) -> Json:
    resource = Tenant.resource
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": tenants[0], "uid": owner}
    return {"name": name, "ownerReferences": [reference]}


async def _is_marked(author: Client, request: tuple[str, bytes], *, wanted: bool) -> None:
    """Wait until the marker is in force, or no longer in force."""
    path, body = request
    value = msgspec.json.decode(body)
    value["metadata"]["name"] = PROBE
    probe = msgspec.json.encode(value)
    async with deadline(IN_FORCE_SECONDS, "a copy of a policy is not in force"):
        while True:
            try:
                answer = await author.request("POST", path, query={"dryRun": "All"}, body=probe)
                marked = PROBE in msgspec.json.decode(answer)["metadata"]["labels"]
            except ApiError as error:
                if PROBE not in str(error):
                    raise
                marked = True
            if marked is wanted:
                return
            await asyncio.sleep(POLL_SECONDS)  # no event reports it
