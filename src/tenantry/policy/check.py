"""A check: one expression that the API server evaluates, and the same decision in Python.

A rule, as `images.allowed`, is all checks with its path. The checks of a family of rules stand in one file below
`policy/rules/`, each with its CEL, its Python, what `tenantry explain denied --fix` changes, an example that it refuses
and a note for the reference page. `policy/catalog.py` lists the families; everything else is derived from there.

Expressions see what a ValidatingAdmissionPolicy sees, and these variables (`variables.` before each):

    refused, allowed, patterns, maxima, required, chosen   the maps of one section of the TenancyRules; see api/
    the variables of the check and of its `RuleTarget`         as `all`: every container of a pod

Source: Kubernetes, "Validating Admission Policy" and "Common Expression Language in Kubernetes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import re2 as untyped_re2

from tenantry.api.tenancyrules import Bound, Listed, Section
from tenantry.policy.request import Item, Json, Request, Review
from tenantry.world.rules import bounds_of

_re2 = cast("Any", untyped_re2)

FORMS = ("refused", "allowed", "patterns", "maxima", "required", "chosen")
"""The maps of a section."""

SHOWN = 200
"""How many characters of a list a message shows."""

Problem = tuple[str, str, str]
"""What is wrong, the source of the rule, and what would pass."""

Mend = Callable[[Item, Section], None]
"""Changes an object, or an item of it such as a container, so that the rules of a section accept it."""


class CheckScope(msgspec.Struct, frozen=True, kw_only=True):
    """The values in an object that a check decides on: the object itself, or each of its containers or host names.

    Args:
        target: The name of the `RuleTarget`.
        path: CEL: the text by which a message names the value, as in "container 'web'".
        values: Python: the same text, and the value.
        among: The CEL variable with the values, each of which is `c` in expressions; "" for the object itself.
        held: Python: the same text, and the part of a manifest that a `Mend` changes.
        sample: Python: an object that no rule refuses, with a fragment merged into the value.
    """

    target: str
    path: str
    values: Callable[[Review], Iterable[tuple[str, Any]]]
    among: str = ""
    held: Callable[[Item], Iterable[tuple[str, Item]]]
    sample: Callable[[Json], Item]


class RuleCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a rule.

    Args:
        rule: The path of the rule, as in images.allowed.
        form: The map of the section with the rule; a check accepts everything while the rule is not there.
        scope: The values that it decides on.
        bad: CEL: whether the rule refuses the object, or the value `c`.
        usual: Whether `bad` holds for most objects: then the API server looks for the rule first.
        what: CEL: what is wrong; evaluated only if `bad` holds, as are `source` and `fix`.
        source: CEL: the source of the rule.
        fix: CEL: what would pass.
        judge: Python: the three as text; None for a value that passes.
        whole: Whether the rule is there if the map has anything: its keys are resources instead of paths of rules.
        bind: CEL in which `{}` stands for the message: it binds the names that the parts of the message use.
        variables: Name to CEL: variables beside those of the target.
        mend: Changes the value in a manifest so that the check accepts it; None if only the author can.
        example: A fragment of a manifest that the rule refuses.
        given: The value of the rule, as written in a Tenant, that refuses the example; None for Refuse or [].
        note: Markdown for the reference page, beyond the description of the field in api/rules.py.
    """

    rule: str
    form: str
    scope: CheckScope
    bad: str
    what: str
    source: str
    fix: str
    judge: Callable[[Any, Review], Problem | None]
    usual: bool = False
    whole: bool = False
    bind: str = "{}"
    variables: Mapping[str, str] = {}
    mend: Mend | None = None
    example: Mapping[str, Any]
    given: object = None
    note: str = ""

    @property
    def is_set(self) -> str:
        """Return CEL: whether the rule is there."""
        variable = f"variables.{self.form}"
        return f"size({variable}) > 0" if self.whole else f"{quoted(self.rule)} in {variable}"

    @property
    def suspects(self) -> str:
        """Return CEL: whether the rule refuses the object, or its value `c`; the cheaper condition comes first."""
        return f"{self.is_set} && ({self.bad})" if self.usual else f"({self.bad}) && {self.is_set}"

    @property
    def message(self) -> str:
        """Return CEL: the message, '' if the object passes; `str(Violation)` is the same in Python."""
        text = f"{self.scope.path} + ' ' + {self.what} + ' (rule {self.rule} of ' + {self.source} + '): ' + {self.fix}"
        bound = self.bind.replace("{}", text)
        if not self.scope.among:
            return f"{self.is_set} && ({self.bad}) ? {bound} : ''"
        # CEL has no `first`: the appended text makes [0] valid if no value is bad.
        return f"{self.is_set} ? ({self.scope.among}.map(c, {self.bad}, {bound}) + [''])[0] : ''"

    def violations(self, review: Review) -> list[Violation]:
        """Return every value of a request that the rule refuses; [] if the rule is not there."""
        if not self.is_in(review.rules):
            return []
        judged = [(path, self.judge(value, review)) for path, value in self.scope.values(review)]
        return [
            Violation(rule=self.rule, path=path, what=problem[0], source=problem[1], fix=problem[2], check=self)
            for path, problem in judged
            if problem is not None
        ]

    def is_in(self, section: Section) -> bool:
        """Return whether the rule is in a section; `is_set` in Python."""
        form: Mapping[str, object] = getattr(section, self.form)
        return bool(form) if self.whole else self.rule in form

    def section(self, source: str) -> Section:
        """Return a section with this rule alone, which refuses the example."""
        given: Any = self.given or ()
        match self.form:
            case "refused":
                return Section(refused={self.rule: source})
            case "allowed":
                return Section(allowed={self.rule: Listed(source=source, values=tuple(given))})
            case "patterns":
                return Section(patterns={self.rule: (Listed(source=source, values=tuple(given)),)})
            case "maxima":
                bounds = bounds_of(self.rule, given).items()
                return Section(maxima={key: Bound(source=source, value=value) for key, value in bounds})
            case "required":
                return Section(required=dict.fromkeys(given, source))
            case _:
                return Section(chosen={self.rule: Bound(source=source, value=given)})


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a request that a rule refuses.

    Args:
        rule: The path below `rules` in a Tenant, as in images.allowed.
        source: The object that sets it, as in "Tenant 'acme'".
        path: The value, as in "container 'web'".
        what: What is wrong with it.
        fix: What would pass.
        check: The check that refuses it; None for a rule that is not a check (see `storage.kept`).
    """

    rule: str
    source: str
    path: str
    what: str
    fix: str
    check: RuleCheck | None = None

    def __str__(self) -> str:
        """Return the text that the API server answers with; see `RuleCheck.message`."""
        return f"{self.path} {self.what} (rule {self.rule} of {self.source}): {self.fix}"

    def mend(self, manifest: Item, rules: Section) -> None:
        """Change the value in a manifest so that the rule accepts it, if the check knows how."""
        if self.check is not None and self.check.mend is not None:
            for path, held in self.check.scope.held(manifest):
                if path == self.path:
                    self.check.mend(held, rules)


class RuleTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds of objects that are checked together: one ValidatingAdmissionPolicy.

    Args:
        name: The policy's, after "tenantry-rules-".
        group: The API group.
        resources: Plurals, and plural/subresource.
        more: Further API groups and their resources.
        conditions: Name to CEL: the matchConditions; they see neither variables nor rules.
        variables: Name to CEL, in the order in which they are used.
        concerns: Whether the conditions hold, in Python.
        operations: CREATE and UPDATE, or one of them.
        templates: API groups and plurals of objects that create such objects; for these every rule only warns.
        unread: Labels of objects that controllers create: no person reads the warnings about these objects.
        marked: The label of the namespaces that it is for; "" for all namespaces of tenants.
        missing: What happens to a request while there are no rules: Deny, or Allow if the operator enforces them, too.
        many: There are so many that the cost of an honest one matters. Then labels of the namespace may only excuse:
            a check must not refuse more if a label is there.
        spared: Whether it is not for the operator's requests, which hold what others wrote.
        is_rarely_reported: Whether most namespaces have no rule about it that warns or audits, although they have such
            rules about others: a label of its own selects those that have one.
    """

    name: str
    group: str
    resources: tuple[str, ...]
    conditions: Mapping[str, str]
    variables: Mapping[str, str]
    concerns: Callable[[Request], bool]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    templates: tuple[tuple[str, tuple[str, ...]], ...] = ()
    unread: tuple[str, ...] = ()
    marked: str = ""
    missing: str = "Deny"
    many: bool = False
    more: tuple[tuple[str, tuple[str, ...]], ...] = ()
    spared: bool = False
    is_rarely_reported: bool = False

    @property
    def groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return each API group with its resources."""
        return ((self.group, self.resources), *self.more)

    def matches(self, request: Request) -> bool:
        """Return whether the policy is evaluated for a request."""
        resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        return (
            any(request.group == group and resource in plurals for group, plurals in self.groups)
            and request.operation in self.operations
            and (not self.marked or self.marked in request.namespace_labels)
            and self.concerns(request)
        )


# -- CEL ------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a string literal of CEL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def listed(values: Sequence[str]) -> str:
    """Return a list literal of CEL."""
    return f"[{', '.join(map(quoted, values))}]"


def has(*path: str) -> str:
    """Return CEL: whether a field is there, and all those above it."""
    first, *rest = path
    steps = [f"{first}.{'.'.join(rest[: length + 1])}" for length in range(len(rest))]
    return " && ".join(f"has({step})" for step in steps)


ONE_OF = "must be one of"


def one_of(values: str, must: str = ONE_OF) -> str:
    """Return CEL: "must be one of …" for a list of strings."""
    joined = f"{values}.join(', ')"
    told = (
        f"(size({values}) == 0 ? 'leave it out' : 'must be one of ' + (size({joined}) > {SHOWN}"
        f" ? {joined}.substring(0, {SHOWN}) + '…' : {joined}))"
    )
    return told if must == ONE_OF else f"{told}.replace('{ONE_OF}', {quoted(must)}, 1)"


def told_one_of(values: Sequence[str], must: str = ONE_OF) -> str:
    """Return the same in Python."""
    joined = ", ".join(values)
    if not values:
        return "leave it out"
    return f"{must} " + (joined[:SHOWN] + "…" if len(joined) > SHOWN else joined)


# -- patterns -------------------------------------------------------------------------------------


def matches(pattern: str, value: str) -> bool:
    """Return whether the whole of a value matches a pattern, as the API server's RE2 decides it.

    A pattern that does not parse matches nothing: the API server refuses the request then, too.
    """
    try:
        # The group keeps an alternation from binding each anchor to one side only: ^a|b$ matches "ax".
        return bool(_re2.search(f"^(?:{pattern})$", value))
    except _re2.error:
        return False
