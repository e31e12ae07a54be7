"""The images of control planes in Pods, one for each version of Kubernetes: pure.

--hosted-image IMAGE --hosted-image 1.35=OTHER ─► the default version has IMAGE, 1.35 has OTHER
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api.errors import InputError
from tenantry.hosting import versions
from tenantry.hosting.versions import HostedVersion

KUBERNETES = "1.36.3"
"""The default version of this version of Tenantry; the operator of a cluster has no sources to read it from."""

DEFAULT = HostedVersion(name=versions.minor(KUBERNETES), kubernetes=KUBERNETES, is_default=True)

OTHERS = (HostedVersion(name="1.35", kubernetes="1.35.4"),)
"""The other versions that an image can have, the oldest first."""


class VersionImages(msgspec.Struct, frozen=True, kw_only=True):
    """The images of all versions.

    Args:
        default: That of the default version.
        others: Those of other versions, by their names.
    """

    default: str
    others: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])

    def of(self, version: str) -> str:
        """Return the image of a version; "" is the default one."""
        return self.others.get(version, self.default)

    def versions(self) -> tuple[HostedVersion, ...]:
        """Return the versions that have an image, the oldest first."""
        return (*(each for each in OTHERS if each.name in self.others), DEFAULT)

    def values(self) -> tuple[str, ...]:
        """Return the values of the flag for the other versions, as `read` takes them."""
        return tuple(f"{name}={image}" for name, image in sorted(self.others.items()))


def read(values: Sequence[str]) -> VersionImages | None:
    """Return the images that the values of the flag name; None if there are none.

    Args:
        values: IMAGE or VERSION=IMAGE.

    Raises:
        InputError: The default image is missing, or one is given twice or wrong.
    """
    found: dict[str, str] = {}
    for value in values:
        name, equals, image = value.rpartition("=")
        version = name if equals else ""
        known = {"", *(each.name for each in OTHERS)}
        if version not in known:
            raise InputError(
                f"--hosted-image: {version!r} is not another version of Kubernetes than the default one"
                f" ({DEFAULT.name}): choose {', '.join(sorted(known - {''}))}, or give the image alone"
            )
        if not image or image != "".join(image.split()):
            raise InputError(f"--hosted-image: {value!r} must be IMAGE or VERSION=IMAGE")
        if version in found:
            raise InputError(f"--hosted-image: there are two images of {version or DEFAULT.name}: leave one out")
        found[version] = image
    if found and "" not in found:
        raise InputError(
            f"--hosted-image with the image of {DEFAULT.name} is missing, which new control planes have by default"
        )
    return VersionImages(default=found.pop(""), others=found) if found else None
