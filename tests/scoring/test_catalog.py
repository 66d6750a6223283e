from __future__ import annotations

import pytest

from scoring.architecture import NAMED, NVML_UNKNOWN
from scoring.catalog import (
    FEATURES,
    PRODUCTS,
    TRACE_MODELS,
    Architecture,
    DeviceKind,
    MigProfile,
    Product,
    device_kind,
    find_product,
    is_product,
    nearest_products,
    parse_mig_profile,
    parse_version,
    product_pattern,
)
from scoring.products import name_key, relative_cost


def named(text: str) -> str:
    product = find_product(text)
    assert product is not None, text
    return product.name


class TestArchitecture:
    @pytest.mark.parametrize("text", ["ada", "Ada", "ada-lovelace", "Ada Lovelace", "ADA_LOVELACE", " ada "])
    def test_spellings_of_one_generation_are_equal(self, text: str) -> None:
        assert Architecture.parse(text) is Architecture.ADA

    @pytest.mark.parametrize("text", ["", "amper", "unknown", "newer", "8.9", "ada lovelace 2"])
    def test_other_words_name_no_generation(self, text: str) -> None:
        assert Architecture.parse(text) is None

    def test_generations_are_ordered_by_age_with_unknown_below_and_newer_above(self) -> None:
        order = [Architecture.UNKNOWN, *NAMED, Architecture.NEWER]
        assert sorted(Architecture) == order
        assert Architecture.KEPLER < Architecture.VOLTA < Architecture.ADA < Architecture.RUBIN

    @pytest.mark.parametrize(
        ("capability", "expected"),
        [
            ((2, 1), "UNKNOWN"),
            ((3, 7), "KEPLER"),
            ((5, 2), "MAXWELL"),
            ((6, 1), "PASCAL"),
            ((7, 2), "VOLTA"),
            ((7, 5), "TURING"),
            ((8, 7), "AMPERE"),
            ((8, 9), "ADA"),
            ((9, 0), "HOPPER"),
            ((10, 3), "BLACKWELL"),
            ((11, 0), "BLACKWELL"),
            ((12, 1), "BLACKWELL"),
            ((13, 0), "RUBIN"),
            ((14, 0), "NEWER"),
        ],
    )
    def test_a_compute_capability_belongs_to_one_generation(self, capability: tuple[int, int], expected: str) -> None:
        assert Architecture.from_compute_capability(capability).name == expected

    def test_nvml_number_wins_over_the_compute_capability(self) -> None:
        assert Architecture.from_nvml(7, (9, 0)) is Architecture.AMPERE

    @pytest.mark.parametrize("number", [0, 1, 11, 12, 15, 99, -4, NVML_UNKNOWN])
    def test_an_unknown_nvml_number_falls_back_on_the_compute_capability(self, number: int) -> None:
        assert Architecture.from_nvml(number, (9, 0)) is Architecture.HOPPER
        assert Architecture.from_nvml(number) is Architecture.UNKNOWN


