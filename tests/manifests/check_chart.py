"""`make chart`: lint the chart, render every mode, and hold each object to the schemas of every supported version.

`--write` copies dashboards and rules into the chart and renders manifests/install.yaml anew.
"""

import argparse
import sys
from collections.abc import Iterator

import kubernetes_validate

from tests.manifests.rendering import (
    CHART,
    INSTALL,
    INSTALL_VALUES,
    MODES,
    VERSIONS,
    Json,
    copies,
    helm,
    objects,
    render,
)

FOREIGN_GROUPS = ("cert-manager.io", "monitoring.coreos.com")
"""Groups whose schemas are not Kubernetes' own."""


def schema_problems(found: list[Json]) -> Iterator[str]:
    """Yield a sentence for every object that a supported version would refuse or not understand."""
    for each in found:
        if each["apiVersion"].split("/")[0] in FOREIGN_GROUPS:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as problem:
                yield f"{each['kind']} {each['metadata']['name']}, Kubernetes {version}: {problem}"


def stale_copies() -> Iterator[str]:
    """Yield a sentence for every dashboard and rule file that the chart carries otherwise, or not at all."""
    wanted = copies()
    carried = {path for folder in {path.parent for path in wanted} for path in folder.glob("*")}
    for path in sorted(carried | wanted.keys()):
        if not path.is_file() or path.read_text(encoding="utf-8") != wanted.get(path):
            yield f"{path.relative_to(CHART)} is not what manifests/ has; copy it: make chart ARGS=--write"


def write_copies() -> None:
    """Make the chart's dashboards and rules those of manifests/."""
    wanted = copies()
    for folder in {path.parent for path in wanted}:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*"):
            path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")


def main() -> int:
    """Check, print one line a mode, and return whether all was well as an exit status."""
    parser = argparse.ArgumentParser(description="Lint, render and validate the chart")
    parser.add_argument("--write", action="store_true", help="copy files and render manifests/install.yaml anew")
    chosen = parser.parse_args()
    if chosen.write:
        write_copies()
    helm("lint", "--strict", str(CHART))
    problems = list(stale_copies())
    for mode, values in MODES.items():
        found = objects(*values)
        new = [f"{mode}: {problem}" for problem in schema_problems(found)]
        print(f"chart: {mode}: {len(found)} objects, {len(new)} problems")
        problems += new
    if chosen.write:
        INSTALL.write_text(render(*INSTALL_VALUES), encoding="utf-8")
    elif INSTALL.read_text(encoding="utf-8") != render(*INSTALL_VALUES):
        problems.append("manifests/install.yaml is not what the chart renders; write it anew: make chart ARGS=--write")
    for problem in problems:
        print(f"chart: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
