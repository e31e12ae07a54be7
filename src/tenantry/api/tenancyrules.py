"""TenancyRules: what rules are in force in a namespace, as the policies in the API server read them.

Only the operator writes them, and users of a namespace may read them. A namespace with rules of its own has an object
of its own; all others share the object in Tenantry's own namespace.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import AGE, Column, Names, Rule
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import KEEP, READ, KindAccess, KubernetesObject, Model, Resource

NAME = "tenantry"
"""The name of every object."""

MAPS = {"enforce": "tenantry-rules", "warn": "tenantry-rules-warn", "audit": "tenantry-rules-audit"}
"""Section to the name of the `PolicyParameters` beside it in which policies read that section; see policy/text.py."""

OWN_MARK = "tenantry.dev/rules"
"""On a namespace that has an object of its own: the value is always "own".

Also on every object with parameters of policies: the value is a section, or says what else they are for.
"""

EXISTING_VOLUMES_MARK = "tenantry.dev/existing-volumes"
"""On a namespace whose claims may be bound to volumes that exist already. The value is always "Allow"."""

LIMIT, RATIO, SIZE, SECONDS = "limit:", "ratio:", "size:", "seconds:"
"""Before a key among the maxima: the resources of containers.maxLimits and containers.limitRatios, the kinds of
objects.maxSizes, and what tokens.maxSeconds bounds.

No resource has a colon in its name.
"""

TOKEN = "token"  # noqa: S105 - the name of a key
"""The only key after `SECONDS`."""

PULL_MARK = "tenantry.dev/image-pull"
"""On a namespace where images.cached is refused: pods pull their images always. The value is always "Always"."""

RECLAIMED = "Delete"
"""The reclaim policy of volumes in a namespace without the label."""

MAX_RULES = 128
"""The most rules of one form."""


def action_mark(section: str, target: str = "") -> str:
    """Return the label of a namespace that has rules of a section: no other pays for the policies of that action.

    The value is always "true".

    Args:
        section: warn or audit.
        target: The name of a kind of object; "" for any kind.
    """
    return f"tenantry.dev/rules-{section}" + (f"-{target}" if target else "")


def reclaim_mark(section: str) -> str:
    """Return the label of a namespace with its reclaim policies, if they are not the standard.

    The value is reclaim policies with dots between them: the policy on claims does not see the TenancyRules.

    Args:
        section: enforce, warn or audit.
    """
    return "tenantry.dev/reclaim-policies" + ("" if section == "enforce" else f"-{section}")


class Listed(Model, frozen=True, kw_only=True):
    """Values, or patterns, and who set them."""

    source: str
    values: Annotated[tuple[Annotated[str, Meta(max_length=512)], ...], Meta(max_length=512)]


class Bound(Model, frozen=True, kw_only=True):
    """A value, and who set it."""

    source: str
    value: str


class Section(Model, frozen=True, kw_only=True):
    """Rules with the same action. Keys are the paths of rules below `rules` in a Tenant, or names of resources.

    A path that is not there is not limited. Who set a rule is named as in "Tenant 'acme'".
    """

    refused: Annotated[
        dict[str, str], Meta(max_length=MAX_RULES, description="Rule to who set it: what it is about may not be.")
    ] = {}
    allowed: Annotated[
        dict[str, Listed], Meta(max_length=MAX_RULES, description="Rule to the values of which each must be one.")
    ] = {}
    patterns: Annotated[
        dict[str, Annotated[tuple[Listed, ...], Meta(max_length=64)]],
        Meta(
            max_length=MAX_RULES,
            description="Rule to lists of regular expressions (RE2): a whole value matches one of each list.",
        ),
    ] = {}
    maxima: Annotated[
        dict[str, Bound],
        Meta(
            max_length=192,
            description="Resource to the most for a container; limit:RESOURCE to the most for its limit; ratio:RESOURCE"
            " to the most for its limit, as a multiple of its request; size:KIND to the most bytes of an object;"
            " seconds:token to the most seconds of a token.",
        ),
    ] = {}
    required: Annotated[
        dict[str, str], Meta(max_length=64, description="Resource of which a container needs a limit, to who set it.")
    ] = {}
    chosen: Annotated[
        dict[str, Bound], Meta(max_length=64, description="Rule to what is used where none is named.")
    ] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether it limits nothing."""
        return self == Section()


class TenancyRulesSpec(Model, frozen=True, kw_only=True):
    """What is refused, what is warned of, and what is noted."""

    enforce: Annotated[Section, Meta(description="What is refused.")] = Section()
    warn: Annotated[Section, Meta(description="What is allowed with a warning.")] = Section()
    audit: Annotated[Section, Meta(description="What is noted in the audit log.")] = Section()


class TenancyRules(KubernetesObject, frozen=True, kw_only=True):
    """The rules in force in a namespace, those of all levels above it merged; Tenantry alone writes them."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "tenancyrules", "TenancyRules")
    names: ClassVar[Names] = Names(short=("trules",), categories=())
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, owners=READ)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(f"self.metadata.name == '{NAME}'", f"must be {NAME}", field="metadata.name"),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Level", "string", ".spec.enforce.chosen.podSecurity\\.level.value"),
        AGE,
    )

    spec: TenancyRulesSpec
