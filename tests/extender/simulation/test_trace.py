import gzip
from collections import Counter

import pytest

from extender.simulation.trace import DEFAULT_PODS, GPU_NODES, InvalidTrace, load_nodes, load_pods

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
GOOD = "p1,4000,8192,1,460,T4|P100|T4,LS,Running,10,70,11"


def written(tmp_path, *rows, name="pods.csv"):
    path = tmp_path / name
    text = "\n".join((HEADER, *rows)) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_the_node_list_is_the_published_cluster():
    nodes = load_nodes(GPU_NODES)
    assert len(nodes) == 1213
    assert sum(node.gpus for node in nodes) == 6212
    assert sum(node.cpu_milli for node in nodes) == 107_018_000


def test_the_default_list_has_the_published_pods_without_models():
    pods = load_pods(DEFAULT_PODS)
    assert len(pods) == 8152
    assert Counter(pod.gpus for pod in pods)[8] == 44
    assert not any(pod.models for pod in pods)


def test_a_third_of_the_gpu_pods_of_the_production_list_accept_certain_models_only():
    pods = [pod for pod in load_pods() if pod.gpus]
    assert sum(bool(pod.models) for pod in pods) / len(pods) == pytest.approx(0.33, abs=0.02)


def test_pods_come_in_order_of_creation():
    created = [pod.created_s for pod in load_pods()]
    assert created == sorted(created)


@pytest.mark.parametrize("name", ["pods.csv", "pods.csv.gz"])
def test_a_row_is_read_with_its_units(tmp_path, name):
    (pod,) = load_pods(written(tmp_path, GOOD, name=name))
    assert (pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli) == (4000, 8192, 1, 460)
    assert pod.models == ("T4", "P100")
    assert (pod.created_s, pod.duration_s) == (10, 60)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param(
            "p,4000,8192,9,1000,,LS,Running,0,1,",
            "line 2: num_gpu is '9', valid: a whole number from 0 to 8",
            id="nine cards",
        ),
        pytest.param("p,4000,8192,1,1001,,LS,Running,0,1,", "gpu_milli is '1001'", id="more than a card"),
        pytest.param("p,4000,8192,2,500,,LS,Running,0,1,", "gpu_milli is '500'", id="a share of two cards"),
        pytest.param("p,4000,8192,0,500,,LS,Running,0,1,", "gpu_milli is '500'", id="a share of no card"),
        pytest.param("p,x,8192,0,0,,LS,Running,0,1,", "cpu_milli is 'x'", id="no number"),
        pytest.param("p,4000,8192,0,0,,best,Running,0,1,", "qos is 'best', valid: LS", id="unknown class"),
        pytest.param("p,4000,8192,0,0,,LS,Running,5,1,", "deletion_time is '1'", id="deleted before it was created"),
        pytest.param("p,4000", "column num_gpu is missing", id="cut off"),
    ],
)
def test_a_bad_row_is_refused_with_line_column_value_and_what_is_valid(tmp_path, row, message):
    with pytest.raises(InvalidTrace, match=r"pods\.csv line") as refused:
        load_pods(written(tmp_path, row))
    assert message in str(refused.value)


def test_an_empty_list_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match="found no rows"):
        load_pods(written(tmp_path))


def test_a_file_that_is_not_gzip_is_refused(tmp_path):
    path = tmp_path / "pods.csv.gz"
    path.write_text("no gzip")
    with pytest.raises(InvalidTrace, match="not readable"):
        load_pods(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidTrace, match="not readable"):
        load_nodes(tmp_path / "nodes.csv")
