"""What denies a manifest, and what would pass: the API server's dry run beside the same rules in Python.

manifest ─► parts (it, its pods, its claims) ─► dry run + rules in Python ─► causes ─► mended manifest, tried again
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.errors import ApiError, InputError
from tenantry.api.model import Json, Resource
from tenantry.api.ruledeclarations import Action
from tenantry.api.tenancyrules import PULL_MARK, Section
from tenantry.policy.catalog import violations
from tenantry.policy.check import Violation
from tenantry.policy.explain import hostwarning
from tenantry.policy.explain.mend import mended
from tenantry.policy.explain.parts import Part, filled_in, parts_of, usage
from tenantry.policy.explain.refusal import Cause, Obstacle, agrees, is_same, of_violation, told_by
from tenantry.policy.request import Request
from tenantry.views.explain import context, quota
from tenantry.views.explain.context import NamespaceContext, RuleAuthors
from tenantry.world import quantity
from tenantry.world.rules import DEFAULT_CLASS

if TYPE_CHECKING:
    from tenantry.views.acting import ActingUser, DryRun

ROUNDS = 5
"""How often a manifest is mended and tried again."""

ENDPOINTS = ("endpoints", "endpointslices")
"""Kinds that the rules forbid to all but the cluster's controllers, whom the rules in Python do not know."""

REPORTED_ONCE = frozenset({Obstacle.RIGHTS, Obstacle.SUSPENSION})
"""Causes that are reported once, even if the API server denies several parts of an object for them."""

WRONG_SHAPE = (AttributeError, KeyError, TypeError, InputError)
"""What the rules in Python raise for a manifest that does not have its kind's shape: the API server rejects those."""


class ServerVerdict(msgspec.Struct, frozen=True, rename="camel"):
    """The API server's answer, and whether the rules in Python agree with it; None if the answer is about no rule."""

    accepts: bool
    message: str
    agrees: bool | None


class DenialReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why one manifest is denied.

    Args:
        where: The file and document.
        kind: The object's kind.
        name: The object's name; "" if the server would generate one.
        namespace: The object's namespace; "" for a cluster-scoped object.
        user: The user who would create the object.
        denied: Whether a cause denies the object.
        causes: What denies the object, or would warn of it.
        notes: What could not be found out.
        servers: The API server's answer about the manifest and each object that would come of it.
        manifest: The manifest as given.
        fixed: A manifest that passes the API server's dry run; None if nothing denies the object, or none is known.
    """

    where: str
    kind: str
    name: str
    namespace: str
    user: str
    denied: bool
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]
    servers: tuple[ServerVerdict, ...]
    manifest: Json
    fixed: Json | None = None

    @property
    def left(self) -> tuple[Cause, ...]:
        """Return what denies the fixed manifest."""
        found = [each for each in self.causes if each.action is Action.ENFORCE]
        if self.fixed is None:
            return tuple(found)
        return tuple(each for each in found if each.by in {Obstacle.QUOTA, Obstacle.RIGHTS, Obstacle.SUSPENSION})


class PartReview(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server and the rules say about one part of a manifest.

    Args:
        part: The part.
        result: The API server's answer.
        value: The part with defaults filled in.
        found: What the rules find, by action.
        compared: What the enforced rules would find if the requester created the part.
        is_ruled: Whether the rules of the namespace could be read here.
        notes: What could not be found out.
    """

    part: Part
    result: DryRun
    value: Json
    found: Mapping[Action, Sequence[Violation]]
    compared: Sequence[Violation]
    is_ruled: bool = True
    notes: tuple[str, ...] = ()

    @property
    def refusal(self) -> Cause | None:
        """Return what the API server has against the part.

        Controllers create pods of workloads, so the requester's rights on pods do not count.
        """
        refusal = self.result.refusal
        return None if refusal is not None and self.part.user and refusal.by is Obstacle.RIGHTS else refusal

    @property
    def passes(self) -> bool:
        """Return whether nothing denies the part."""
        return self.refusal is None and not self.found[Action.ENFORCE] and not self.result.host

    @property
    def server(self) -> ServerVerdict:
        """Return the API server's answer beside the rules'."""
        refusal = self.result.refusal
        rules = [of_violation(each) for each in self.compared]
        if refusal is None:
            return ServerVerdict(accepts=True, message="", agrees=agrees(rules, None))
        # The host refuses by rules that are not read inside.
        known = agrees(rules, refusal) if self.is_ruled else None
        return ServerVerdict(accepts=False, message=refusal.message, agrees=known)


