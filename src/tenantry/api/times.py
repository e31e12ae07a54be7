"""Points in time as the API has them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Instant = Annotated[
    str,
    Meta(max_length=64, extra_json_schema={"format": "date-time"}, description="RFC 3339, as in 2027-01-31T18:00:00Z."),
]
"""An RFC 3339 time; "" means none."""
