from __future__ import annotations

import json
import sys

import pytest

from extender.cli.commands import run
from extender.mix_file import decode_mix, encode_mix
from scoring.workload import Mix, Shape
from tests.extender.cli.stage import staged


@pytest.fixture
def tangram(monkeypatch, capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tangram", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return call


def test_what_an_extender_learned_is_exported_as_a_file(tangram):
    with staged() as stage:
        assert stage.schedule(stage.create_pod("half", {"gpu-memory": 4096, "gpu-compute": 50}), "a") == ""
        status, out, err = tangram("--url", stage.url, "mix", "export")
    assert status == 0, err
    ((shape, weight),) = decode_mix(out.encode()).shapes
    assert (shape.count, shape.memory_mib, shape.compute_milli, weight) == (1, 4096, 500, 1.0)


def test_a_file_is_summed_up(tangram, tmp_path):
    file = tmp_path / "mix.json"
    file.write_bytes(encode_mix(Mix(((Shape(2, None, 1000, 16_000), 0.75), (Shape(cpu_milli=500), 0.25)))))
    status, out, _ = tangram("mix", "check", str(file))
    assert status == 0
    assert "2 shapes, 75.0 % of the pods ask for GPUs" in out
    assert " 75.0 %  2 x 100 % compute, 16 cores" in out
    assert " 25.0 %  no GPU, 0.5 cores" in out
    assert json.loads(tangram("mix", "check", str(file), "-o", "json")[1])["gpuPodsPercent"] == 75


def test_a_file_that_cannot_be_used_is_refused_by_name(tangram, tmp_path):
    file = tmp_path / "mix.json"
    file.write_text('{"version": 3, "shapes": []}')
    status, _, err = tangram("mix", "check", str(file))
    assert status == 1
    assert f"{file}: version: found 3, valid is 1" in err
