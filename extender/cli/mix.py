"""``tangram mix``: the mix of request shapes as a file, out of one extender and checked before it goes into another."""

from __future__ import annotations

from pathlib import Path

from extender.cli.arguments import Access, Output
from extender.cli.client import client_for
from extender.cli.output import print_json, print_lines
from extender.cli.problems import FOUND_SOMETHING, CliProblem
from extender.mix_file import InvalidMix, read_mix
from scoring.workload import Mix, Shape

_SHOWN = 20


def export_mix(access: Access) -> None:
    """Print what the extender has learned, as ``TANGRAM_MIX_FILE`` takes it."""
    print_json(client_for(access).json("v1", "mix"))


def check_mix(file: Path, output: Output) -> None:
    """Print what a file holds; exit 1 where it cannot be used."""
    try:
        mix = read_mix(file)
    except InvalidMix as error:
        raise CliProblem(str(error), FOUND_SOMETHING) from error
    if output is Output.JSON:
        print_json({"file": str(file), "shapes": len(mix.shapes), "gpuPodsPercent": _gpu_percent(mix)})
        return
    print_lines([f"{file}: {len(mix.shapes)} shapes, {_gpu_percent(mix):.1f} % of the pods ask for GPUs"])
    print_lines(f"{100 * weight:5.1f} %  {_words(shape)}" for shape, weight in mix.shapes[:_SHOWN])


def _gpu_percent(mix: Mix) -> float:
    return 100 * sum(weight for shape, weight in mix.shapes if shape.count)


def _words(shape: Shape) -> str:
    cores = f"{shape.cpu_milli / 1000:g} cores"
    if not shape.count:
        return f"no GPU, {cores}"
    amounts = [f"{shape.memory_mib} MiB"] if shape.memory_mib is not None else []
    amounts += [f"{shape.compute_milli / 10:g} % compute"] if shape.compute_milli is not None else []
    conditions = [f"{key} {text}" for key, text in shape.conditions.describe()]
    return ", ".join([f"{shape.count} x {' and '.join(amounts)}", cores, *conditions])
