"""The build hook: profile files become ``launcher/profiles.json``, validated, before the wheel is packed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Profiles(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version`` "editable" writes into the source tree all the same: a start reads the file there."""
        root = Path(self.root)
        sys.path.insert(0, str(root))
        from launcher.profiles.compile import write

        write(str(root / "profiles"), str(root / "launcher" / "profiles.json"))
        build_data["artifacts"].append("launcher/profiles.json")
