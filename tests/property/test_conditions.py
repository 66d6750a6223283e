from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.architecture import NAMED, Architecture
from scoring.catalog import PRODUCTS, DeviceKind, Product, device_kind, find_product
from scoring.conditions import CONDITION_KEYS, Conditions, parse_all, parse_conditions
from scoring.errors import InvalidCondition
from scoring.preferences import parse_preferences, preference_weight
from scoring.ranges import SIZE_KEPT_PERCENT

PREFIX = "tangram.dev/"
BLANKS = st.sampled_from(["", " ", "  ", "\t", "\n"])

kinds = st.builds(
    lambda name, capability, total, driver, cuda: device_kind(
        name, compute_capability=capability, total_mib=total, driver=driver, cuda=cuda
    ),
    st.sampled_from([product.nvml_names[0] for product in PRODUCTS]) | st.text(max_size=12),
    st.tuples(st.integers(3, 15), st.integers(0, 9)),
    st.integers(0, 300_000),
    st.lists(st.integers(0, 600), max_size=3).map(tuple),
    st.lists(st.integers(0, 13), max_size=2).map(tuple),
)
versions = st.lists(st.integers(0, 13), min_size=1, max_size=2).map(lambda parts: ".".join(map(str, parts)))
operators = st.sampled_from([">=", ">", "<=", "<", "!"])
comparisons = st.lists(st.builds(lambda sign, version: sign + version, operators, versions), min_size=1, max_size=4)
names = st.sampled_from([product.name for product in PRODUCTS])


def understood(key: str, text: str) -> Conditions | None:
    try:
        return parse_conditions({PREFIX + key: text})
    except InvalidCondition:
        return None


def meets(version: tuple[int, ...], comparison: str) -> bool:
    """Return whether a version meets one comparison, straight from the words of the documentation."""
    sign = comparison.rstrip("0123456789.")
    bound = tuple(int(part) for part in comparison.removeprefix(sign).split("."))
    begin = (*version, *(0,) * len(bound))[: len(bound)]
    return {
        ">=": begin >= bound,
        ">": begin > bound,
        "<=": begin <= bound,
        "<": begin < bound,
        "!": begin != bound,
    }[sign]


class TestVersions:
    """All comparisons of a list must hold; a version written short stands for all that begin with it."""

    @given(comparisons, st.tuples(st.integers(1, 13), st.integers(0, 13)))
    def test_a_list_is_met_where_every_comparison_is(self, parts: list[str], version: tuple[int, int]) -> None:
        wanted = understood("gpu-cuda", ",".join(parts))
        expected = all(meets(version, part) for part in parts)
        assert (wanted is not None and wanted.matches(device_kind("Tesla T4", cuda=version))) is expected

    @given(st.lists(versions, min_size=1, max_size=4), st.tuples(st.integers(1, 13), st.integers(0, 13)))
    def test_single_values_are_alternatives(self, parts: list[str], version: tuple[int, int]) -> None:
        wanted = parse_conditions({PREFIX + "gpu-cuda": ",".join(parts)})
        outside = all(meets(version, "!" + part) for part in parts)
        assert wanted.matches(device_kind("Tesla T4", cuda=version)) is not outside

    @given(comparisons)
    def test_a_description_of_one_range_reads_as_the_same_conditions(self, parts: list[str]) -> None:
        wanted = understood("gpu-cuda", ",".join(parts))
        for key, text in wanted.describe() if wanted else ():
            if " or " not in text:
                assert parse_conditions({PREFIX + key: text}) == wanted


class TestSizes:
    """A card counts as X where it reports from 92 % of X to X: below, equal and above exclude each other."""

    @given(st.integers(1024, 400_000), st.integers(1, 400_000))
    def test_exactly_one_of_below_equal_above_holds(self, size: int, total: int) -> None:
        kind = device_kind("Tesla T4", total_mib=total)
        met = [
            parse_conditions({PREFIX + "gpu-total-memory": f"{sign}{size}"}).matches(kind) for sign in ("<", "", ">")
        ]
        assert sum(met) == 1
        assert met[2] == (total > size)
        assert met[0] == (100 * total < SIZE_KEPT_PERCENT * size)

    @given(st.sampled_from([">=", ">", "<=", "<", ""]), st.integers(1024, 400_000))
    def test_a_description_reads_as_the_same_conditions(self, sign: str, size: int) -> None:
        wanted = parse_conditions({PREFIX + "gpu-total-memory": f"{sign}{size}"})
        ((key, text),) = wanted.describe()
        assert parse_conditions({PREFIX + key: text}) == wanted


