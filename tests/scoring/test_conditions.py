from __future__ import annotations

import pytest

from scoring.annotations import ANNOTATION_KEYS, CONDITION_KEYS, MAX_PARTS, MAX_STRANGE
from scoring.catalog import DeviceKind, device_kind
from scoring.conditions import (
    ANY_DEVICE,
    Conditions,
    parse_all,
    parse_conditions,
    product_problems,
    unknown_keys,
)
from scoring.errors import InvalidCondition
from scoring.preferences import parse_preferences, preference_weight, unknown_preferences

PREFIX = "tangram.dev/"

T4 = device_kind(
    "Tesla T4", architecture=6, compute_capability=(7, 5), total_mib=15360, driver="535.104.05", cuda="12.2"
)
V100 = device_kind("Tesla V100-SXM2-32GB", architecture=5, compute_capability=(7, 0), total_mib=32510, driver="470.1")
A100_40 = device_kind("NVIDIA A100-SXM4-40GB", architecture=7, compute_capability=(8, 0), total_mib=40960, cuda="12.4")
A100_80 = device_kind("NVIDIA A100-SXM4-80GB", architecture=7, compute_capability=(8, 0), total_mib=81920)
H100 = device_kind(
    "NVIDIA H100 80GB HBM3", architecture=9, compute_capability=(9, 0), total_mib=81559, driver="580.95.05"
)
H20 = device_kind("NVIDIA H20", architecture=9, compute_capability=(9, 0), total_mib=97871)
H200 = device_kind("NVIDIA H200", architecture=9, compute_capability=(9, 0), total_mib=143771)
K80 = device_kind("Tesla K80", architecture=2, compute_capability=(3, 7), total_mib=11441)
SLICE = device_kind(
    "NVIDIA H100 80GB HBM3",
    architecture=9,
    compute_capability=(9, 0),
    total_mib=9984,
    mig_profile="1g.10gb",
    sm_milli=121,
)
FUTURE = device_kind("NVIDIA X1", architecture=21, compute_capability=(15, 2), total_mib=400_000)
SILENT = device_kind("", architecture=0)
FLEET = {
    "t4": T4,
    "v100": V100,
    "a100-40": A100_40,
    "a100-80": A100_80,
    "h100": H100,
    "h20": H20,
    "h200": H200,
    "k80": K80,
    "slice": SLICE,
    "future": FUTURE,
    "silent": SILENT,
}


def conditions(key: str, text: str) -> Conditions:
    return parse_conditions({PREFIX + key: text})


def matching(key: str, text: str) -> str:
    wanted = conditions(key, text)
    return " ".join(name for name, kind in FLEET.items() if wanted.matches(kind))


def refusal(key: str, text: str) -> InvalidCondition:
    with pytest.raises(InvalidCondition) as caught:
        conditions(key, text)
    return caught.value


