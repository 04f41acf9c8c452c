"""JSON, YAML and table output of commands."""
import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import cell, display_width, iso_time, percentiles, render_table, to_yaml

yaml = pytest.importorskip("yaml")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",))), inner, max_size=4), max_leaves=12)


@given(VALUES)
def test_yaml_is_parsed_to_the_written_value(value):
    assert yaml.safe_load(to_yaml(value)) == json.loads(json.dumps(value))


@pytest.mark.parametrize("number", [
    1e-05, -1e-07, 1e16, 1.5e300, -2.5e-300, 5e-324, 1e22, 123456789012345680.0, 0.1, -0.0, 3.0, 2**53 + 0.0])
def test_yaml_numbers_remain_numbers(number):
    """Check with parsers of YAML 1.1 and of JSON."""
    for told in (number, {"rate": number}, [number], {"a": {"b": [number]}}):
        assert yaml.safe_load(to_yaml(told)) == told
    assert type(yaml.safe_load(to_yaml(number))) is float and json.loads(to_yaml(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e-3, max_value=1e-3))
def test_small_numbers_in_yaml_remain_numbers(number):
    assert yaml.safe_load(to_yaml({"a": number})) == {"a": number}


def test_yaml_can_represent_more_than_json():
    assert yaml.safe_load(to_yaml([float("inf"), float("-inf")])) == [float("inf"), float("-inf")]
    assert yaml.safe_load(to_yaml(float("nan"))) != 0.0


def test_yaml_uses_block_style():
    assert to_yaml({"a": [1, {"b": "x", "c": []}], "yes": None}) == (
        'a:\n  - 1\n  - b: "x"\n    c: []\n"yes": null')


@pytest.mark.parametrize("text, width", [("abc", 3), ("主题", 4), ("ｱ", 1), ("e\u0301", 1), ("👍", 2), ("", 0)])
def test_width_of_a_text_on_a_terminal(text, width):
    assert display_width(text) == width


def test_columns_are_aligned_in_any_script():
    lines = render_table(("topic", "n"), [("订单", "1"), ("orders", "22")], {"n"}).split("\n")
    assert lines == ["topic    n", "------  --", "订单     1", "orders  22"]


def test_no_color_is_respected(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_COLOR", "1")
    result = CliRunner().invoke(rmqha, ["store", "du", str(tmp_path)], color=True)
    assert "\x1b" not in result.output


def test_control_characters_are_escaped():
    assert cell("a\x1b[31m") == "a\\u001b[31m"


def test_times_beyond_the_calendar_are_printed():
    assert iso_time(0).startswith(("1970-01-01T", "1969-12-31T")) and iso_time(1 << 62) is None


def test_percentiles_are_ranks():
    assert percentiles([]) == {}
    found = percentiles(list(range(100, 0, -1)), (50, 99))
    assert found == {"p50": 51, "p99": 100, "max": 100}
