"""How rules are declared: the types of their fields, and their values in each standard.

`api/rules.py` declares every rule with these; `api/rulefields.py` reads the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from tenantry.api.crd import Rule, rules
from tenantry.api.model import Model
from tenantry.api.names import PLAIN

MAX_NAMES = 64
MAX_PATTERNS = 32


class Action(StrEnum):
    """What the API server does with a request that violates a rule: reject it, warn, or write an audit annotation."""

    ENFORCE = "Enforce"
    WARN = "Warn"
    AUDIT = "Audit"


class Standard(StrEnum):
    """A complete set of rules, which holds where no administrator sets a rule (decision 8)."""

    BASELINE = "Baseline"
    RESTRICTED = "Restricted"


class Permission(StrEnum):
    """Whether a rule allows or refuses what its field describes."""

    ALLOW = "Allow"
    REFUSE = "Refuse"


class PodSecurityLevel(StrEnum):
    """A level of the Pod Security Standards; each has all that the one before it has."""

    PRIVILEGED = "Privileged"
    BASELINE = "Baseline"
    RESTRICTED = "Restricted"


class Seccomp(StrEnum):
    """Which seccomp profiles containers may have."""

    ANY = "Any"
    CONFINED = "Confined"
    REQUIRED = "Required"


class PullPolicy(StrEnum):
    """When an image is fetched anew."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class ImageCredentials(StrEnum):
    """Whether kubelets check the credentials of a pod for an image that the node already has."""

    UNVERIFIED = "Unverified"
    VERIFIED = "Verified"


class ServiceType(StrEnum):
    """How a Service is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class ReclaimPolicy(StrEnum):
    """What becomes of a volume whose claim is gone."""

    DELETE = "Delete"
    RETAIN = "Retain"


DECLARED_STANDARDS, DECLARED_WARNED, DECLARED_LEVELS, DECLARED_PATTERNS = "standards", "warned", "levels", "patterns"
"""The keys of what `about` and `control` declare; see rulefields.py."""

_PARSES = Rule(
    "self.all(p, ''.matches(p) in [true, false] && ''.matches('^(?:' + p + ')$') in [true, false])",
    "must have only regular expressions in the syntax of RE2, as in registry[.]example[.]com/.*",
)

PATTERN_PARSES = Rule(
    "oldSelf.hasValue() && oldSelf.value() == self"
    " || ''.matches(self) in [true, false] && ''.matches('^(?:' + self + ')$') in [true, false]",
    "must be a regular expression in the syntax of RE2, as in team-[a-z]+",
    knows_old=True,
)
"""Of a single pattern; a lookahead, a backreference or a possessive quantifier is none of RE2.

An unchanged pattern passes. A wrong one ends the evaluation with an error, and Kubernetes ratchets only results that
are false: the operator could not write the status of its tenant any more.
"""

ARE_CIDRS = Rule("self.all(c, isCIDR(c))", "must have only CIDRs, as in 203.0.113.0/24")
DOMAIN_PATTERN = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

ActionField = Annotated[
    Action, Meta(description="Enforce: refused. Warn: allowed, with a warning. Audit: noted in the audit log.")
]


class RuleModel(Model, frozen=True, kw_only=True):
    """The base of every rule."""

    action: ActionField = Action.ENFORCE


NameList = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=253, pattern=PLAIN)], ...], Meta(max_length=MAX_NAMES)
]
PairList = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=381, pattern=PLAIN)], ...], Meta(max_length=MAX_NAMES)
]
PatternList = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=256, pattern=PLAIN)], ...],
    Meta(max_length=MAX_PATTERNS, extra_json_schema=rules(_PARSES), extra={DECLARED_PATTERNS: True}),
]

SHARED_LABELS = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
"""Labels that many nodes share: a pod that selects by them chooses no single node."""


def about(description: str, standard: object = None, *, restricted: object = None, warned: object = None) -> Meta:
    """Return the declaration of a rule.

    Args:
        description: Its documentation in the CRD.
        standard: Its value in both standards (decision 8); None if nothing is limited.
        restricted: Its value in the standard Restricted, if it has another one there.
        warned: The value that the standard Baseline only warns about; None if it does not warn.
    """
    values = {Standard.BASELINE: standard, Standard.RESTRICTED: standard if restricted is None else restricted}
    declared = {name: value for name, value in values.items() if value is not None}
    return Meta(description=description, extra={DECLARED_STANDARDS: declared, DECLARED_WARNED: warned})


def strict(description: str) -> Meta:
    """Return the declaration of a switch that Restricted sets to Refuse, and about which Baseline warns."""
    return about(description, restricted=Permission.REFUSE, warned=Permission.REFUSE)


def control(description: str, levels: Mapping[PodSecurityLevel, object]) -> Meta:
    """Return the declaration of a control of the Pod Security Standards.

    Args:
        description: Its documentation in the CRD.
        levels: PodSecurityLevel to the value that the rule has from that level on.
    """
    return Meta(description=description, extra={DECLARED_LEVELS: levels})


IN_BASELINE = {PodSecurityLevel.BASELINE: Permission.REFUSE}
IN_STRICT = {PodSecurityLevel.RESTRICTED: Permission.REFUSE}