class TestMatching:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param("volta,ampere", "v100 a100-40 a100-80", id="names are alternatives"),
            pytest.param(
                ">=ampere", "a100-40 a100-80 h100 h20 h200 slice future", id="a comparison, and what is newer"
            ),
            pytest.param(">=volta, !ampere ,<hopper", "t4 v100", id="all of several, one out"),
            pytest.param(
                "!kepler", "t4 v100 a100-40 a100-80 h100 h20 h200 slice future", id="an unknown one never meets"
            ),
            pytest.param("Turing", "t4", id="case does not matter"),
            pytest.param(">rubin", "future", id="newer than every name"),
            pytest.param("<=kepler", "k80", id="up to"),
            pytest.param("== turing, =kepler", "t4 k80", id="an equals sign changes nothing"),
        ],
    )
    def test_architecture(self, text: str, expected: str) -> None:
        assert matching("gpu-architecture", text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param("H20", "h20", id="D1: never by substring"),
            pytest.param("H20*", "h20 h200", id="a glob, because it says so"),
            pytest.param("A100*,", "a100-40 a100-80", id="D2: an empty part has no effect"),
            pytest.param("Tesla T4", "t4", id="D4: as nvidia-smi shows it"),
            pytest.param("NVIDIA-H100-80GB-HBM3", "h100 slice", id="D4: as the label shows it"),
            pytest.param("A100*,!A100-SXM4-40GB", "a100-80", id="out wins"),
            pytest.param("!A100-SXM4-40GB,A100*", "a100-80", id="out wins in either order"),
            pytest.param("*,!h*", "t4 v100 a100-40 a100-80 k80 future silent", id="everything but"),
            pytest.param("H100-SXM, t4", "t4 h100 slice", id="alias and case"),
            pytest.param("x1", "future", id="a product that the catalogue does not know"),
        ],
    )
    def test_product(self, text: str, expected: str) -> None:
        assert matching("gpu-product", text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param(">=8.0,<10", "a100-40 a100-80 h100 h20 h200 slice", id="a range"),
            pytest.param("7.5, 9.0", "t4 h100 h20 h200 slice", id="alternatives"),
            pytest.param("7", "t4 v100", id="a short version stands for all that begin with it"),
            pytest.param(">7", "a100-40 a100-80 h100 h20 h200 slice future", id="after all that begin with it"),
            pytest.param("<=7", "t4 v100 k80", id="up to all that begin with it"),
            pytest.param("!9.0,>8.9", "future", id="one out"),
            pytest.param(">=0", "t4 v100 a100-40 a100-80 h100 h20 h200 k80 slice future", id="any that is known"),
        ],
    )
    def test_compute_capability(self, text: str, expected: str) -> None:
        assert matching("gpu-compute-capability", text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param(">=40Gi", "a100-40 a100-80 h100 h20 h200 future", id="D5: per device"),
            pytest.param(">=80Gi", "a100-80 h100 h20 h200 future", id="an H100 80GB reports 81559 MiB"),
            pytest.param(">=80GB", "a100-80 h100 h20 h200 future", id="a card's GB is a GiB"),
            pytest.param("16Gi", "t4", id="a T4 is a 16 GB card with 15360 MiB"),
            pytest.param("<16Gi", "k80 slice", id="so it is not below 16"),
            pytest.param(">16Gi,<80Gi", "v100 a100-40", id="a range"),
            pytest.param("<=12Gi", "k80 slice", id="up to"),
            pytest.param("80Gi,16Gi", "t4 a100-80 h100", id="alternatives"),
            pytest.param(">40960Mi,!80Gi", "h20 h200 future", id="above, and one size out"),
            pytest.param(">=81920", "a100-80 h100 h20 h200 future", id="a bare number is MiB"),
        ],
    )
    def test_total_memory(self, text: str, expected: str) -> None:
        assert matching("gpu-total-memory", text) == expected

    def test_driver_and_cuda(self) -> None:
        assert matching("gpu-driver", ">=535") == "t4 h100"
        assert matching("gpu-driver", ">=535.104.05,<580") == "t4"
        assert matching("gpu-driver", ">535") == "h100"
        assert matching("gpu-driver", "535") == "t4"
        assert matching("gpu-driver", "!535") == "v100 h100"
        assert matching("gpu-cuda", ">=12.4") == "a100-40"
        assert matching("gpu-cuda", "12") == "t4 a100-40"

    def test_every_feature_must_be_there_and_no_excluded_one(self) -> None:
        assert matching("gpu-features", "tensor-fp16, INT8,nvenc") == "t4"
        assert matching("gpu-features", "fp8,!nvlink") == "slice future"
        assert matching("gpu-features", "mig,nvlink") == "a100-40 a100-80 h100 h20 h200"

    def test_mig_profile_is_exact(self) -> None:
        assert matching("mig-profile", "1g.10gb") == "slice"
        assert matching("mig-profile", "mig-1g.10gb,2g.20gb") == "slice"
        assert matching("mig-profile", "1g.10gb+me") == ""
        assert "slice" not in matching("mig-profile", "!1g.10gb").split()
        assert "t4" in matching("mig-profile", "!1g.10gb").split()

    def test_all_conditions_must_hold_and_those_that_do_not_are_named(self) -> None:
        wanted = parse_conditions(
            {
                PREFIX + "gpu-architecture": ">=ampere",
                PREFIX + "gpu-total-memory": ">=40Gi",
                PREFIX + "gpu-driver": ">=535",
                PREFIX + "mig-profile": "!1g.10gb",
            }
        )
        assert wanted.matches(H100)
        assert wanted.failing(H100) == ()
        assert wanted.failing(T4) == ("gpu-architecture", "gpu-total-memory")
        assert wanted.failing(SLICE) == ("gpu-total-memory", "gpu-driver", "mig-profile")


