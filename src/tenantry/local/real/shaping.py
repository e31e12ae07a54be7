"""A CNI plugin that gives the plugin `bandwidth` a bucket of a sane size; it runs as a script of its own on each node.

containerd asks for buckets of 2^32 bits, the most that there is, and has no setting for it: a pod limited to 10 Mbit/s
would get its first 193 MB at full speed. Here a bucket holds what the rate lets through in a tenth of a second.

    CNI_COMMAND=ADD CNI_PATH=/run/tenantry/bin ... shaping < configuration

Source: CNI specification 1.0.0, "Execution protocol"; containernetworking/plugins, plugins/meta/bandwidth.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SMALLEST_BITS = 2**20
"""Less than two of the largest packets that the kernel hands on in one piece would slow down more than asked for."""
_PART_OF_A_SECOND = 10


def shaped(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of the plugin with buckets that fit the rates."""
    runtime: dict[str, Any] = configuration.get("runtimeConfig", {})
    # containerd writes them with a capital letter, the plugin reads them with any.
    given: dict[str, int] = runtime.get("bandwidth") or {}
    limits = {key[0].lower() + key[1:]: value for key, value in given.items()}
    for side in ("ingress", "egress"):
        rate = limits.get(f"{side}Rate", 0)
        if rate:
            limits[f"{side}Burst"] = max(rate // _PART_OF_A_SECOND, SMALLEST_BITS)
    return configuration | {"runtimeConfig": runtime | {"bandwidth": limits}} if limits else configuration


def main() -> None:
    """Become the plugin `bandwidth`, with another standard input."""
    text = json.dumps(shaped(json.load(sys.stdin))).encode()
    given = os.memfd_create("configuration")
    os.write(given, text)
    os.lseek(given, 0, os.SEEK_SET)
    os.dup2(given, 0)
    # The first folder is the one of this script.
    for folder in os.environ["CNI_PATH"].split(os.pathsep):
        program = os.path.join(folder, "bandwidth")  # noqa: PTH118 - pathlib takes as long to load as all else here
        if os.access(program, os.X_OK):
            os.execv(program, [program])
    raise FileNotFoundError("there is no plugin bandwidth in CNI_PATH")


if __name__ == "__main__":
    main()
