"""The rules of `spec.version`: a control plane gets an earlier version only with a restore, and skips none.

A kind that has these rules has `spec.version` and `status.version`.
"""

from __future__ import annotations

from tenantry.api.crd import Rule

VERSION_PATTERN = r"^(1[.][1-9][0-9]{0,2})?$"
"""Of `spec.version`: a minor version, because there is one patch release of each."""

MINOR_PATTERN = r"^1[.][1-9][0-9]{0,2}$"
"""Of a minor version that must be given."""


def _given(of: str, path: str) -> str:
    """Return a text of a spec in CEL; "" if it is not set."""
    parts = path.split(".")
    steps = [f"{of}.{'.'.join(parts[: count + 1])}" for count in range(len(parts))]
    return f"({' && '.join(f'has({each})' for each in steps)} ? {steps[-1]} : '')"


_WANTED, _BEFORE = (_given(of, "spec.version") for of in ("self", "oldSelf"))
_RUNNING = "int(self.status.version.split('.')[1])"
_MAY_BE_ANY = (
    f"{_WANTED} == {_BEFORE} || {_WANTED} == '' || !has(self.status) || !has(self.status.version)"
    " || !self.status.version.matches('^1[.][0-9]+[.]')"
)
_NUMBER = f"int({_WANTED}.split('.')[1])"
_RESTORES = " != ".join(_given(of, "spec.snapshots.restore") for of in ("self", "oldSelf"))

_SKIPS_NONE = Rule(
    f"{_MAY_BE_ANY} || {_NUMBER} <= {_RUNNING} + 1",
    "must be at most one minor version after status.version: Kubernetes does not skip minor versions",
    field="spec.version",
)

VERSION_RULES = (
    Rule(
        f"{_MAY_BE_ANY} || {_NUMBER} >= {_RUNNING} || {_RESTORES}",
        "must not be before status.version: an earlier version needs a restore of a snapshot of that version in the"
        " same change (`tenantry vcp restore --version`, `tenantry cluster restore --version`)",
        field="spec.version",
    ),
    _SKIPS_NONE,
)
"""The restore and the version change together."""
