"""How the command ends with errors that came together."""

from __future__ import annotations

from tenantry.api.errors import LocalError, NotFound
from tenantry.cli.main import reportable


def test_errors_of_tasks_are_told_as_one_line_each() -> None:
    """What failed within what failed, each message once, in order."""
    inner = ExceptionGroup("unhandled errors in a TaskGroup", [NotFound("no node", status=404), LocalError("crashed")])
    group = ExceptionGroup("unhandled errors in a TaskGroup", [LocalError("crashed"), inner])
    assert [str(error) for error in reportable(group)] == ["crashed", "no node"]
    assert reportable(group)[0].exit_code == LocalError("").exit_code


def test_a_bug_among_them_is_shown_as_one() -> None:
    """The traceback of an unexpected error is not hidden behind an expected one."""
    group = ExceptionGroup("unhandled errors in a TaskGroup", [LocalError("crashed"), TypeError("a bug")])
    assert reportable(group) == []