class DenialExplainer:
    """Explains manifests to one requester; each namespace, and each object that defines rules, is read once."""

    def __init__(self, requester: ActingUser) -> None:
        self._requester = requester
        self._contexts: dict[str, NamespaceContext] = {"": NamespaceContext()}
        self._authors = RuleAuthors(requester)

    async def explain(self, where: str, value: object, *, namespace: str = "", default: str = "") -> DenialReport:
        """Return what denies a manifest.

        Args:
            where: The file and document, for messages.
            value: The document.
            namespace: The namespace that the command names.
            default: The namespace to use if neither the command nor the manifest names one.

        Raises:
            InputError: The document is no manifest, or its kind or namespace is unknown.
            ApiError: The server does not answer.
        """
        manifest = _manifest(where, value)
        try:
            resource = await self._requester.kinds.by_kind(manifest["apiVersion"], manifest["kind"])
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        place = _namespace(where, manifest, resource, namespace, default)
        if place not in self._contexts:
            self._contexts[place] = await context.gather(self._requester, place)
        around = self._contexts[place]
        reviews = await _reviews(self._requester, manifest, resource, around)
        causes = await _causes(self._requester, reviews, around)
        short, unknown = await _quota(self._requester, reviews, around)
        fixed, later = await _fixed(self._requester, manifest, reviews, around)
        if short:
            # Kubernetes reports the first quota that is exceeded; these causes name all of them.
            causes, later = ([each for each in found if each.by is not Obstacle.QUOTA] for found in (causes, later))
        causes = [*causes, *short]
        causes += [each for each in later if not any(is_same(each, old) for old in causes)]
        notes = dict.fromkeys([*around.notes, *(note for review in reviews for note in review.notes), *unknown])
        return DenialReport(
            where=where,
            kind=manifest["kind"],
            name=manifest["metadata"].get("name") or "",
            namespace=place,
            user=self._requester.user,
            denied=any(each.action is Action.ENFORCE for each in causes),
            causes=tuple([await self._authors.added_to(each) for each in causes]),
            notes=(*notes, *_disagreements(reviews), *_unknown(reviews, fixed)),
            servers=tuple(review.server for review in reviews),
            manifest=manifest,
            fixed=fixed,
        )


def _manifest(where: str, value: object) -> Json:
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be an object with apiVersion and kind")
    manifest = cast("Json", value)
    for field in ("apiVersion", "kind"):
        if not isinstance(manifest.get(field), str) or not manifest[field]:
            raise InputError(f"{where}: {field} must be given")
    metadata: object = manifest.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError(f"{where}: metadata must be an object")
    return {**manifest, "metadata": cast("Json", metadata)}


def _namespace(where: str, manifest: Json, resource: Resource, given: str, default: str) -> str:
    if not resource.namespaced:
        return ""
    own = manifest["metadata"].get("namespace") or ""
    if given and own and given != own:
        raise InputError(f"{where}: metadata.namespace is {own!r}, but -n is {given!r}")
    chosen = str(given or own or default)
    if not chosen:
        raise InputError(f"{where}: name the namespace with -n: neither the manifest nor the context does")
    return chosen


# -- the parts of a manifest ----------------------------------------------------------------------


async def _reviews(
    requester: ActingUser, manifest: Json, resource: Resource, around: NamespaceContext
) -> list[PartReview]:
    try:
        found = parts_of(manifest, resource)
    except WRONG_SHAPE:
        found = [Part(resource=resource, object=manifest)]
    return [await _review(requester, each, around) for each in found]


