"""Build the programs that only tests run: a test has ten minutes, in which two cores may not compile them all."""

from __future__ import annotations

from tenantry.local import build
from tenantry.local.progress import StreamProgress

PRODUCTS = (build.DNS, build.S3_GATEWAY, build.SIDECAR)


def main() -> None:
    """Build those that are not built yet."""
    with StreamProgress() as progress:
        for product in PRODUCTS:
            build.ensure(progress, product)


if __name__ == "__main__":
    main()
