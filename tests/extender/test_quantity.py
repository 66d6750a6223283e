from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.quantity import (
    MAX_MEMORY_MIB,
    MemoryUnit,
    ceil_mib,
    ceil_milli,
    memory_amount,
    parse_quantity,
    whole_number,
)
from scoring.errors import InvalidRequest

FIELD = "tangram.dev/gpu-memory of container main"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("0", Fraction(0), id="zero"),
        pytest.param("1.5Gi", Fraction(3 * 2**29), id="a broken number of a binary unit"),
        pytest.param("250m", Fraction(1, 4), id="thousandths"),
        pytest.param("1n", Fraction(1, 10**9), id="the smallest unit"),
        pytest.param("1e3", Fraction(1000), id="an exponent"),
        pytest.param("2E", Fraction(2 * 10**18), id="E alone is exa"),
        pytest.param("+5.", Fraction(5), id="sign and bare point as Go accepts them"),
        pytest.param("9223372036854775807", Fraction(2**63 - 1), id="the largest"),
    ],
)
def test_quantities_are_read_exactly(text: str, value: Fraction):
    assert parse_quantity(text, FIELD) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "NaN",
        "Infinity",
        "-1",
        "-0.5",
        "1 Gi",
        "1gi",
        "1Ki2",
        "0x10",
        "1e999",
        "1e-999",
        "9223372036854775808",
        "1" * 65,
        "\u0661",
        "1,5",
        "five",
        "8E9E",
        "1ki",
    ],
)
def test_what_is_no_quantity_is_refused_with_field_and_value(text: str):
    with pytest.raises(InvalidRequest) as caught:
        parse_quantity(text, FIELD)
    assert caught.value.field == FIELD
    assert caught.value.found.startswith(text[:64])
    assert "9223372036854775807" in caught.value.valid


def test_error_messages_stay_short_whatever_was_sent():
    with pytest.raises(InvalidRequest) as caught:
        parse_quantity("9" * 100_000, FIELD)
    assert len(str(caught.value)) < 300


def test_whole_numbers_may_carry_a_suffix_but_no_fraction():
    assert whole_number("2k", FIELD) == 2000
    with pytest.raises(InvalidRequest, match="whole number"):
        whole_number("1500m", FIELD)


@pytest.mark.parametrize(
    ("text", "mib", "unit"),
    [
        pytest.param("16Gi", 16384, MemoryUnit.BYTES, id="binary suffix is bytes"),
        pytest.param("16384", 16384, MemoryUnit.MIB, id="plain number is MiB"),
        pytest.param("5k", 5000, MemoryUnit.MIB, id="the API server's spelling of 5000"),
        # 8e9 / 2^20 = 7629.39..., rounded down
        pytest.param("8G", 7629, MemoryUnit.BYTES, id="too many MiB for any node"),
        pytest.param("16777216", 16777216, MemoryUnit.MIB, id="the largest count of MiB"),
        pytest.param("16777217", 16, MemoryUnit.BYTES, id="one more is bytes"),
        pytest.param("1Mi", 1, MemoryUnit.BYTES, id="one MiB in bytes"),
        pytest.param("0", 0, MemoryUnit.MIB, id="nothing asked"),
    ],
)
def test_amounts_of_memory_are_read_by_the_rule(text: str, mib: int, unit: MemoryUnit):
    amount = memory_amount(text, FIELD)
    assert (amount.mib, amount.unit) == (mib, unit)
    assert amount.needs_rewrite is (unit is MemoryUnit.BYTES)
    assert text in amount.sentence
    assert f"{mib} MiB" in amount.sentence


@pytest.mark.parametrize("text", ["512Ki", "17Ti", "8E", "1.5", "1500m", "-8Gi"])
def test_amounts_of_memory_that_no_node_can_mean_are_refused(text: str):
    with pytest.raises(InvalidRequest):
        memory_amount(text, FIELD)


@given(st.integers(1, MAX_MEMORY_MIB))
def test_rewriting_an_amount_as_plain_mib_is_read_back_as_the_same(mib: int):
    assert memory_amount(f"{mib}Mi", FIELD).mib == mib
    assert memory_amount(str(mib), FIELD).mib == mib


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str):
    with contextlib.suppress(InvalidRequest):
        assert 0 <= memory_amount(text, FIELD).mib <= MAX_MEMORY_MIB


def test_host_amounts_are_rounded_up():
    assert ceil_milli(Fraction(1, 10_000)) == 1
    assert ceil_mib(Fraction(2**20 + 1)) == 2
