"""How Services may be reached, and where they may lead."""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.policy.check import Check, Subject, told_one_of
from tenantry.policy.objects import KUBERNETES, allows, by_kubernetes, call, called, refuses, refuses_each
from tenantry.policy.request import Finding, Judged, Request, part, parts, texts
from tenantry.world.addresses import within

TYPES = "services.types"
EXTERNAL_IPS = "services.externalIPs"
EXTERNAL_NAME = "services.externalName"
SOURCE_RANGES = "services.loadBalancerSourceRanges"
ENDPOINTS = "services.endpoints"

BY_NAME = "ExternalName"
BALANCED = "LoadBalancer"

_OLD_SPEC = "has(oldObject.spec) && object.spec == oldObject.spec"
_LISTED = f"variables.allowed['{SOURCE_RANGES}']"
_WITHIN = f"{_LISTED}.values.exists(p, isCIDR(p) && cidr(p).containsCIDR(c))"


def _type(judged: Judged) -> str:
    return judged.spec.get("type") or "ClusterIP"


def _ranges(judged: Judged) -> list[str]:
    return texts(judged.spec, "loadBalancerSourceRanges") if _type(judged) == BALANCED else []


def _open_to_all() -> Check:
    """Return the check of a load balancer that takes everybody in, because it names no ranges."""

    def find(judged: Judged) -> Iterator[Finding]:
        if _type(judged) == BALANCED and not texts(judged.spec, "loadBalancerSourceRanges"):
            listed = judged.rules.allowed[SOURCE_RANGES]
            fix = told_one_of(listed.values).replace("must be one of", "loadBalancerSourceRanges must be within", 1)
            what = "lets every address in"
            yield Finding(
                rule=SOURCE_RANGES, source=listed.source, path=call("service", judged), what=what, fix=fix
            )

    return Check(
        rule=SOURCE_RANGES,
        form="allowed",
        bad="variables.balanced && size(variables.ranges) == 0",
        path=called("service"),
        what="'lets every address in'",
        source=f"{_LISTED}.source",
        fix=_within_fix("loadBalancerSourceRanges must be within"),
        find=find,
    )


def _within_fix(words: str) -> str:
    from tenantry.policy.check import one_of  # noqa: PLC0415

    return f"{one_of(f'{_LISTED}.values')}.replace('must be one of', '{words}', 1)"


def _is_new(request: Request) -> bool:
    return request.operation == "CREATE" or request.object.get("spec") != request.old_object.get("spec")
