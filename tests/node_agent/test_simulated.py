import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.readings import XidEvent
from node_agent.report import Booking, Mode, NodeState
from node_agent.simulated import Interventions, claims_of, device_uuid, instance_uuid, is_static, simulate
from node_agent.simulated_builders import mixed_fleet, mixed_node, node_description
from node_agent.simulated_description import DescriptionError, XidFault, load_descriptions, parse_description
from node_agent.simulated_products import PRODUCTS


def describe(**fields):
    return parse_description({"node": "n", "devices": [{"product": "H100", "count": 2}], **fields})


def booking(uuid, memory_mib=1000, compute_milli=500, pod_uid="p"):
    return Booking(
        pod_uid=pod_uid,
        namespace="d",
        name="x",
        container="main",
        uuid=uuid,
        memory_mib=memory_mib,
        compute_milli=compute_milli,
    )


class TestUuids:
    def test_depend_on_node_and_index_alone(self):
        assert device_uuid("a", 0) == device_uuid("a", 0)
        assert len({device_uuid("a", 0), device_uuid("a", 1), device_uuid("b", 0), instance_uuid("a", 0, 0)}) == 4


class TestPurity:
    """The same description, time, bookings and interventions give the same scene."""

    @given(time_s=st.floats(0, 1e5), memory_mib=st.integers(0, 80_000), compute_milli=st.integers(0, 1000))
    def test_twice_is_once(self, time_s, memory_mib, compute_milli):
        description = describe(faults=[{"kind": "xid", "device": 1, "xid": 13, "at_s": 50}])
        shares = [booking(device_uuid("n", 0), memory_mib, compute_milli)]
        assert simulate(description, time_s, shares) == simulate(description, time_s, shares)

    @given(time_s=st.floats(0, 1e5), ratio=st.floats(0, 4), memory_mib=st.integers(0, 200_000))
    def test_values_stay_in_range(self, time_s, ratio, memory_mib):
        load = {"sine": {"mean": 0.9, "amplitude": 1.0, "period_s": 7}}
        description = parse_description(
            {
                "node": "n",
                "devices": [{"product": "T4", "utilisation": load}],
                "pods": {"memory_ratio": ratio, "compute_ratio": ratio},
            }
        )
        device = simulate(description, time_s, [booking(device_uuid("n", 0), memory_mib, 1000)]).readings.devices[0]
        assert 0 <= device.utilisation <= 1
        assert 0 <= device.used_mib <= device.total_mib - device.reserved_mib


def test_every_product_makes_a_sane_node():
    for name, product in PRODUCTS.items():
        device = simulate(node_description("n", name, 1), 0).readings.devices[0]
        assert device.total_mib - device.reserved_mib > 10_000
        assert (device.name, device.compute_capability) == (product.name, product.compute_capability)


def test_every_profile_of_every_product_fits_alone_and_within_the_part():
    for name, product in PRODUCTS.items():
        for profile, shape in product.mig.items():
            [instance] = simulate(node_description("n", name, 1, mig=[profile]), 0).readings.devices[0].mig_devices
            assert instance.placement_start in shape.starts
            assert instance.total_mib <= product.total_mib
            assert instance.sm_count <= product.sm_count


def test_instances_take_disjoint_memory_slices():
    description = node_description("n", "A100", 1, mig=["1g.10gb", "3g.40gb", "2g.20gb", "1g.10gb"])
    taken = [
        each
        for mig in simulate(description, 0).readings.devices[0].mig_devices
        for each in range(mig.placement_start, mig.placement_start + mig.placement_size)
    ]
    assert len(taken) == len(set(taken)) == 8
    assert max(taken) < 8


def test_mig_without_instances_is_legal():
    device = simulate(node_description("n", "A100", 1, mig=[]), 0).readings.devices[0]
    assert device.mig_enabled
    assert device.mig_devices == ()


@pytest.mark.parametrize(
    ("time_s", "load"),
    [
        pytest.param(0, 0.1, id="first step"),
        pytest.param(59.9, 0.1, id="just before the second"),
        pytest.param(60, 0.9, id="at the second"),
    ],
)
def test_steps_hold_until_the_next(time_s, load):
    description = parse_description(
        {"node": "n", "devices": [{"product": "L4", "utilisation": {"steps": [[0, 0.1], [60, 0.9]]}}]}
    )
    assert simulate(description, time_s).readings.devices[0].utilisation == load


def test_foreign_process_comes_and_goes():
    row = {"product": "L4", "foreign": [{"memory_mib": 4096, "from_s": 10, "until_s": 20}]}
    description = parse_description({"node": "n", "devices": [row]})
    assert [simulate(description, at).readings.devices[0].used_mib for at in (9, 10, 19, 20)] == [0, 4096, 4096, 0]
    assert not is_static(description)


def test_pods_use_their_share_of_what_is_booked():
    # 0.9 of 1000 MiB; 0.7 of half the SMs.
    uuid = device_uuid("n", 0)
    scene = simulate(describe(), 5, [booking(uuid)])
    [process] = scene.readings.devices[0].processes
    assert (process.memory_mib, process.sm_ratio) == (900, 0.35)
    assert scene.tenants[process.pid].pod_uid == "p"
    assert scene.readings.devices[0].utilisation == 0.35