class TestUuids:
    @pytest.mark.parametrize("text", ["GPU-a,GPU-b,!GPU-b", "!GPU-b , gpu-a, GPU-b"])
    def test_out_wins_in_either_order(self, text: str) -> None:
        wanted = conditions("gpu-uuid", text)
        assert [uuid for uuid in ("GPU-a", "GPU-b", "GPU-c") if wanted.allows_uuid(uuid)] == ["GPU-a"]
        assert wanted.names_devices
        assert wanted == conditions("gpu-uuid", "GPU-a")

    def test_exclusion_alone_leaves_the_others(self) -> None:
        wanted = conditions("gpu-uuid", "!GPU-a, !MIG-b/1/0")
        assert [uuid for uuid in ("GPU-a", "MIG-b/1/0", "GPU-c") if wanted.allows_uuid(uuid)] == ["GPU-c"]
        assert wanted.excludes_uuid("GPU-a")
        assert wanted.includes_uuid("GPU-a")
        assert wanted.names_devices
        assert wanted.matches(T4)

    def test_conditions_on_uuids_are_seen_in_the_description(self) -> None:
        assert conditions("gpu-uuid", "!GPU-b,!GPU-a").describe() == (("gpu-uuid", "!GPU-a,!GPU-b"),)


class TestNormalForm:
    @pytest.mark.parametrize("key", sorted(CONDITION_KEYS))
    @pytest.mark.parametrize("text", ["", " ", ",", " , ,\n"])
    def test_empty_text_is_no_condition(self, key: str, text: str) -> None:
        wanted = conditions(key, text)
        assert wanted == ANY_DEVICE
        assert wanted.is_any
        assert not wanted.names_devices
        assert wanted.describe() == ()

    @pytest.mark.parametrize(
        ("key", "left", "right"),
        [
            ("gpu-architecture", "ada-lovelace , ampere", "ampere,ada"),
            ("gpu-architecture", ">ampere", ">=ada"),
            ("gpu-architecture", "!kepler", ">kepler"),
            ("gpu-product", "NVIDIA A100-SXM4-80GB,T4", "tesla-t4, a100-sxm4-80gb"),
            ("gpu-product", "H100 NV*", "h100-nv*"),
            ("gpu-compute-capability", ">=8.0,<10", "< 10.0 , >= 8"),
            ("gpu-compute-capability", ">=8.0,>=8.6", ">=8.6"),
            ("gpu-compute-capability", "<10,<9", "<9"),
            ("gpu-compute-capability", "8,9", ">=8,<=9"),
            ("gpu-total-memory", ">=80Gi", ">=80G"),
            ("gpu-total-memory", ">=1Ti", ">=1024GiB"),
            ("gpu-driver", ">=535.00", ">=535"),
            ("gpu-features", "int8,bf16,int8", "bf16, INT8"),
            ("gpu-uuid", "GPU-b,GPU-a", "GPU-a ,GPU-b,"),
            ("mig-profile", "mig-1g.5gb.me", "1g.5gb+me"),
        ],
    )
    def test_equal_meaning_is_an_equal_value(self, key: str, left: str, right: str) -> None:
        assert conditions(key, left) == conditions(key, right)
        assert hash(conditions(key, left)) == hash(conditions(key, right))

    @pytest.mark.parametrize(
        ("key", "text", "expected"),
        [
            ("gpu-architecture", ">=ampere,!ada", ">=ampere,!ada"),
            ("gpu-architecture", "<volta,!kepler", "maxwell,pascal"),
            ("gpu-architecture", ">rubin", ">rubin"),
            ("gpu-product", "tesla t4, nvidia a100*,!FOO", "T4,nvidia-a100*,!foo"),
            ("gpu-product", "!t4", "!T4"),
            ("gpu-compute-capability", ">=8,<10", ">=8.0,<10.0"),
            ("gpu-compute-capability", "8.6", "8.6"),
            ("gpu-compute-capability", "8", "8"),
            ("gpu-compute-capability", "!8.6", "<8.6 or >=8.7"),
            ("gpu-total-memory", "> 40960Mi", ">40Gi"),
            ("gpu-total-memory", "<=81559", "<88652Mi"),
            ("gpu-total-memory", ">=40GB,<80GB", ">=40Gi,<80Gi"),
            ("gpu-total-memory", "15000Mi", "15000Mi"),
            ("gpu-total-memory", ">=0Gi", ">=0Gi"),
            ("gpu-driver", ">=535.104.05", ">=535.104.5"),
            ("gpu-features", "int8,!mig", "int8,!mig"),
        ],
    )
    def test_description_is_in_the_words_of_the_grammar(self, key: str, text: str, expected: str) -> None:
        assert conditions(key, text).describe() == ((key, expected),)

    def test_the_description_is_in_the_order_of_the_documentation(self) -> None:
        wanted = parse_conditions(
            {PREFIX + "mig-profile": "1g.5gb", PREFIX + "gpu-uuid": "MIG-a", PREFIX + "gpu-cuda": "12"}
        )
        assert [key for key, _ in wanted.describe()] == ["gpu-cuda", "gpu-uuid", "mig-profile"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("key", "text", "found", "valid"),
        [
            ("gpu-architecture", "ampere,amper", "amper", "one of kepler, maxwell"),
            ("gpu-architecture", ">=", ">=", "one of kepler"),
            ("gpu-architecture", "volta,>=ampere", "volta,>=ampere", "either comparisons"),
            ("gpu-architecture", "volta,!volta", "volta,!volta", "some generation meets"),
            ("gpu-compute-capability", ">=8.x", ">=8.x", "such as 8.6"),
            ("gpu-compute-capability", "80", "80", "such as 8.6"),
            ("gpu-compute-capability", "8.6.1", "8.6.1", "such as 8.6"),
            ("gpu-compute-capability", ">=9,<8", ">=9,<8", "some value meets"),
            ("gpu-compute-capability", "8.6,>=8", "8.6,>=8", "either comparisons"),
            ("gpu-total-memory", "80", "80", "such as 40Gi"),
            ("gpu-total-memory", "big", "big", "such as 40Gi"),
            ("gpu-total-memory", ">= 0.1T", ">= 0.1T", "such as 40Gi"),
            ("gpu-driver", ">=r535", ">=r535", "such as 535"),
            ("gpu-cuda", "12040", "12040", "such as 12.4"),
            ("gpu-features", "int8,int4", "int4", "tensor-fp16"),
            ("gpu-features", "int8,!int8", "int8,!int8", "none is also excluded"),
            ("gpu-product", "T4,!T4", "T4,!T4", "leaves something"),
            ("gpu-product", "A100[0-9]", "A100[0-9]", "glob such as A100*"),
            ("gpu-product", "!", "!", "glob such as A100*"),
            ("gpu-uuid", "0", "0", "GPU- or MIG-"),
            ("gpu-uuid", "GPU-a,!GPU-a", "GPU-a,!GPU-a", "leaves something"),
            ("mig-profile", "1g", "1g", "1g.10gb"),
        ],
    )
    def test_what_cannot_be_understood_names_field_value_and_what_is_valid(
        self, key: str, text: str, found: str, valid: str
    ) -> None:
        problem = refusal(key, text)
        assert problem.field == PREFIX + key
        assert problem.found == found
        assert valid in problem.valid

    @pytest.mark.parametrize("key", sorted(CONDITION_KEYS))
    def test_a_list_has_a_greatest_length(self, key: str) -> None:
        problem = refusal(key, "x," * (MAX_PARTS + 1))
        assert problem.found == f"{MAX_PARTS + 1} entries"

    def test_every_problem_is_reported_at_once_and_the_rest_is_understood(self) -> None:
        wanted, problems = parse_all(
            {PREFIX + "gpu-cuda": "x", PREFIX + "gpu-architecture": "y", PREFIX + "gpu-driver": "535"}
        )
        assert [problem.field for problem in problems] == [PREFIX + "gpu-architecture", PREFIX + "gpu-cuda"]
        assert wanted == conditions("gpu-driver", "535")

    def test_other_keys_and_other_prefixes_are_not_looked_at(self) -> None:
        assert parse_conditions({"other.io/gpu-cuda": "x", "gpu-cuda": "x", PREFIX + "gpu-prefer": "?"}) == ANY_DEVICE
        assert parse_conditions({"g.example/gpu-cuda": "12"}, "g.example/") == conditions("gpu-cuda", "12")


