"""What a check is: one rule, the expression by which the API server goes, and the same in Python.

An expression sees what a policy of Kubernetes sees, and these variables (`variables.` before each):

    refused, allowed, patterns, maxima, required, chosen   the maps of one section of the TenancyRules; see api/
    whatever else the check's `Subject` has                as `all`: every container of a pod

Source: Kubernetes, "Validating Admission Policy" and "Common Expression Language in Kubernetes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import re2 as untyped_re2

from tenantry.policy.request import Finding, Judged, Request

_re2 = cast("Any", untyped_re2)

FORMS = ("refused", "allowed", "patterns", "maxima", "required", "chosen")
"""The maps of a section."""

SHOWN = 200
"""How many characters of a list a message shows."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One rule about one kind of object.

    Args:
        rule: Its path, as in images.allowed.
        form: The map of the section that it stands in; it says nothing where it is not there.
        bad: CEL: whether the rule is against the object, or against the item `c`.
        each: The variable whose items it is about, one by one; "" where it is about the object.
        usual: `bad` is so of most objects: then the rule is looked for first.
        path: CEL: what of the object is meant, a string; evaluated only where it is bad, as the next three.
        what: CEL: what is wrong with that.
        source: CEL: who set the rule.
        fix: CEL: what would pass.
        find: The same in Python, asked only where the rule is there: the first finding is what CEL tells.
        whole: It is there where the map has anything: each key of the map is a resource that the rule is about.
        bind: CEL in which `{}` stands for the message: it binds the names that the parts of the message use.
    """

    rule: str
    form: str
    bad: str
    path: str
    what: str
    source: str
    fix: str
    find: Callable[[Judged], Iterable[Finding]]
    each: str = ""
    usual: bool = False
    bind: str = "{}"
    whole: bool = False

    @property
    def is_set(self) -> str:
        """Return CEL that tells whether the rule is there."""
        variable = f"variables.{self.form}"
        return f"size({variable}) > 0" if self.whole else f"{quoted(self.rule)} in {variable}"

    @property
    def suspects(self) -> str:
        """Return CEL that tells the same of the object, or of its item `c`, by what is cheapest."""
        return f"{self.is_set} && ({self.bad})" if self.usual else f"({self.bad}) && {self.is_set}"

    @property
    def message(self) -> str:
        """Return the message in CEL, '' where the object passes; `str(Finding)` is the same in Python."""
        text = f"{self.path} + ' ' + {self.what} + ' (rule {self.rule} of ' + {self.source} + '): ' + {self.fix}"
        bound = self.bind.replace("{}", text)
        if not self.each:
            return f"{self.is_set} && ({self.bad}) ? {bound} : ''"
        return f"{self.is_set} ? ({self.each}.map(c, {self.bad}, {bound}) + [''])[0] : ''"

    def findings(self, judged: Judged) -> list[Finding]:
        """Return what the rule has against a request; [] where it is not set."""
        form: Mapping[str, object] = getattr(judged.rules, self.form)
        is_set = bool(form) if self.whole else self.rule in form
        return list(self.find(judged)) if is_set else []


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of objects, with everything that is checked of it: one policy in the API server.

    Args:
        name: Of the policy, behind "tenantry-rules-".
        group: The API group.
        resources: Plurals, and plural/subresource.
        conditions: Name to CEL: when it is asked at all; they know no variables and no rules.
        variables: Name to CEL, in the order in which they are used.
        checks: In the order in which they are told.
        concerns: Whether the conditions hold, in Python.
        operations: CREATE and UPDATE, or only one of them.
        templates: API groups and plurals of what such objects are made from: what is enforced only warns there.
        marked: The label of the namespaces that it is about; "" for all of every tenant.
        missing: What comes of a request where there are no rules yet: Deny, or Allow where the operator goes by them,
            too.
        many: There are so many of them that it counts what an honest one costs the API server. Then labels of the
            namespace only excuse: a check finds nothing more where one is there.
    """

    name: str
    group: str
    resources: tuple[str, ...]
    conditions: Mapping[str, str]
    variables: Mapping[str, str]
    checks: Sequence[Check]
    concerns: Callable[[Request], bool]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    marked: str = ""
    missing: str = "Deny"
    many: bool = False
    templates: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def findings(self, judged: Judged) -> list[Finding]:
        """Return everything that the rules have against a request, in the API server's order."""
        request = judged.request
        resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        if request.group != self.group or resource not in self.resources or request.operation not in self.operations:
            return []
        if not self.concerns(request) or (self.marked and self.marked not in request.namespace_labels):
            return []
        return [finding for check in self.checks for finding in check.findings(judged)]


# -- CEL ------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a string as CEL writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def one_of(values: str) -> str:
    """Return CEL for "must be one of …" of a list of strings."""
    joined = f"{values}.join(', ')"
    return (
        f"(size({values}) == 0 ? 'leave it out' : 'must be one of ' + (size({joined}) > {SHOWN}"
        f" ? {joined}.substring(0, {SHOWN}) + '…' : {joined}))"
    )


def told_one_of(values: Sequence[str]) -> str:
    """Return the same in Python."""
    joined = ", ".join(values)
    if not values:
        return "leave it out"
    return "must be one of " + (joined[:SHOWN] + "…" if len(joined) > SHOWN else joined)


# -- patterns -------------------------------------------------------------------------------------

MATCHES = "v.matches('^(?:' + p + ')$')"
"""CEL: whether the whole of `v` matches the pattern `p`."""


def matches(pattern: str, value: str) -> bool:
    """Tell whether the whole of a value matches a pattern, as the API server's RE2 does.

    A pattern that does not parse matches nothing: the API server refuses the request then, too.
    """
    try:
        return bool(_re2.search(f"^(?:{pattern})$", value))
    except _re2.error:
        return False
