"""`tenantry vcp audit-log` (H02): what clients of a control plane write into its audit log."""

from __future__ import annotations

import json

from tenantry.cli import auditlog, output

AGENT = "curl\x85{}\x9b2J\x7f\u2028"


def test_an_event_stays_one_line_of_json_whatever_its_client_has_sent() -> None:
    # As Go writes it: control characters below the space are escaped, those above 126 are not.
    line = json.dumps({"userAgent": AGENT}, ensure_ascii=False)
    found = auditlog.events(f"{line}\n{line}\n")
    assert found == [line, line]
    assert json.loads(auditlog.shown(line)) == {"userAgent": AGENT}


def test_no_control_character_reaches_the_terminal() -> None:
    assert auditlog.shown("a\x1b[31mb\x9b") == r"a\u001b[31mb\u009b"
    assert output.visible("\x85") == r"\x85"  # no JSON
