"""The `--name` of verbs that are about a local cluster."""

from __future__ import annotations

import click

name_option = click.option(
    "--name", default="default", show_default=True, envvar="TENANTRY_NAME", help="Local cluster to use."
)
