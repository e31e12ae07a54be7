"""The number of examples of a property, in proportion to the profile that runs: see tests/conftest.py."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 100


def examples(count: int, *, steps: int = 50) -> settings:
    """Return settings with so many examples in `make test`, and more of them in `make test-release`.

    Args:
        count: The number of examples; 100 are Hypothesis' own default.
        steps: The number of steps of a state machine.
    """
    return settings(max_examples=max(1, count * settings().max_examples // _USUAL), stateful_step_count=steps)
