"""What the log of a process says of errors."""

from __future__ import annotations

import json
import logging

import pytest

from tenantry.engine.jsonlines import JsonLines, soften_closed


def line(logger: str, error: Exception) -> dict[str, str]:
    """Return the line of an error, as the handler of `log_to` writes it."""
    about = (type(error), error, error.__traceback__)
    record = logging.LogRecord(logger, logging.ERROR, "", 0, "Fatal error", None, about)
    assert soften_closed(record)
    return json.loads(JsonLines().format(record))


def test_a_connection_that_ends_during_a_write_is_no_error() -> None:
    found = line(
        "asyncio", RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
    )
    assert found["level"] == "warning"
    assert found["message"].startswith("a connection ended during a write: unable")
    assert "exception" not in found


@pytest.mark.parametrize(
    ("logger", "error"),
    [
        ("asyncio", RuntimeError("this event loop is already running")),
        ("asyncio", ValueError("the handler is closed")),
        ("tenantry", RuntimeError("the handler is closed")),
    ],
)
def test_other_errors_stay_errors(logger: str, error: Exception) -> None:
    found = line(logger, error)
    assert (found["level"], found["message"]) == ("error", "Fatal error")
    assert str(error) in found["exception"]
