"""How long tokens of ServiceAccounts are valid: requested ones, those that pods mount, and those in Secrets.

A token is valid until it expires, or until its ServiceAccount, or the pod or Secret that it is bound to, is deleted.
The rights of the person who requested it do not matter.

Source: Kubernetes, "Managing Service Accounts" (bound tokens, long-lived tokens); TokenREST.Create of the API server.
"""

from __future__ import annotations

from tenantry.api.rules import MOST_TOKEN_SECONDS
from tenantry.api.tenancyrules import SECONDS, TOKEN
from tenantry.api.tokens import ACCOUNT_NAME, TOKEN_SECRET
from tenantry.policy.check import Problem, RuleCheck, RuleTarget, quoted
from tenantry.policy.forms import refuse
from tenantry.policy.request import Json, Request, Review, part, parts
from tenantry.policy.targets.configuration import OBJECT, SECRETS
from tenantry.policy.targets.objects import whole
from tenantry.policy.targets.pods import VOLUMES

NODES = "system:nodes"
"""The group of kubelets, which request the tokens that pods mount. Source: Kubernetes, "Using Node Authorization"."""

EXTENDED_SECONDS = 3607
"""A token for a pod with exactly this time is valid for a year: the API server assumes that a kubelet requested it.

Source: WarnOnlyBoundTokenExpirationSeconds and ExpirationExtensionSeconds in k8s.io/kubernetes/pkg/serviceaccount.
"""

_IS_FOR_POD = "object.?spec.boundObjectRef.kind.orValue('') == 'Pod'"
_SECONDS = "object.?spec.expirationSeconds.orValue(3600)"
_KEY = quoted(SECONDS + TOKEN)
_MOST = f"variables.maxima[{_KEY}]"


def _is_for_pod(value: Json) -> bool:
    return part(value, "spec", "boundObjectRef").get("kind") == "Pod"


def _is_by_person(request: Request) -> bool:
    return not (NODES in request.groups and _is_for_pod(request.object))


TOKEN_REQUESTS = RuleTarget(
    name="tokens",
    group="",
    resources=("serviceaccounts/token",),
    operations=("CREATE",),
    # Kubelets renew the tokens of running pods under any rules. Such a token ends with its pod.
    conditions={"not-a-kubelet-for-a-pod": f"!('{NODES}' in request.userInfo.groups && {_IS_FOR_POD})"},
    variables={
        "seconds": f"{_IS_FOR_POD} && {_SECONDS} == {EXTENDED_SECONDS} ? {MOST_TOKEN_SECONDS} : {_SECONDS}",
    },
    concerns=_is_by_person,
)
TOKEN_REQUEST = whole(
    TOKEN_REQUESTS, "token request", {"metadata": {"name": "robot"}, "spec": {"expirationSeconds": 3600}}
)


def _seconds(value: Json) -> int:
    asked: int = part(value, "spec").get("expirationSeconds", 3600)
    return MOST_TOKEN_SECONDS if _is_for_pod(value) and asked == EXTENDED_SECONDS else asked


def _too_long(value: Json, review: Review) -> Problem | None:
    bound, seconds = review.rules.maxima.get(SECONDS + TOKEN), _seconds(value)
    if bound is None or seconds <= int(bound.value):
        return None
    return f"is for {seconds} seconds", bound.source, f"set spec.expirationSeconds to at most {bound.value}"


# Of a volume `c`: the times of its tokens. What every pod mounts has EXTENDED_SECONDS.
# The API server accepts null for no sources.
_MOUNTED = (
    "(has(c.projected) && has(c.projected.sources) && dyn(c.projected.sources) != null"
    " ? c.projected.sources.filter(s, has(s.serviceAccountToken)"
    f" && s.serviceAccountToken.?expirationSeconds.orValue(3600) != {EXTENDED_SECONDS})"
    ".map(s, s.serviceAccountToken.?expirationSeconds.orValue(3600)) : [])"
)


def _mounted_too_long(volume: Json, review: Review) -> Problem | None:
    bound = review.rules.maxima.get(SECONDS + TOKEN)
    if bound is None:
        return None
    for source in parts(volume, "projected", "sources"):
        seconds: int = part(source, "serviceAccountToken").get("expirationSeconds", 3600)
        if "serviceAccountToken" in source and seconds != EXTENDED_SECONDS and seconds > int(bound.value):
            fix = f"set serviceAccountToken.expirationSeconds to at most {bound.value}"
            return f"has a token for {seconds} seconds", bound.source, fix
    return None


def _is_token_secret(value: Json, review: Review) -> bool:
    request = review.request
    if request.resource != SECRETS or value.get("type") != TOKEN_SECRET:
        return False
    return request.operation == "CREATE" or _account(request.object) != _account(request.old_object)


def _account(value: Json) -> str:
    name: str = part(value, "metadata", "annotations").get(ACCOUNT_NAME, "")
    return name


_ACCOUNT = "{}.metadata.?annotations[?" + quoted(ACCOUNT_NAME) + "].orValue('')"

CHECKS = (
    RuleCheck(
        rule="tokens.maxSeconds",
        form="maxima",
        scope=TOKEN_REQUEST,
        whole=True,
        usual=True,
        bad=f"{_KEY} in variables.maxima && variables.seconds > int({_MOST}.value)",
        what="'is for ' + string(variables.seconds) + ' seconds'",
        source=f"{_MOST}.source",
        fix=f"'set spec.expirationSeconds to at most ' + {_MOST}.value",
        judge=_too_long,
        example={"spec": {"expirationSeconds": 864000}},
        given=86400,
        note="The renewal of a pod's token by its kubelet is not limited: the token ends with the pod. The API server"
        f" extends a token for a pod with exactly {EXTENDED_SECONDS} seconds to a year, so such a request counts as"
        f" {MOST_TOKEN_SECONDS}.",
    ),
    RuleCheck(
        rule="tokens.maxSeconds",
        form="maxima",
        scope=VOLUMES,
        whole=True,
        bad=f"has(c.projected) && {_KEY} in variables.maxima && {_MOUNTED}.exists(n, n > int({_MOST}.value))",
        what=f"'has a token for ' + string({_MOUNTED}.filter(n, n > int({_MOST}.value))[0]) + ' seconds'",
        source=f"{_MOST}.source",
        fix=f"'set serviceAccountToken.expirationSeconds to at most ' + {_MOST}.value",
        judge=_mounted_too_long,
        example={"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 864000}}]}},
        given=86400,
        note=f"{EXTENDED_SECONDS} seconds, which every mounted token of a ServiceAccount has by default, always pass.",
    ),
    refuse(
        "tokens.secrets",
        OBJECT,
        bad=f"request.resource.resource == '{SECRETS}' && object.?type.orValue('') == '{TOKEN_SECRET}'"
        f" && (request.operation == 'CREATE' || {_ACCOUNT.format('object')} != {_ACCOUNT.format('oldObject')})",
        is_bad=_is_token_secret,
        what=f"has type {TOKEN_SECRET}, whose token never expires",
        fix="request a token (kubectl create token), or mount one with a projected volume",
        example={"type": TOKEN_SECRET},
        note="Token Secrets that exist stay, and may not be given to another ServiceAccount.",
    ),
)
