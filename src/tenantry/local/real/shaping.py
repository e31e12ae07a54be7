"""A CNI plugin that calls the plugin `bandwidth` with a small burst; it runs as a script on each node.

containerd requests a burst of 2^32 bits, the maximum, and has no setting for it: a pod limited to 10 Mbit/s would get
its first 193 MB at full speed. This plugin sets the burst to the traffic of a tenth of a second.

    CNI_COMMAND=ADD CNI_PATH=/run/tenantry/bin ... shaping < configuration

Source: CNI specification 1.0.0, "Execution protocol"; containernetworking/plugins, plugins/meta/bandwidth.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Not the alias of tenantry.api.model: the script runs without site-packages.
Json = dict[str, Any]

SMALLEST_BITS = 2**20
"""A burst below two of the largest segments that the kernel sends would slow pods down more than requested."""
_PART_OF_A_SECOND = 10


def shaped(configuration: Json) -> Json:
    """Return the plugin's configuration with bursts that fit the rates."""
    runtime: Json = configuration.get("runtimeConfig", {})
    # containerd writes the keys with a capital letter; the plugin ignores case.
    given: dict[str, int] = runtime.get("bandwidth") or {}
    limits = {key[0].lower() + key[1:]: value for key, value in given.items()}
    for side in ("ingress", "egress"):
        rate = limits.get(f"{side}Rate", 0)
        if rate:
            limits[f"{side}Burst"] = max(rate // _PART_OF_A_SECOND, SMALLEST_BITS)
    return configuration | {"runtimeConfig": runtime | {"bandwidth": limits}} if limits else configuration


def main() -> None:
    """Execute the plugin `bandwidth` with the changed configuration as standard input."""
    text = json.dumps(shaped(json.load(sys.stdin))).encode()
    given = os.memfd_create("configuration")
    os.write(given, text)
    os.lseek(given, 0, os.SEEK_SET)
    os.dup2(given, 0)
    # The first folder may be the one of this script.
    for folder in os.environ["CNI_PATH"].split(os.pathsep):
        program = os.path.join(folder, "bandwidth")  # noqa: PTH118 - pathlib takes as long to load as all else here
        if os.access(program, os.X_OK):
            os.execv(program, [program])
    raise FileNotFoundError("there is no plugin bandwidth in CNI_PATH")


if __name__ == "__main__":
    main()