class TestNormalForm:
    """What means the same is equal, whatever the order, the blanks and the empty parts."""

    @given(st.data(), st.sampled_from(["gpu-architecture", "gpu-product", "gpu-uuid", "gpu-driver"]))
    def test_order_blanks_and_empty_parts_change_nothing(self, data: st.DataObject, key: str) -> None:
        entries = {
            "gpu-architecture": st.sampled_from([found.label for found in NAMED]),
            "gpu-product": names,
            "gpu-uuid": st.text(string.hexdigits, min_size=1, max_size=4).map("GPU-{}".format),
            "gpu-driver": versions,
        }[key]
        parts = data.draw(st.lists(entries, min_size=1, max_size=5))
        shuffled = [*data.draw(st.permutations(parts)), ""]
        spaced = ",".join(data.draw(BLANKS) + part + data.draw(BLANKS) for part in shuffled)
        left, right = understood(key, ",".join(parts)), understood(key, spaced)
        assert left is not None
        assert left == right
        assert hash(left) == hash(right)

    @given(st.sets(st.sampled_from(NAMED), min_size=1), kinds)
    def test_a_description_of_generations_reads_as_the_same_conditions(
        self, generations: set[Architecture], kind: DeviceKind
    ) -> None:
        wanted = parse_conditions({PREFIX + "gpu-architecture": ",".join(found.label for found in generations)})
        assert wanted.matches(kind) == (kind.architecture in generations)
        ((key, text),) = wanted.describe()
        assert parse_conditions({PREFIX + key: text}) == wanted


class TestExclusion:
    """What is excluded is out, whatever else is asked, and in whatever order."""

    @given(st.lists(names, max_size=3), names, st.data())
    def test_an_excluded_product_never_matches(self, wanted: list[str], out: str, data: st.DataObject) -> None:
        parts = data.draw(st.permutations([*wanted, "*", f"!{out}"]))
        conditions = parse_conditions({PREFIX + "gpu-product": ",".join(parts)})
        matched = {product.name for product in PRODUCTS if conditions.matches(device_kind(product.nvml_names[0]))}
        assert matched == {product.name for product in PRODUCTS} - {out}


class TestProducts:
    """A name without wildcard means exactly one product."""

    @pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
    def test_every_spelling_of_a_name_matches_its_product_only(self, product: Product) -> None:
        for text in (product.name, *product.nvml_names, *product.aliases):
            wanted = parse_conditions({PREFIX + "gpu-product": text})
            matched = [other.name for other in PRODUCTS if wanted.matches(device_kind(other.nvml_names[0]))]
            assert matched == [product.name]


class TestRobustness:
    """Whatever an author or a driver writes, the answer is a value or a named error."""

    @given(st.dictionaries(st.sampled_from([PREFIX + key for key in CONDITION_KEYS]), st.text(max_size=40)), kinds)
    @settings(max_examples=200)
    def test_any_text_gives_conditions_or_problems_that_name_their_field(
        self, annotations: dict[str, str], kind: DeviceKind
    ) -> None:
        conditions, problems = parse_all(annotations)
        assert {problem.field for problem in problems} <= set(annotations)
        assert conditions.matches(kind) is (not conditions.failing(kind))
        assert conditions.is_any == (not conditions.describe())

    @given(st.text(), st.integers(), st.tuples(st.integers(), st.integers()), st.integers(), st.text(), st.text())
    def test_any_reading_gives_a_kind(
        self, name: str, number: int, capability: tuple[int, int], total: int, version: str, profile: str
    ) -> None:
        kind = device_kind(
            name,
            architecture=number,
            compute_capability=capability,
            total_mib=total,
            driver=version,
            cuda=version,
            mig_profile=profile,
            sm_milli=number,
        )
        assert hash(kind) == hash(kind)
        assert kind.cost >= 0
        assert kind.total_mib >= 0
        assert find_product(name) is None or kind.product

    @given(st.lists(st.tuples(names, st.floats(1e-300, 1e300)), unique_by=lambda pair: pair[0]), kinds)
    def test_a_preference_is_a_weight_from_0_to_1(self, pairs: list[tuple[str, float]], kind: DeviceKind) -> None:
        preferences = parse_preferences(",".join(f"{name}={weight!r}" for name, weight in pairs))
        assert len(preferences) == len(pairs)
        assert 0.0 <= preference_weight(preferences, kind) <= 1.0
