"""Build the programs that only tests run: a test has ten minutes, in which two cores may not compile them all.

python3 tools/testprograms.py              those of `make test`
python3 tools/testprograms.py --release    those of `make test-release`, too
"""

from __future__ import annotations

import sys

from tenantry.local import build, hostedversions
from tenantry.local.progress import StreamProgress
from tenantry.local.real import kubelets

PRODUCTS = (build.DNS, build.HELM, build.S3_GATEWAY, build.SIDECAR)
RELEASE_PRODUCTS = (build.KREW, build.CLUSTER_API, build.CLUSTERCTL)


def main(arguments: list[str]) -> None:
    """Build those that are not built yet."""
    more = (*RELEASE_PRODUCTS, *hostedversions.products(), *kubelets.products()) if "--release" in arguments else ()
    with StreamProgress() as progress:
        for product in (*PRODUCTS, *more):
            build.ensure(progress, product)


if __name__ == "__main__":
    main(sys.argv[1:])
