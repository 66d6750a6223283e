"""Compiles the helpers in C while a wheel or an editable install is made.

Without a C compiler the wheel is pure Python, and numpy does their work. ``CC`` names another compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HELPERS = (("scoring", "native"), ("extender", "names"))
"""Package and source, ``.c`` left out."""

FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
"""Neither contracted nor reordered: results must equal numpy's to the last bit. Nobody looks at errno or at traps."""


class HelperHook(BuildHookInterface):
    """Adds the helpers to what is built, where they can be made."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        """Compile beside the source; ``version`` is "standard" or "editable"."""
        del version
        platform = sysconfig.get_platform()
        made = [
            f"/{package}/{source}-{platform}.helper"
            for package, source in HELPERS
            if self._compiled(Path(self.root) / package / f"{source}.c", f"{source}-{platform}.helper")
        ]
        if not made:
            return
        build_data["artifacts"] = made
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"

    def _compiled(self, source: Path, library: str) -> bool:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.app.display_warning(f"no C compiler: the wheel is built without {source.name}")
            return False
        made = source.with_name(f"{library}.{os.getpid()}")
        command = [compiler, *FLAGS, "-o", str(made), str(source), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            self.app.display_warning(f"{source.name} cannot be compiled, so it is left out: {done.stderr}")
            return False
        made.replace(source.with_name(library))
        return True
