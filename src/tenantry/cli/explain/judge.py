"""Judges a manifest for `tenantry explain denied`: by the API server's dry run, and by the rules in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError, InputError
from tenantry.api.model import Resource
from tenantry.api.rules import Action
from tenantry.api.tenancyrules import Section
from tenantry.cli.documents import Document
from tenantry.cli.explain.quota import read_path, verdict
from tenantry.cli.explain.reads import Asker, Surroundings, Tried
from tenantry.policy.explain.mend import mended
from tenantry.policy.explain.parts import Part, filled_in, parts_of, usage
from tenantry.policy.explain.refusal import By, Cause, agrees, is_same, of_finding, told_by
from tenantry.policy.request import Finding, Request
from tenantry.policy.storage import DEFAULT
from tenantry.policy.verdict import findings
from tenantry.world import quantity
from tenantry.world.explain.quota import explain as compute

Json = dict[str, Any]

ROUNDS = 5
"""So often something is mended and looked at again."""

WRITTEN = ("endpoints", "endpointslices")
"""What people rarely write."""

SAID_ONCE = frozenset({By.RIGHTS, By.SUSPENSION})
"""What is told once, however many of an object's parts the API server refuses for it."""

NOT_SHAPED = (AttributeError, KeyError, TypeError, InputError)
"""What the rules in Python raise of a manifest of another shape than Kubernetes': the API server refuses those."""


class Server(msgspec.Struct, frozen=True, rename="camel"):
    """What the API server says, and whether the rules as they were read say the same; None where it does not tell."""

    accepts: bool
    message: str
    agrees: bool | None