async def _review(requester: ActingUser, part: Part, around: NamespaceContext) -> PartReview:
    result = await requester.dry_run(part.resource, around.namespace, part.object, part.told)
    notes: tuple[str, ...] = ()
    if result.existed:
        about = f"{part.resource.kind} {part.object['metadata']['name']!r}"
        notes = (f"{about} exists already: this explains a new object like it",)
    notes = (*notes, *_unreadable(requester, part, around))
    found: dict[Action, Sequence[Violation]] = dict.fromkeys(Action, ())
    value, compared = result.stored or part.object, list[Violation]()
    rules = around.rules
    sections = {Action.ENFORCE: rules.enforce, Action.WARN: rules.warn, Action.AUDIT: rules.audit}
    if part.resource.plural in ENDPOINTS and result.stored is not None:
        del sections[Action.ENFORCE]
    try:
        if result.stored is None:
            default = rules.enforce.chosen.get(DEFAULT_CLASS)
            default_class = default.value if default is not None else ""
            pulls = PULL_MARK in around.labels
            value = filled_in(part.object, part.resource, around.limit_ranges or (), default_class, pulls=pulls)
        for action, section in sections.items():
            found[action] = _findings(requester, part, value, section, around, part.user or requester.user)
        if Action.ENFORCE in sections:
            compared = _findings(requester, part, value, rules.enforce, around, requester.user)
    except WRONG_SHAPE:
        found = dict.fromkeys(Action, ())
        notes = (*notes, "the rules are left out: the object does not have the shape of its kind")
    return PartReview(
        part=part,
        result=result,
        value=value,
        found=found,
        compared=compared,
        is_ruled=around.is_ruled,
        notes=notes,
    )


def _unreadable(requester: ActingUser, part: Part, around: NamespaceContext) -> Iterator[str]:
    """Yield what could not be compared with a part because the requester may not read it."""
    if around.limit_ranges is None and part.resource.plural == "pods":
        yield f"{requester.user!r} may not list the LimitRanges of {around.namespace!r}: their defaults are left out"
    if around.reclaim_policies is None and part.resource.plural == "persistentvolumeclaims":
        yield f"{requester.user!r} may not list StorageClasses: their reclaim policies are left out"


def _findings(  # noqa: PLR0917 - a request has many sides
    requester: ActingUser, part: Part, value: Json, section: Section, around: NamespaceContext, user: str
) -> list[Violation]:
    request = Request(
        user=user,
        groups=requester.groups,
        group=part.resource.group,
        resource=part.resource.plural,
        namespace=around.namespace,
        namespace_labels=around.labels,
        object=value,
        reclaim_policies=around.reclaim_policies or {},
    )
    return violations(request, section)


def _disagreements(reviews: Sequence[PartReview]) -> list[str]:
    notes = [
        f"the API server {'accepts' if each.accepts else 'denies'} what the rules, as they were read,"
        f" {'deny' if each.accepts else 'accept'}: rules take effect a moment after they are written"
        for each in (review.server for review in reviews)
        if each.agrees is False
    ]
    return list(dict.fromkeys(notes))


# -- causes ---------------------------------------------------------------------------------------