class TestUnknownProducts:
    def test_an_unknown_name_is_understood_and_reported(self) -> None:
        wanted = conditions("gpu-product", "Foo 9000,T4,A100*,!Bar")
        assert wanted.unknown_products() == ("bar", "foo-9000")
        assert wanted.unknown_products(seen=["NVIDIA Foo 9000"]) == ("bar",)
        assert wanted.matches(device_kind("NVIDIA Foo 9000"))

    def test_known_names_and_globs_are_not_reported(self) -> None:
        assert conditions("gpu-product", "T4,Zzz*").unknown_products() == ()
        assert ANY_DEVICE.unknown_products() == ()

    def test_admission_gets_the_nearest_names(self) -> None:
        (problem,) = product_problems(conditions("gpu-product", "A100-SMX4-80GB"))
        assert problem.field == PREFIX + "gpu-product"
        assert problem.found == "a100-smx4-80gb"
        assert "A100-SXM4-80GB" in problem.valid
        (far,) = product_problems(conditions("gpu-product", "zzzzzzzz"))
        assert "nearest" not in far.valid

    def test_a_long_list_of_unknown_products_is_refused_without_advice_on_each(self) -> None:
        names = ",".join(f"A100-XX{number}" for number in range(256))
        assert 0 < len(product_problems(conditions("gpu-product", names))) <= 16


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("name", "nearest"),
        [
            pytest.param("gpu-arch", "gpu-architecture", id="A3"),
            ("gpuarch", "gpu-architecture"),
            ("gpu-architectures", "gpu-architecture"),
            ("GPU-Product", "gpu-product"),
            ("gpu-model", "gpu-product"),
            ("mig_profile", "mig-profile"),
            ("gpu_uuid", "gpu-uuid"),
            ("workloads", "workload"),
            ("gpu-drivers", "gpu-driver"),
        ],
    )
    def test_a_near_miss_is_told_the_nearest_key(self, name: str, nearest: str) -> None:
        (problem,) = unknown_keys({PREFIX + name: "x"})
        assert (problem.field, problem.found) == (PREFIX + name, "x")
        assert problem.valid.startswith(f"the annotation {PREFIX}{nearest};")

    def test_a_key_that_is_near_to_nothing_is_told_all_keys(self) -> None:
        (problem,) = unknown_keys({PREFIX + "gpu-zzzzzzzzzzzzzzzz": "x"})
        assert problem.valid.startswith("known annotations are gpu-architecture, ")
        assert all(key in problem.valid for key in ANNOTATION_KEYS)

    @pytest.mark.parametrize("name", ["gpu", "gpu-memory", "gpu-compute"])
    def test_a_resource_written_as_an_annotation_is_told_its_place(self, name: str) -> None:
        (problem,) = unknown_keys({PREFIX + name: "1"})
        assert "resource limit" in problem.valid

    @pytest.mark.parametrize(
        "key",
        [
            *(PREFIX + key for key in sorted(ANNOTATION_KEYS)),
            PREFIX + "allocation",
            PREFIX + "devices-main",
            PREFIX + "test-gpu",
            PREFIX + "owner",
            "other.io/gpu-arch",
            "gpu-arch",
        ],
    )
    def test_right_keys_ours_and_those_of_others_are_left_alone(self, key: str) -> None:
        assert unknown_keys({key: "x"}) == ()

    def test_all_are_reported_under_the_configured_prefix(self) -> None:
        found = unknown_keys({"g.example/gpu-b": "1", "g.example/gpu-a": "2", PREFIX + "gpu-c": "3"}, "g.example/")
        assert [problem.field for problem in found] == ["g.example/gpu-a", "g.example/gpu-b"]

    def test_more_strange_names_than_can_be_compared_are_one_problem(self) -> None:
        (problem,) = unknown_keys({f"{PREFIX}gpu-{number}": "x" for number in range(10_000)})
        assert (problem.found, problem.valid) == ("10000 unknown annotations", f"at most {MAX_STRANGE}")

    def test_right_names_and_ours_do_not_count_as_strange(self) -> None:
        ours = {f"{PREFIX}devices-{number}": "" for number in range(1000)}
        assert unknown_keys({**ours, **{PREFIX + key: "x" for key in ANNOTATION_KEYS}}) == ()

    def test_a_name_of_any_length_is_told_the_nearest_key(self) -> None:
        (problem,) = unknown_keys({f"{PREFIX}gpu-product{'x' * 200_000}": "y" * 200_000})
        assert len(str(problem)) < 4096

    def test_the_set_of_right_names_can_be_widened(self) -> None:
        assert unknown_keys({PREFIX + "gpu-extra": "1"}, allowed=ANNOTATION_KEYS | {"gpu-extra"}) == ()