class Explained(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is told of one manifest.

    Args:
        where: The file and document.
        kind: The object's.
        name: Its; "" where the server would make one.
        namespace: Where it is to be; "" for a cluster-scoped object.
        user: Who asks.
        denied: Something is in the way.
        causes: What is in the way, or would be warned of.
        notes: What could not be told.
        servers: What the API server says of the manifest, and of what would come of it.
        manifest: As it was given.
        fixed: As it passes the API server's dry run; None where nothing is in the way, or that cannot be told.
    """

    where: str
    kind: str
    name: str
    namespace: str
    user: str
    denied: bool
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]
    servers: tuple[Server, ...]
    manifest: Json
    fixed: Json | None = None

    @property
    def left(self) -> tuple[Cause, ...]:
        """Return what is in the way of what `--fix` prints."""
        found = [each for each in self.causes if each.action is Action.ENFORCE]
        if self.fixed is None:
            return tuple(found)
        return tuple(each for each in found if each.by in {By.QUOTA, By.RIGHTS, By.SUSPENSION})


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a manifest, looked at.

    Args:
        part: It.
        tried: What the API server says of it.
        value: It, filled in.
        found: What the rules have against it, by action.
        compared: What those that are enforced would have against it if the asker made it.
        notes: What could not be told.
    """

    part: Part
    tried: Tried
    value: Json
    found: Mapping[Action, Sequence[Finding]]
    compared: Sequence[Finding]
    notes: tuple[str, ...] = ()

    @property
    def refusal(self) -> Cause | None:
        """Return what the API server has against it; that a controller's work is not the asker's right is nothing."""
        refusal = self.tried.refusal
        return None if refusal is not None and self.part.user and refusal.by is By.RIGHTS else refusal

    @property
    def passes(self) -> bool:
        """Tell whether nothing is in its way."""
        return self.refusal is None and not self.found[Action.ENFORCE]


async def explained(asker: Asker, document: Document, namespace: str, elsewhere: str) -> Explained:
    """Return what is in the way of a manifest.

    Args:
        asker: Whom it is about.
        document: The manifest.
        namespace: -n.
        elsewhere: The context's namespace.

    Raises:
        InputError: It is no manifest, or of no kind or namespace.
        ApiError: The server does not answer.
    """
    manifest = _manifest(document)
    resource = await _resource(asker, document, manifest)
    name = manifest["metadata"].get("name") or ""
    where = _namespace(document, manifest, resource, namespace, elsewhere)
    around = await asker.around(where) if where else Surroundings()
    looks = await _looks(asker, manifest, resource, around)
    causes = await _causes(asker, looks, around)
    short, unknown = await _quota(asker, looks, around)
    fixed, later = await _fixed(asker, manifest, looks, around)
    if short:
        # Kubernetes tells of the first quota what this tells of all.
        causes, later = ([each for each in told if each.by is not By.QUOTA] for told in (causes, later))
    causes = [*causes, *short]
    causes += [each for each in later if not any(is_same(each, old) for old in causes)]
    written = [await _with_author(asker, each) for each in causes]
    notes = dict.fromkeys([*around.notes, *(note for look in looks for note in look.notes), *unknown])
    return Explained(
        where=document.where,
        kind=manifest["kind"],
        name=name,
        namespace=where,
        user=asker.user,
        denied=any(each.action is Action.ENFORCE for each in written),
        causes=tuple(written),
        notes=(*notes, *_disagreements(looks)),
        servers=tuple(_server(look) for look in looks),
        manifest=manifest,
        fixed=fixed,
    )


def _manifest(document: Document) -> Json:
    value = document.value
    if not isinstance(value, dict):
        raise InputError(f"{document.where}: must be an object with apiVersion and kind")
    manifest = cast("Json", value)
    for field in ("apiVersion", "kind"):
        if not isinstance(manifest.get(field), str) or not manifest[field]:
            raise InputError(f"{document.where}: {field} must be given")
    metadata: object = manifest.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError(f"{document.where}: metadata must be an object")
    return {**manifest, "metadata": cast("Json", metadata)}


async def _resource(asker: Asker, document: Document, manifest: Json) -> Resource:
    try:
        return await asker.resource(manifest["apiVersion"], manifest["kind"])
    except InputError as error:
        raise InputError(f"{document.where}: {error}") from error


def _namespace(document: Document, manifest: Json, resource: Resource, given: str, elsewhere: str) -> str:
    if not resource.namespaced:
        return ""
    own = manifest["metadata"].get("namespace") or ""
    if given and own and given != own:
        raise InputError(f"{document.where}: metadata.namespace is {own!r}, and -n says {given!r}")
    chosen = str(given or own or elsewhere)
    if not chosen:
        raise InputError(f"{document.where}: name the namespace with -n: neither the manifest nor the context does")
    return chosen


# -- looking --------------------------------------------------------------------------------------


async def _looks(asker: Asker, manifest: Json, resource: Resource, around: Surroundings) -> list[Look]:
    try:
        found = parts_of(manifest, resource)
    except NOT_SHAPED:
        found = [Part(resource=resource, object=manifest)]
    return [await _look(asker, each, around) for each in found]


async def _look(asker: Asker, each: Part, around: Surroundings) -> Look:
    tried = await asker.try_(each.resource, around.namespace, each.object, each.told)
    notes: tuple[str, ...] = ()
    if tried.existed:
        notes = (f"{each.resource.kind} {each.object['metadata']['name']!r} is there: what is told is of a new one",)
    found: dict[Action, Sequence[Finding]] = dict.fromkeys(Action, ())
    value, compared = tried.stored or each.object, list[Finding]()
    sections = {Action.ENFORCE: around.rules.enforce, Action.WARN: around.rules.warn, Action.AUDIT: around.rules.audit}
    try:
        if tried.stored is None:
            default = around.rules.enforce.chosen.get(DEFAULT)
            ranges = around.limit_ranges
            value = filled_in(each.object, each.resource, ranges, default.value if default is not None else "")
        if each.resource.plural in WRITTEN and tried.stored is not None:
            # Whoever may write them everywhere is let by, which the rules in Python do not know.
            sections = {Action.WARN: around.rules.warn, Action.AUDIT: around.rules.audit}
        for action, section in sections.items():
            found[action] = _findings(asker, each, value, section, around, each.user or asker.user)
        if Action.ENFORCE in sections:
            compared = _findings(asker, each, value, around.rules.enforce, around, asker.user)
    except NOT_SHAPED:
        found = dict.fromkeys(Action, ())
        notes = (*notes, "what the rules say is left out: it has not the shape of its kind")
    return Look(part=each, tried=tried, value=value, found=found, compared=compared, notes=notes)


def _findings(  # noqa: PLR0917 - a request has many sides
    asker: Asker, each: Part, value: Json, section: Section, around: Surroundings, user: str
) -> list[Finding]:
    request = Request(
        user=user,
        groups=asker.groups,
        group=each.resource.group,
        resource=each.resource.plural,
        namespace=around.namespace,
        namespace_labels=around.labels,
        object=value,
        reclaim_policies=around.reclaim_policies,
    )
    return findings(request, section)


def _server(look: Look) -> Server:
    refusal = look.tried.refusal
    rules = [of_finding(each) for each in look.compared]
    message = refusal.message if refusal is not None else ""
    return Server(refusal is None, message, agrees(rules, refusal))


def _disagreements(looks: Sequence[Look]) -> list[str]:
    said = [
        f"the API server {'accepts' if each.accepts else 'refuses'} what the rules, as they were read,"
        f" {'refuse' if each.accepts else 'accept'}: what was written a moment ago is not in force yet"
        for each in map(_server, looks)
        if each.agrees is False
    ]
    return list(dict.fromkeys(said))


# -- what is in the way ---------------------------------------------------------------------------


async def _causes(asker: Asker, looks: Sequence[Look], around: Surroundings) -> list[Cause]:
    whole = looks[0].part.resource
    found: list[Cause] = []
    if around.suspended:
        # It takes everybody's rights, which no request gives back.
        fix = "an administrator must set spec.suspended to false"
        found.append(Cause(by=By.SUSPENSION, message=f"Tenant {around.suspended!r} is suspended", fix=fix))
    elif not await asker.may("create", whole, around.namespace):
        where = f" in {around.namespace!r}" if around.namespace else " in the cluster"
        message = f"{asker.user!r} may not create {whole.full_name}{where}"
        fix = "ask for a role with `tenantry request role`" if around.namespace else ""
        found.append(Cause(by=By.RIGHTS, message=message, fix=fix))
    for look in looks:
        rules = [of_finding(each, action, look.part.told) for action in Action for each in look.found[action]]
        found += rules
        refusal = look.refusal
        if refusal is None or (refusal.by in SAID_ONCE and any(each.by in SAID_ONCE for each in found)):
            continue
        if refusal.by is By.RULE and agrees([each for each in rules if each.action is Action.ENFORCE], refusal):
            continue
        found += [told for told in told_by(refusal) if not any(is_same(each, told) for each in rules)]
    return found


async def _quota(asker: Asker, looks: Sequence[Look], around: Surroundings) -> tuple[list[Cause], list[str]]:
    """Return what a tenant's quota is short of, and which ancestor that is; and what could not be told."""
    tenant = around.labels.get(marks.TENANT)
    if not tenant:
        return [], []
    try:
        want = _wanted(looks)
        path = await read_path(asker.client, tenant, around.namespace)
        answers = compute(tenant, path, want)
    except (ApiError, *NOT_SHAPED):
        return [], [f"how much of its quota {around.namespace!r} has left could not be told"]
    found: list[Cause] = []
    for answer in answers:
        if not answer.fits:
            first, *raised = verdict(path, answer)
            fix = f"raise {', then '.join(each.strip() for each in raised)}"
            found.append(Cause(by=By.QUOTA, message=first.removesuffix("; raise"), fix=fix))
    return found, []


def _wanted(looks: Sequence[Look]) -> dict[str, str | int]:
    want: dict[str, str | int] = {}
    for look in looks:
        for key, amount in usage(look.part, look.value).items():
            want[key] = quantity.write(quantity.parse(want.get(key, "0")) + quantity.parse(amount))
    return want


async def _with_author(asker: Asker, cause: Cause) -> Cause:
    if cause.by is not By.RULE:
        return cause
    return msgspec.structs.replace(cause, author=await asker.author(cause.source, cause.rule))


# -- what would pass ------------------------------------------------------------------------------


async def _fixed(
    asker: Asker, manifest: Json, looks: Sequence[Look], around: Surroundings
) -> tuple[Json | None, list[Cause]]:
    """Return a manifest that passes the API server's dry run, and what else came to light on the way to it."""
    fixed, later = manifest, list[Cause]()
    for _ in range(ROUNDS):
        found = [(look.part, finding) for look in looks for finding in look.found[Action.ENFORCE]]
        try:
            better = mended(fixed, found, around.rules.enforce)
        except NOT_SHAPED:
            break
        if better == fixed:
            break
        fixed = better
        looks = await _looks(asker, fixed, looks[0].part.resource, around)
        later = [told for look in looks if look.refusal is not None for told in told_by(look.refusal)]
    passes = fixed != manifest and all(look.passes for look in looks)
    return (fixed if passes else None), [msgspec.structs.replace(each, about=_later(each)) for each in later]


def _later(cause: Cause) -> str:
    return f"{cause.about}, once that is mended" if cause.about else "once that is mended"
