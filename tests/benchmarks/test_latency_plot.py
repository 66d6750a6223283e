from __future__ import annotations

from benchmarks.latency_plot import CURVES, draw


def row(nodes: int, verb: str, p50_ms: float, **other: object) -> dict[str, object]:
    about = {"mode": "closed", "load": "quiet", "helper": True, "floor_p50_ms": 0.5}
    return {"nodes": nodes, "verb": verb, "p50_ms": p50_ms, **about, **other}


def test_a_curve_for_each_verb_and_the_floor_by_nodes() -> None:
    rows = [row(nodes, verb, nodes / 1000) for nodes in (5000, 500) for verb in CURVES]
    (axes,) = draw([*rows, row(500, "pair", 99.0, load="busy"), row(500, "pair", 99.0, helper=False)]).axes
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}
    assert lines.pop("the floor of the pair") == ([500, 5000], [0.5, 0.5])
    assert lines == dict.fromkeys(CURVES.values(), ([500, 5000], [0.5, 5.0]))