class TestPreferences:
    def test_names_and_weights_are_read_in_a_normal_order(self) -> None:
        assert parse_preferences(" T4 = 1 , l4=3,, Ada-Lovelace ") == (("ada", 1.0), ("l4", 3.0), ("t4", 1.0))
        assert parse_preferences("l4=3,t4=1") == parse_preferences("Tesla T4=1.0,NVIDIA-L4=3")
        assert parse_preferences("") == ()

    @pytest.mark.parametrize("text", ["t4=0", "t4=-1", "t4=nan", "t4=inf", "t4=x", "t4=", "=1", "t4=1,Tesla T4=2"])
    def test_other_weights_and_names_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidCondition, match=r"tangram\.dev/gpu-prefer"):
            parse_preferences(text)

    @pytest.mark.parametrize(
        ("text", "kind", "expected"),
        [
            pytest.param("l4=3,t4=1", T4, 1 / 3, id="over the greatest weight"),
            pytest.param("l4=3,t4=3", T4, 1.0, id="the greatest is 1"),
            pytest.param("turing=2,t4=1,l4=4", T4, 0.5, id="the best name counts"),
            pytest.param("hopper", H20, 1.0, id="an architecture"),
            pytest.param("h20", H200, 0.0, id="never by substring"),
            pytest.param("h20*=2,t4=4", H200, 0.5, id="a glob"),
            pytest.param("", T4, 0.0, id="no preference"),
        ],
    )
    def test_weight_of_a_device(self, text: str, kind: DeviceKind, expected: float) -> None:
        assert preference_weight(parse_preferences(text), kind) == pytest.approx(expected)

    def test_unknown_names_are_reported(self) -> None:
        assert unknown_preferences(parse_preferences("l4,ada,foo,bar*")) == ("foo",)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("gpu-architecture", "!kepler"),
        ("gpu-compute-capability", ">=0"),
        ("gpu-total-memory", ">=0Gi"),
        ("gpu-driver", "!1"),
        ("gpu-cuda", "<99"),
    ],
)
def test_what_a_device_does_not_report_meets_no_condition_on_it(key: str, text: str) -> None:
    assert ANY_DEVICE.matches(SILENT)
    assert conditions(key, text).failing(SILENT) == (key,)
