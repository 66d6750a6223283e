"""Compiles the scoring helper (``scoring/native.c``) while a wheel or an editable install is made.

Without a C compiler the wheel is pure Python, and numpy does the helper's work. ``CC`` names another compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno")
"""Neither contracted nor reordered: results must equal numpy's to the last bit."""


class HelperHook(BuildHookInterface):
    """Adds the helper to what is built, where it can be made."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        """Compile beside the source; ``version`` is "standard" or "editable"."""
        del version
        platform = sysconfig.get_platform()
        library = Path(self.root) / "scoring" / f"_native-{platform}.so"
        if not self._compiled(library):
            return
        build_data["artifacts"] = [f"/scoring/{library.name}"]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"

    def _compiled(self, library: Path) -> bool:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.app.display_warning("no C compiler: the wheel is built without the scoring helper")
            return False
        made = library.with_suffix(f".{os.getpid()}")
        command = [compiler, *FLAGS, "-o", str(made), str(library.with_name("native.c")), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            self.app.display_warning(f"the scoring helper cannot be compiled, so it is left out: {done.stderr}")
            return False
        made.replace(library)
        return True
