"""The `--cluster` of verbs that are about a local cluster."""

from __future__ import annotations

from tenantry.cli import spellings

name_option = spellings.option(
    "--cluster",
    "name",
    old="--name",
    default="default",
    show_default=True,
    envvar="TENANTRY_NAME",
    help="Local cluster to use.",
)
