"""Marks the wheel as one of a platform: its programs are static, so only the architecture matters."""

from __future__ import annotations

import platform
from typing import Any, ClassVar

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from typing_extensions import override


class PlatformHook(BuildHookInterface[Any]):
    """Sets the tag of the wheel. Source: Python Packaging User Guide, "Platform compatibility tags"."""

    _MACHINES: ClassVar = ("x86_64", "aarch64")

    @override
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the tag before the wheel is built.

        Raises:
            ValueError: The platform has no tag.
        """
        machine = platform.machine()
        if platform.system() != "Linux" or machine not in self._MACHINES:
            raise ValueError(f"no wheel for {platform.system()} on {machine}: build it on Linux, x86_64 or aarch64")
        # Static programs need neither the C library of manylinux nor that of musllinux.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"
