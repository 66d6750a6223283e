"""``tangram policy``: checks policies before they are rolled out, without a cluster; lists those in force."""

from __future__ import annotations

from pathlib import Path

import yaml

from extender.cli.arguments import Access, Output
from extender.cli.client import client_for
from extender.cli.output import print_json, print_lines
from extender.cli.problems import FOUND_SOMETHING, WRONG_USAGE, CliProblem
from scoring.errors import InvalidPolicy
from scoring.registry import DEFAULT_POLICY, Policy, build_policies


def check(file: Path, output: Output) -> None:
    """Print what is wrong with the policies of a file, or what they come to; exit 1 where they cannot be used."""
    profiles, default = _read(file)
    problems: list[str] = []
    policies: dict[str, Policy] = {}
    try:
        policies = dict(build_policies(profiles))  # type: ignore[arg-type]  # judged by what is called
    except InvalidPolicy as error:
        problems += error.problems
    if policies and default not in policies:
        problems.append(f"policy: found {default!r}, valid are {', '.join(sorted(policies))}")
    if output is Output.JSON:
        weights = {name: _weights(each) for name, each in policies.items()}
        print_json({"file": str(file), "problems": problems, "default": default, "policies": weights})
    else:
        print_lines([f"{file}: {problem}" for problem in problems] or [f"{file}: all policies can be used"])
        print_lines(_line(name, _weights(each), default) for name, each in policies.items())
    if problems:
        raise SystemExit(FOUND_SOMETHING)


def list_policies(access: Access) -> None:
    """Print the policies of the running extender."""
    found = client_for(access).json("v1", "policies")
    if access.output is Output.JSON:
        print_json(found)
    else:
        print_lines(_line(name, weights, found["default"]) for name, weights in found["policies"].items())


def _read(file: Path) -> tuple[object, str]:
    """Return the policies and the default's name, from a mapping of policies or from the extender's settings."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CliProblem(f"{file}: not readable as YAML: {error}", WRONG_USAGE) from error
    if not isinstance(content, dict):
        valid = "a mapping of policies, or of settings with an entry policies"
        raise CliProblem(f"{file}: found a {type(content).__name__}, valid is {valid}", WRONG_USAGE)
    if "policies" in content or "policy" in content:
        return content.get("policies") or {}, str(content.get("policy") or DEFAULT_POLICY)
    return content, DEFAULT_POLICY


def _weights(policy: Policy) -> dict[str, float]:
    return {name: weight for name, _, weight in policy.scorers()}


def _line(name: str, weights: dict[str, float], default: str) -> str:
    shown = ", ".join(f"{scorer} {weight:.2f}" for scorer, weight in weights.items() if weight)
    return f"{name}{' (default)' if name == default else ''}: {shown}"
