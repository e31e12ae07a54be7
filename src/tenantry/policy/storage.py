"""Of which StorageClasses volumes may be claimed, and that nobody claims one that others have left."""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.api.tenancyrules import NAME
from tenantry.policy.check import Subject
from tenantry.policy.objects import KUBERNETES, allows, by_kubernetes, call, called, refuses
from tenantry.policy.request import Finding, Json, Judged, Request, part
from tenantry.policy.scheduling import NODE_NAME

NOUN = "claim"
ALLOWED = "storageClasses.allowed"
DEFAULT = "storageClasses.default"
RECLAIM_POLICIES = "storageClasses.reclaimPolicies"
EXISTING = "storageClasses.existingVolumes"

OLD_NAME = "volume.beta.kubernetes.io/storage-class"
"""The annotation that names the class, before the field, still. Source: Kubernetes, "Persistent Volumes" (class)."""

CHOSEN_NODE = "volume.kubernetes.io/selected-node"
"""The annotation by which the scheduler says where a volume is made, and so where its pod runs. Source: Kubernetes,
"Storage Classes" (volume binding mode)."""


def _classes(of: str) -> str:
    """Return CEL for a list of the claim's class; empty where it names none."""
    return (
        f"(has({of}.metadata.annotations) && '{OLD_NAME}' in {of}.metadata.annotations"
        f" ? [{of}.metadata.annotations['{OLD_NAME}']]"
        f" : has({of}.spec.storageClassName) ? [{of}.spec.storageClassName] : [])"
    )


def classes_of(claim: Json) -> list[str]:
    """Return a list of the claim's class; empty where it names none."""
    old: str | None = part(claim, "metadata", "annotations").get(OLD_NAME)
    named: str | None = part(claim, "spec").get("storageClassName")
    return [each for each in (old if old is not None else named,) if each is not None]


def _volume(of: str) -> str:
    return f"{of}.?spec.volumeName.orValue('')"


def _node(of: str) -> str:
    return f"{of}.?metadata.annotations[?'{CHOSEN_NODE}'].orValue('')"


_NODE_IS_NAMED = (
    f"{_node('object')} != '' && (request.operation == 'CREATE'"
    f" || {_node('object')} != {_node('oldObject')} && !{KUBERNETES})"
)


CLASSES = _classes("object")
CONDITIONS = {
    # The class is given once: in a claim, or later by Kubernetes, where there was no default at first. The same is so
    # of its volume, but people, too, may name that later.
    "class-or-volume-is-new": "request.operation == 'CREATE'"
    f" || {CLASSES} != {_classes('oldObject')} || {_volume('object')} != {_volume('oldObject')}"
}


def _is_new(request: Request) -> bool:
    before, after = request.old_object, request.object
    return (
        request.operation == "CREATE"
        or classes_of(before) != classes_of(after)
        or part(before, "spec").get("volumeName") != part(after, "spec").get("volumeName")
    )


def _names_node(request: Request) -> bool:
    def node(of: Json) -> str:
        return part(of, "metadata", "annotations").get(CHOSEN_NODE) or ""

    by_scheduler = request.operation == "UPDATE" and by_kubernetes(request.user)
    return bool(node(request.object)) and node(request.object) != node(request.old_object) and not by_scheduler


def _names_volume(judged: Judged) -> bool:
    request = judged.request
    name = judged.spec.get("volumeName") or ""
    by_binder = request.operation == "UPDATE" and by_kubernetes(request.user)
    return bool(name) and name != (part(request.old_object, "spec").get("volumeName") or "") and not by_binder


CLAIMS = Subject(
    name="claims",
    group="",
    resources=("persistentvolumeclaims",),
    conditions={name: f"{cel} || {_NODE_IS_NAMED}" for name, cel in CONDITIONS.items()},
    variables={"classes": CLASSES},
    checks=(
        allows(
            NOUN,
            ALLOWED,
            among="variables.classes",
            what="has the StorageClass",
            of=lambda judged: classes_of(judged.request.object),
        ),
        refuses(
            NOUN,
            EXISTING,
            # Kubernetes names the volume that it has found, or made.
            bad=f"{_volume('object')} != '' && (request.operation == 'CREATE'"
            f" || {_volume('object')} != {_volume('oldObject')} && !{KUBERNETES})",
            what="names its volume",
            fix="leave out volumeName, and let a StorageClass make one",
            is_bad=_names_volume,
        ),
        refuses(
            NOUN,
            NODE_NAME,
            bad=_NODE_IS_NAMED,
            what="names the node of its volume",
            fix=f"leave out the annotation {CHOSEN_NODE}, and let the scheduler choose",
            is_bad=lambda judged: _names_node(judged.request),
        ),
        refuses(
            NOUN,
            EXISTING,
            bad="'' in variables.classes",
            what="takes a volume without a StorageClass",
            fix="name a StorageClass, or leave out storageClassName for the default one",
            is_bad=lambda judged: "" in classes_of(judged.request.object),
        ),
        refuses(
            NOUN,
            EXISTING,
            bad="request.operation == 'CREATE' && has(object.spec.selector)",
            what="selects volumes by label",
            fix="leave out selector",
            is_bad=lambda judged: judged.request.operation == "CREATE" and "selector" in judged.spec,
        ),
        refuses(
            NOUN,
            EXISTING,
            bad="object.?spec.dataSourceRef.namespace.orValue('') != ''",
            what="takes its data from another namespace",
            fix="leave out dataSourceRef.namespace",
            is_bad=lambda judged: bool(part(judged.spec, "dataSourceRef").get("namespace")),
        ),
    ),
    concerns=lambda request: _is_new(request) or _names_node(request),
)


# -- what becomes of volumes ----------------------------------------------------------------------


def kept_message(policies: str) -> str:
    """Return the message in CEL of a claim of the StorageClass `params`."""
    return (
        f"{called(NOUN)} + ' has the StorageClass \\'' + params.metadata.name + '\\', whose reclaimPolicy is ' +"
        f" params.?reclaimPolicy.orValue('Delete') + ' (rule {RECLAIM_POLICIES} of TenancyRules \\'{NAME}\\'): must be"
        f" one whose reclaimPolicy is ' + {policies}.join(' or ')"
    )


def kept(judged: Judged) -> Iterator[Finding]:
    """Find claims of classes whose volumes stay.

    It stands outside of `CLAIMS`, because the API server looks at StorageClasses for it instead of at the rules.
    """
    request = judged.request
    listed = judged.rules.allowed.get(RECLAIM_POLICIES)
    if listed is None or request.resource != "persistentvolumeclaims" or not _is_new(request):
        return
    for name in classes_of(request.object):
        policy = request.reclaim_policies.get(name)
        if policy is not None and policy not in listed.values:
            what = f"has the StorageClass '{name}', whose reclaimPolicy is {policy}"
            fix = f"must be one whose reclaimPolicy is {' or '.join(listed.values)}"
            source = f"TenancyRules '{NAME}'"
            yield Finding(rule=RECLAIM_POLICIES, source=source, path=call(NOUN, judged), what=what, fix=fix)
