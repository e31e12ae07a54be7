"""Lua 5.1, Debian's: the version of the interpreter in Argo CD."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

from testkit import debian
from testkit.api import SECONDS

_PACKAGE = "lua5.1"

_CALL = """\
obj = {value}
local result = (function()
{script}
end)()
io.write(result.status, "\\n", result.message or "")
"""


def program() -> Path:
    """Return the interpreter: this machine's, or that of Debian's package, which is fetched once.

    Raises:
        RuntimeError: The package cannot be fetched.
    """
    found = shutil.which(_PACKAGE)
    cached = Path(found) if found else debian.cached(_PACKAGE, lambda at: debian.fetch(_PACKAGE, folder=at))
    return cached if found else cached / "usr" / "bin" / _PACKAGE


def health(script: str, value: object) -> tuple[str, str]:
    """Return the status and the message of a health check of Argo CD.

    Args:
        script: The check.
        value: The object, as JSON values.
    """
    text = _CALL.format(value=_literal(value), script=script)
    done = subprocess.run(
        [str(program()), "-"], input=text, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    status, _, message = done.stdout.partition("\n")
    return status, message


def _literal(value: Any) -> str:  # noqa: ANN401 - JSON values
    """Return JSON values as an expression of Lua."""
    match value:
        case dict():
            pairs = cast("dict[str, Any]", value).items()
            return "{" + ", ".join(f"[{_literal(key)}] = {_literal(each)}" for key, each in pairs) + "}"
        case list():
            return "{" + ", ".join(map(_literal, cast("list[Any]", value))) + "}"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case None:
            return "nil"
        case _:
            return str(value).lower()