async def _causes(requester: ActingUser, reviews: Sequence[PartReview], around: NamespaceContext) -> list[Cause]:
    whole = reviews[0].part.resource
    found: list[Cause] = []
    if around.suspended:
        # The suspension removed the rights, so a role request would not help.
        fix = "an administrator must set spec.suspended to false"
        found.append(Cause(by=Obstacle.SUSPENSION, message=f"Tenant {around.suspended!r} is suspended", fix=fix))
    elif not await requester.may("create", whole, around.namespace):
        where = f" in {around.namespace!r}" if around.namespace else " in the cluster"
        message = f"{requester.user!r} may not create {whole.full_name}{where}"
        fix = "ask for a role with `tenantry request create role`" if around.namespace else ""
        found.append(Cause(by=Obstacle.RIGHTS, message=message, fix=fix))
    for review in reviews:
        rules = [of_violation(each, action, review.part.told) for action in Action for each in review.found[action]]
        found += rules
        found += [each for each in review.result.host if not any(is_same(each, old) for old in found)]
        refusal = review.refusal
        if refusal is None or (refusal.by in REPORTED_ONCE and any(each.by in REPORTED_ONCE for each in found)):
            continue
        if refusal.by is Obstacle.RULE and agrees([each for each in rules if each.action is Action.ENFORCE], refusal):
            continue
        found += [cause for cause in told_by(refusal) if not any(is_same(each, cause) for each in rules)]
    return found


async def _quota(
    requester: ActingUser, reviews: Sequence[PartReview], around: NamespaceContext
) -> tuple[list[Cause], list[str]]:
    """Return the quota keys that are short, with the quotas to raise; and what could not be found out."""
    tenant = around.labels.get(marks.TENANT)
    if not tenant:
        return [], []
    try:
        explained = await quota.explain(requester.client, tenant, around.namespace, _wanted(reviews))
    except (ApiError, *WRONG_SHAPE):
        return [], [f"how much quota {around.namespace!r} has left could not be found out"]
    found: list[Cause] = []
    for answer in explained.keys:
        if not answer.fits:
            first, *raises = explained.verdict(answer)
            fix = f"raise {', then '.join(each.strip() for each in raises)}"
            found.append(Cause(by=Obstacle.QUOTA, message=first.removesuffix("; raise"), fix=fix))
    return found, []


def _wanted(reviews: Sequence[PartReview]) -> dict[str, str | int]:
    want: dict[str, str | int] = {}
    for review in reviews:
        for key, amount in usage(review.part, review.value).items():
            want[key] = quantity.write(quantity.parse(want.get(key, "0")) + quantity.parse(amount))
    return want


# -- what would pass ------------------------------------------------------------------------------


async def _fixed(
    requester: ActingUser, manifest: Json, reviews: Sequence[PartReview], around: NamespaceContext
) -> tuple[Json | None, list[Cause]]:
    """Return a manifest that passes the API server's dry run, and the causes that came to light on the way to it."""
    fixed, later = manifest, list[Cause]()
    resource = reviews[0].part.resource
    for _ in range(ROUNDS):
        known = _with_host_rules(around, reviews)
        if known != around:
            around = known
            reviews = await _reviews(requester, fixed, resource, around)
        found = [(review.part, finding) for review in reviews for finding in review.found[Action.ENFORCE]]
        try:
            better = mended(fixed, found, around.rules.enforce)
        except WRONG_SHAPE:
            break
        if better == fixed:
            break
        fixed = better
        reviews = await _reviews(requester, fixed, resource, around)
        later = [cause for review in reviews if review.refusal is not None for cause in told_by(review.refusal)]
    passes = fixed != manifest and all(review.passes for review in reviews)
    return (fixed if passes else None), [msgspec.structs.replace(each, about=_later(each)) for each in later]


def _with_host_rules(around: NamespaceContext, reviews: Sequence[PartReview]) -> NamespaceContext:
    """Return the surroundings inside a control plane with the rules of the host that its refusals name."""
    enforce = hostwarning.named([each for review in reviews for each in review.result.host], around.rules.enforce)
    return replace(around, rules=replace(around.rules, enforce=enforce))


def _unknown(reviews: Sequence[PartReview], fixed: Json | None) -> list[str]:
    """Return why there is no fixed manifest for what the host of a control plane refuses."""
    if fixed is not None or not any(review.result.host for review in reviews):
        return []
    return ["there is no fixed manifest: inside a control plane, the values of its host's rules are not known"]


def _later(cause: Cause) -> str:
    return f"{cause.about}, after the fix" if cause.about else "after the fix"