class TestNames:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param("Tesla T4", "T4", id="as nvidia-smi shows it"),
            pytest.param("NVIDIA T1000 8GB", "T1000-8GB", id="with the brand"),
            pytest.param("NVIDIA-H100-80GB-HBM3", "H100-80GB-HBM3", id="as the node label shows it"),
            pytest.param("Tesla-T4-SHARED", "T4", id="label of a shared device"),
            pytest.param("NVIDIA-H100-NVL-MIG-1g.12gb", "H100-NVL", id="label under MIG single"),
            pytest.param("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100-SXM4-40GB", id="label, MIG and shared"),
            pytest.param("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100-SXM4-40GB", id="NVML name of an instance"),
            pytest.param("GeForce RTX 2080 Ti", "GeForce-RTX-2080-Ti", id="old driver without the brand"),
            pytest.param("a100_sxm4  80gb", "A100-SXM4-80GB", id="case, blanks and underscores"),
            pytest.param("h100-sxm", "H100-80GB-HBM3", id="an alias"),
            pytest.param("GH200 120GB", "GH200-480GB", id="a name of early drivers"),
        ],
    )
    def test_every_spelling_of_a_product_is_understood(self, text: str, expected: str) -> None:
        assert named(text) == expected

    @pytest.mark.parametrize("text", ["", "NVIDIA", "A100", "H2", "H2000", "H20 0", "nonsense"])
    def test_a_part_of_a_name_is_no_name(self, text: str) -> None:
        assert find_product(text) is None

    def test_no_two_products_share_a_spelling(self) -> None:
        keys = [
            key
            for product in PRODUCTS
            for key in {name_key(name) for name in (product.name, *product.nvml_names, *product.aliases)}
        ]
        assert len(keys) == len(set(keys))

    def test_the_beginning_of_a_family_suggests_the_family(self) -> None:
        near = nearest_products("V100")
        assert near
        assert all(name.startswith("V100-") for name in near)
        assert nearest_products("") == ()

    def test_a_typing_error_suggests_the_product(self) -> None:
        assert "A100-SXM4-80GB" in nearest_products("A100-SMX4-80GB", limit=2)
        assert nearest_products("zzzzzzzz") == ()

    @pytest.mark.parametrize(
        ("pattern", "device", "expected"),
        [
            pytest.param("H20", "NVIDIA H20", True, id="the product"),
            pytest.param("H20", "NVIDIA H200", False, id="never by substring"),
            pytest.param("H20", "NVIDIA H20-3e", False, id="nor by beginning"),
            pytest.param("H20*", "NVIDIA H200", True, id="a glob says so"),
            pytest.param("*H100*", "NVIDIA H100 NVL", True, id="glob on both sides"),
            pytest.param("NVIDIA A100*", "A100-PCIE-40GB", True, id="branded glob, old driver"),
            pytest.param("Tesla-T*", "Tesla T4", True, id="branded glob"),
            pytest.param("Tesla-T*", "NVIDIA TITAN RTX", False, id="branded glob, other brand"),
            pytest.param("H100-SXM*", "NVIDIA H100 80GB HBM3", True, id="glob on an alias"),
            pytest.param("A?0", "NVIDIA A40", True, id="one character"),
            pytest.param("A?0", "NVIDIA A100 80GB PCIe", False, id="one character only"),
            pytest.param("Foo 9000", "NVIDIA Foo 9000", True, id="a device that the catalogue does not know"),
            pytest.param("Foo*", "NVIDIA Foo 9000", True, id="glob on an unknown device"),
            pytest.param("NVIDIA-Foo*", "Foo 9000", True, id="branded glob on an unknown device"),
        ],
    )
    def test_a_pattern_names_whole_products(self, pattern: str, device: str, expected: bool) -> None:
        assert is_product(product_pattern(pattern), device_kind(device)) is expected


