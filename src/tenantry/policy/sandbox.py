"""Where pods run in the cluster's sandbox: that they do, and in no other runtime (E14, H03).

The operator keeps the sandbox's name among the rules; a policy that changes pods puts it in before this one looks.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.api.marks import RUNTIME, RUNTIME_SANDBOXED, SLICE
from tenantry.policy.check import Check, Subject, quoted
from tenantry.policy.request import Finding, Judged
from tenantry.world.rules import MISSING, RUNTIME_CLASS

NOT_MIRRORED = "!('system:nodes' in request.userInfo.groups)"
"""CEL: it is not a kubelet that tells of a pod of its own, which runs already."""

_LABELS = "namespaceObject.metadata.labels"
_GIVEN = "object.?spec.runtimeClassName.orValue('')"
_IN_SLICE = f"{quoted(SLICE)} in {_LABELS}"
CHOSEN = f"variables.chosen[{quoted(RUNTIME_CLASS)}]"
IS_THERE = f"{quoted(RUNTIME_CLASS)} in variables.chosen"


def _may_choose(judged: Judged) -> bool:
    """Tell whether a pod names a runtime on nodes that are its tenant's alone."""
    return SLICE in judged.request.namespace_labels and bool(judged.spec.get("runtimeClassName"))


def _other(judged: Judged) -> Iterator[Finding]:
    chosen, given = judged.rules.chosen[RUNTIME_CLASS], judged.spec.get("runtimeClassName") or ""
    # One that names none comes here with the sandbox in it, but where people ask what would come of it.
    if given and given != chosen.value and not _may_choose(judged):
        what = f"has runtimeClassName '{given}'"
        fix = f"must be '{chosen.value}'; leave it out, and it is put in"
        yield Finding(rule=RUNTIME_CLASS, source=chosen.source, path="pod", what=what, fix=fix)


def _missing(judged: Judged) -> Iterator[Finding]:
    must = judged.request.namespace_labels.get(RUNTIME) == RUNTIME_SANDBOXED
    if must and RUNTIME_CLASS not in judged.rules.chosen and not _may_choose(judged):
        source = judged.rules.refused[MISSING]
        yield Finding(rule=MISSING, source=source, path="pod", what=_NOWHERE, fix=_MAKE_ONE)


_NOWHERE = "must run in a sandbox, and the cluster has none"
_MAKE_ONE = "an administrator must make a RuntimeClass of one, or set isolation.runtime to Shared"

SANDBOX = Subject(
    name="sandbox",
    group="",
    resources=("pods",),
    marked=RUNTIME,
    # A pod keeps its runtime, and whatever comes into it later runs there, too.
    operations=("CREATE",),
    conditions={"not-a-mirror": NOT_MIRRORED},
    variables={"mayChoose": f"{_IN_SLICE} && {_GIVEN} != ''"},
    checks=(
        Check(
            rule=RUNTIME_CLASS,
            form="chosen",
            bad=f"{_GIVEN} != {CHOSEN}.value && !variables.mayChoose",
            usual=True,
            path="'pod'",
            what=f"'has runtimeClassName \\'' + {_GIVEN} + '\\''",
            source=f"{CHOSEN}.source",
            fix=f"'must be \\'' + {CHOSEN}.value + '\\'; leave it out, and it is put in'",
            find=_other,
        ),
        Check(
            rule=MISSING,
            form="refused",
            bad=f"!({IS_THERE}) && {_LABELS}[{quoted(RUNTIME)}] == '{RUNTIME_SANDBOXED}' && !variables.mayChoose",
            path="'pod'",
            what=quoted(_NOWHERE),
            source=f"variables.refused[{quoted(MISSING)}]",
            fix=quoted(_MAKE_ONE),
            find=_missing,
        ),
    ),
    concerns=lambda request: "system:nodes" not in request.groups,
)