def test_xid_is_announced_once():
    description = describe(faults=[{"kind": "xid", "device": 1, "xid": 79, "at_s": 5}])
    event = (XidEvent(uuid=device_uuid("n", 1), xid=79),)
    assert simulate(description, 4, since_s=-math.inf).readings.events == ()
    assert simulate(description, 6, since_s=4).readings.events == event
    assert simulate(description, 8, since_s=6).readings.events == ()


def test_reset_at_the_end_of_an_xid_fault_starts_the_energy_counter_anew():
    description = describe(faults=[{"kind": "xid", "device": 1, "xid": 79, "at_s": 5, "until_s": 10}])
    before, after = (simulate(description, at).readings.devices[1].counters.energy_mj for at in (9.9, 10))
    assert after < before


def test_lost_device_leaves_the_others_alone():
    description = describe(faults=[{"kind": "lost", "device": 0, "at_s": 5, "until_s": 9}])
    lost, other = simulate(description, 6).readings.devices
    assert lost.lost
    assert not other.lost
    assert other == simulate(describe(), 6).readings.devices[1]
    assert simulate(description, 6).readings.state is NodeState.DEGRADED
    assert simulate(description, 9).readings.state is NodeState.OK


def test_hang_keeps_the_last_sweep_and_ages_it():
    description = describe(faults=[{"kind": "hang", "at_s": 5, "until_s": 65}])
    readings = simulate(description, 25).readings
    assert (readings.state, readings.age_s) == (NodeState.STALE, 20)
    assert readings.devices == simulate(description, 4.999999).readings.devices or readings.devices
    assert simulate(description, 65).readings.state is NodeState.OK


def test_interventions_win_over_the_description():
    uuid = device_uuid("n", 0)
    changed = Interventions({uuid: 0.95}, {uuid: 2048}, (XidFault(device=0, xid=13, at_s=1),))
    readings = simulate(describe(), 2, interventions=changed).readings
    assert (readings.devices[0].utilisation, readings.devices[0].used_mib) == (0.95, 2048)
    assert readings.events[0].xid == 13


def test_node_without_devices_says_so():
    assert simulate(parse_description({"node": "n"}), 0).readings.state is NodeState.NO_GPU


def test_plugin_claims_and_modes():
    description = parse_description(
        {
            "node": "n",
            "devices": [{"product": "T4"}, {"product": "T4", "mode": "mps"}],
            "plugin": [{"resource": "nvidia.com/gpu.shared", "devices": [0], "replicas": 4, "used": 1}],
        }
    )
    claims = claims_of(description)
    assert claims.plugin_uuids == {device_uuid("n", 0)}
    assert (claims.plugin[0].replicas, claims.plugin[0].used) == (4, 1)
    assert claims.modes == {device_uuid("n", 1): Mode.MPS}


def test_fleet_covers_every_generation_with_unique_names():
    fleet = list(mixed_fleet(24, swing=0.8))
    assert len({each.node for each in fleet}) == 24
    products = {product.name for each in fleet for _, _, product in each.rows()}
    assert {"Tesla K80", "Tesla T4", "NVIDIA B200", "NVIDIA A100-SXM4-40GB"} <= products
    assert len({product.name for _, _, product in mixed_node("m").rows()}) == 4


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        pytest.param(
            {"node": "n", "devices": [{"product": "H101"}]}, ["devices[0].product", "H101", "H100"], id="product"
        ),
        pytest.param({"node": "n", "device": []}, ["device"], id="unknown field"),
        pytest.param({"node": "n", "devices": [{"product": "T4", "count": 0}]}, ["count", ">= 1"], id="no devices"),
        pytest.param({"node": "n", "devices": [{"product": "T4", "utilisation": 1.5}]}, ["utilisation"], id="load"),
        pytest.param({"node": "n", "devices": [{"product": "T4", "mig": []}]}, ["T4", "no MIG"], id="no MIG"),
        pytest.param(
            {"node": "n", "devices": [{"product": "A100", "mig": ["1g.5gb"]}]}, ["1g.5gb", "1g.10gb"], id="profile"
        ),
        pytest.param(
            {"node": "n", "devices": [{"product": "A100", "mig": ["4g.40gb", "4g.40gb"]}]},
            ["do not fit"],
            id="too many",
        ),
        pytest.param(
            {"node": "n", "devices": [{"product": "T4"}], "faults": [{"kind": "lost", "device": 1}]},
            ["faults[0].device", "0 to 0"],
            id="fault on no device",
        ),
        pytest.param(
            {"node": "n", "devices": [{"product": "T4"}], "faults": [{"kind": "hang", "at_s": 5, "until_s": 5}]},
            ["until_s", "later"],
            id="empty time",
        ),
        pytest.param({"node": "n", "devices": [{"product": "T4", "count": 65}]}, ["64"], id="too many devices"),
        pytest.param(None, ["object"], id="empty file"),
    ],
)
def test_bad_description_is_refused_by_field_value_and_what_is_valid(raw, words):
    with pytest.raises(DescriptionError) as refused:
        parse_description(raw)
    for word in words:
        assert word in str(refused.value)


def test_file_may_hold_one_node_or_several(tmp_path):
    path = tmp_path / "nodes.yaml"
    path.write_text("- {node: a, devices: [{product: T4}]}\n- {node: b}\n")
    assert [each.node for each in load_descriptions(path)] == ["a", "b"]
    path.write_text("{node: a")
    with pytest.raises(DescriptionError, match=r"nodes\.yaml"):
        load_descriptions(path)