class TestProducts:
    @pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
    def test_a_row_is_complete_and_consistent(self, product: Product) -> None:
        assert named(product.name) == named(product.nvml_names[0]) == product.name
        assert product.architecture is Architecture.from_compute_capability(product.compute_capability)
        assert product.nominal_mib > 0
        assert product.sms > 0
        assert product.bandwidth_gb_s > 0
        assert product.cost > 0
        assert product.features <= FEATURES
        assert product.source
        assert ("mig" in product.features) == bool(product.mig_profiles)
        assert ("tensor-fp16" not in product.features) or product.fp16_tflops > product.fp32_tflops

    @pytest.mark.parametrize(
        "product", [product for product in PRODUCTS if product.mig_profiles], ids=lambda product: product.name
    )
    def test_mig_profiles_are_in_the_grammar_and_fit_the_device(self, product: Product) -> None:
        for name, most in product.mig_profiles:
            profile = parse_mig_profile(name)
            assert profile is not None
            assert profile.name == name
            assert profile.gpu_slices * most <= 7 or profile.gigabytes * most * 1024 <= product.nominal_mib * 1.05
        smallest, most = product.mig_profiles[0]
        assert smallest.startswith("1g.")
        assert most in {2, 4, 7}

    @pytest.mark.parametrize("name", ["A100-SXM4-80GB", "A30", "H100-80GB-HBM3", "H200", "B200", "GH200-480GB"])
    def test_training_products_have_no_encoder(self, name: str) -> None:
        product = find_product(name)
        assert product is not None
        assert {"nvdec", "nvjpg", "mig"} <= product.features
        assert "nvenc" not in product.features

    @pytest.mark.parametrize(
        ("feature", "having", "lacking"),
        [
            ("tensor-fp16", ["V100-PCIE-16GB", "T4", "H20"], ["P100-PCIE-16GB", "P40", "T1000-8GB", "K80"]),
            ("int8", ["P4", "T4", "T1000", "A100-SXM4-40GB", "B200"], ["P100-SXM2-16GB", "V100-SXM2-32GB", "GB300"]),
            ("bf16", ["A10", "L4", "H100-PCIe"], ["T4", "V100S-PCIE-32GB"]),
            ("fp8", ["L4", "L40S", "H100-NVL", "GB10"], ["A100-SXM4-80GB", "A40"]),
            ("fp4", ["B200", "GB10", "RTX-5090"], ["H200", "L40S"]),
            ("nvjpg", ["A100-PCIE-40GB", "L4", "H100-PCIe"], ["T4", "A10", "V100-SXM2-16GB"]),
            ("nvlink", ["P100-SXM2-16GB", "A40", "H100-NVL"], ["T4", "L40S", "P100-PCIE-16GB", "A10"]),
        ],
    )
    def test_features_tell_products_apart(self, feature: str, having: list[str], lacking: list[str]) -> None:
        assert {name: feature in device_kind(name).features for name in (*having, *lacking)} == {
            **dict.fromkeys(having, True),
            **dict.fromkeys(lacking, False),
        }

    def test_cost_is_the_geometric_mean_of_three_ratios_to_a_t4(self) -> None:
        # A100 40 GB: 312 / 65 = 4.8, 40960 / 15360 = 2.667, 1555 / 320 = 4.859; their product 62.2, cube root 3.96.
        assert relative_cost(312, 40960, 1555) == 3.96
        assert device_kind("Tesla T4").cost == 1.0

    def test_cost_orders_products_by_strength(self) -> None:
        names = ["T4", "L4", "A10", "A30", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-PCIe", "H100-SXM", "H200", "B200"]
        costs = [device_kind(name).cost for name in names]
        assert costs == sorted(costs)
        assert len(set(costs)) == len(costs)

    def test_models_of_the_trace_stand_for_known_products(self) -> None:
        assert {model: named(product) for model, product in TRACE_MODELS.items()} == TRACE_MODELS
        assert named("V100M32") == "V100-SXM2-32GB"


class TestDeviceKind:
    def test_a_known_device_has_the_tables_features_and_nvmls_figures(self) -> None:
        kind = device_kind(
            "NVIDIA L4", architecture=8, compute_capability=(8, 9), total_mib=23034, driver="535.104.05", cuda=(12, 2)
        )
        assert (kind.product, kind.architecture, kind.total_mib) == ("L4", Architecture.ADA, 23034)
        assert (kind.driver, kind.cuda) == ((535, 104, 5), (12, 2))
        assert {"fp8", "nvenc", "nvjpg"} <= kind.features

    def test_memory_that_nvml_does_not_report_is_not_taken_from_the_table(self) -> None:
        kind = device_kind("NVIDIA GB10")
        assert kind.total_mib == 0
        assert kind.compute_capability == (12, 1)

    def test_an_unknown_product_has_what_its_capability_promises_and_a_neutral_cost(self) -> None:
        kind = device_kind("NVIDIA Foo 9000", compute_capability=(9, 0), total_mib=4096)
        assert kind.product == "Foo-9000"
        assert kind.features == {"tensor-fp16", "int8", "bf16", "fp8"}
        hopper = sorted(product.cost for product in PRODUCTS if product.compute_capability == (9, 0))
        assert hopper[0] < kind.cost < hopper[-1]

    def test_an_unknown_product_of_turing_is_not_promised_tensor_cores(self) -> None:
        assert "tensor-fp16" not in device_kind("NVIDIA GeForce GTX 1660", compute_capability=(7, 5)).features

    def test_a_device_of_a_future_generation_is_served(self) -> None:
        kind = device_kind("NVIDIA X1", architecture=21, compute_capability=(15, 0), total_mib=1)
        assert kind.architecture is Architecture.NEWER
        assert {"fp4", "bf16"} <= kind.features

    def test_nvmls_capability_wins_over_the_row_of_that_name(self) -> None:
        kind = device_kind("NVIDIA H100 PCIe", compute_capability=(8, 0))
        assert kind.architecture is Architecture.AMPERE
        assert "fp8" not in kind.features
        assert "mig" not in kind.features

    @pytest.mark.parametrize("name", ["", " ", "NVIDIA", "\x00\ud800é", "x" * 5000, "***"])
    def test_no_name_is_too_strange(self, name: str) -> None:
        kind = device_kind(name, architecture=-1, compute_capability=(-3, 0), total_mib=-5, driver="abc", cuda="")
        assert isinstance(kind, DeviceKind)
        assert kind.product
        assert kind.total_mib == 0
        assert kind.architecture is Architecture.UNKNOWN
        assert kind.driver == kind.cuda == ()

    def test_equal_readings_give_one_value(self) -> None:
        first = device_kind("Tesla T4", total_mib=15360, driver="535.1", cuda="12.4")
        second = device_kind("Tesla T4", total_mib=15360, driver=(535, 1), cuda=(12, 4))
        assert first is second
        assert hash(first) == hash(second)

    @pytest.mark.parametrize(
        ("name", "profile", "media"),
        [
            pytest.param("NVIDIA A100-SXM4-40GB", "1g.5gb", set(), id="smallest of A100 has none"),
            pytest.param("NVIDIA A100-SXM4-40GB", "1g.5gb+me", {"nvdec", "nvjpg"}, id="the one with media engines"),
            pytest.param("NVIDIA A100-SXM4-40GB", "1g.10gb", {"nvdec"}, id="double memory of A100 40 GB"),
            pytest.param("NVIDIA A100-SXM4-80GB", "1g.10gb", set(), id="the same name on A100 80 GB"),
            pytest.param("NVIDIA A30", "2g.12gb", {"nvdec"}, id="half of A30"),
            pytest.param("NVIDIA A30", "4g.24gb", {"nvdec", "nvjpg"}, id="all of A30"),
            pytest.param("NVIDIA H100 80GB HBM3", "1g.10gb", {"nvdec", "nvjpg"}, id="Hopper shares them out"),
            pytest.param(
                "NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb", {"nvdec", "nvenc", "nvjpg"}, id="RTX PRO"
            ),
            pytest.param("NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb-me", set(), id="RTX PRO without"),
            pytest.param("NVIDIA H100 80GB HBM3", "odd", set(), id="a profile that cannot be read"),
        ],
    )
    def test_an_instance_has_the_media_engines_of_its_profile(self, name: str, profile: str, media: set[str]) -> None:
        kind = device_kind(name, mig_profile=profile, total_mib=4864, sm_milli=130)
        assert kind.features & {"nvdec", "nvenc", "nvjpg"} == media
        assert "mig" in kind.features
        assert "nvlink" not in kind.features
        assert kind.mig_profile == profile

    def test_an_instance_of_an_unknown_product_is_served(self) -> None:
        kind = device_kind("NVIDIA Foo", compute_capability=(8, 0), mig_profile="MIG 1G.5GB", sm_milli=250)
        assert kind.mig_profile == "1g.5gb"
        assert kind.cost == pytest.approx(device_kind("NVIDIA Foo", compute_capability=(8, 0)).cost / 4, abs=0.01)

    def test_an_instance_costs_the_mean_of_its_shares(self) -> None:
        kind = device_kind("NVIDIA A100-SXM4-40GB", mig_profile="3g.20gb", total_mib=20480, sm_milli=400)
        # Half of the memory and 0.4 of the SMs: 3.96 x 0.45.
        assert kind.cost == pytest.approx(1.782)


class TestMigProfiles:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1g.5gb", MigProfile(1, 1, 5)),
            ("1g.5gb+me", MigProfile(1, 1, 5, ("me",))),
            ("1c.3g.71gb", MigProfile(1, 3, 71)),
            ("1g.0gb", MigProfile(1, 1, 0)),
            ("1g.24gb+me.all", MigProfile(1, 1, 24, ("me", "all"))),
            ("1g.24gb-me", MigProfile(1, 1, 24, (), ("me",))),
        ],
    )
    def test_driver_spellings_are_read_and_written(self, text: str, expected: MigProfile) -> None:
        assert parse_mig_profile(text) == expected
        assert expected.name == text

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("mig-1g.5gb.me", "1g.5gb+me"),
            ("nvidia.com/mig-1g.24gb.me.all", "1g.24gb+me.all"),
            (" MIG 1G.10GB ", "1g.10gb"),
            ("3c.3g.20gb", "3g.20gb"),
        ],
    )
    def test_other_spellings_mean_the_drivers(self, text: str, name: str) -> None:
        profile = parse_mig_profile(text)
        assert profile is not None
        assert profile.name == name

    @pytest.mark.parametrize("text", ["", "1g", "1g.gb", "0g.5gb", "4c.3g.20gb", "1g.5gb+", "1g.5gb me", "g.5gb"])
    def test_other_texts_are_no_profile(self, text: str) -> None:
        assert parse_mig_profile(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("535.104.05", (535, 104, 5)), ("12.4", (12, 4)), ("", ()), ("580.x.1", (580,)), ("1.2.3.4.5", (1, 2, 3, 4))],
)
def test_versions_are_read_as_far_as_they_are_numbers(text: str, expected: object) -> None:
    assert parse_version(text) == expected
