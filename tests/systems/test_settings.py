"""Settings: every field of every class keeps its rule, is read from text and shown."""

import math
from dataclasses import MISSING, dataclass

import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.papers.fa_ld.claim import TheoremSetting
from fedprivacy.papers.fa_ld.grid import LangevinSetting, MeanProblem
from fedprivacy.papers.fed_plt.grid import Regression
from fedprivacy.papers.fed_plt.tradeoff import SplittingProblem, SplittingSetting
from fedprivacy.papers.fed_smp.bounds import SmpSetting
from fedprivacy.runs.methods import METHODS, method_named, names
from fedprivacy.runs.run_specs import SampledRun
from fedprivacy.systems.settings import (
    COUNT,
    POSITIVE,
    Settings,
    choice,
    read,
    setting,
    single,
    table,
)

KINDS = [
    *dict.fromkeys(method.settings for method in METHODS.values()),
    *(SampledRun, LangevinSetting, MeanProblem, Regression, SplittingProblem, SplittingSetting),
    *(SmpSetting, TheoremSetting),
]
FIELDS = [(kind, name) for kind in KINDS for name in kind.known()]
ODD = [-1.0, math.nan, math.inf, "fast", True, [1]]


@dataclass(frozen=True, kw_only=True)
class Toy(Settings):
    """Two settings."""

    length: float = setting(POSITIVE, "how long", unit="m", symbol="L")
    colour: str = setting(choice("red", "blue"), "which one", default="red")
    count: int | None = setting(COUNT, "how many", default=None)


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda each: getattr(each, "__name__", each))
def test_every_setting_refuses_what_breaks_its_rule_by_name(kind, name):
    known = kind.known()[name]
    for value in ODD:
        with pytest.raises(ParameterError, match=name):
            known.checked(value)
    assert known.help and known.rule.text and str(known).startswith(known.help)
    if known.default not in (None, MISSING):
        assert known.checked(known.default) == known.default
        assert known.read(str(known.default)) == known.default
    if known.default is None:
        assert known.checked(None) is None is known.read("none")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "length must be above 0, got None; pass it"),
        ({"length": 0}, "length must be a finite number above 0, got 0"),
        ({"length": 1, "count": 1.5}, "count must be an integer of at least 1, got 1.5"),
        ({"length": 1, "width": 2}, "setting must be one of 'length', 'colour' or 'count'"),
        ({"length": 1, "colour": "green"}, "colour must be one of red, blue, got 'green'"),
    ],
)
def test_what_is_wrong_with_settings_is_told(given, told):
    with pytest.raises(ParameterError, match=told):
        Toy.of(given)


def test_settings_are_checked_when_they_are_changed_and_numbers_get_their_kind():
    toy = Toy(length=2, count=3.0)
    assert (toy.length, toy.count) == (2.0, 3) and isinstance(toy.count, int)
    assert toy.changed({"count": None}).values() == {"length": 2.0, "colour": "red", "count": None}
    for wrong, told in (({"length": -1}, "length"), ({"depth": 1}, "setting must be one of")):
        with pytest.raises(ParameterError, match=told):
            toy.changed(wrong)
    with pytest.raises(TypeError):
        Toy(length=1.0, depth=2.0)


def test_a_grid_is_every_combination_in_the_order_of_the_fields():
    found = Toy.grid({"count": [1, 2], "length": (0.5, 1)})
    assert [(t.length, t.count) for t in found] == [(0.5, 1), (0.5, 2), (1.0, 1), (1.0, 2)]
    assert Toy.grid({"length": 3}) == [Toy(length=3)]
    for axes in ({"length": []}, {"length": [1, -1]}, {"count": [1]}, {"depth": [1]}):
        with pytest.raises(ParameterError):
            Toy.grid(axes)


def test_texts_are_read_and_one_value_is_one():
    found = read(Toy.known(), {"length": "0.5, 2", "count": "3,all,10000000000000001"})
    assert found == {"length": [0.5, 2.0], "count": [3, None, 10**16 + 1]}
    assert single({"length": [1.0]}) == {"length": 1.0}
    for texts in ({"length": "a"}, {"length": ""}, {"length": "1,,2"}, {"count": "1.5"}):
        with pytest.raises(ParameterError, match=next(iter(texts))):
            read(Toy.known(), texts)
    with pytest.raises(ParameterError, match="length must be one value"):
        single(found)


def test_the_table_has_every_setting_with_its_unit_and_rule():
    rows = table(Toy).splitlines()
    assert rows[2] == "| `length` | L | how long | above 0 |  |"
    assert rows[3] == "| `colour` |  | which one | one of red, blue | red |"
    assert rows[4] == "| `count` |  | how many | an integer of at least 1 |  |"


def test_methods_are_known_by_name_and_take_their_own_settings_only():
    without = {name for name in METHODS if name.startswith("fedavg")}
    without |= {"scaffold", "fed-plt-noiseless"}
    assert set(names(private=True)) == METHODS.keys() - without
    with pytest.raises(ParameterError, match="method must be one of 'fedavg'"):
        method_named("magic")
    with pytest.raises(ParameterError, match="method must be one of 'dp-fedavg'"):
        method_named("fedavg", names(private=True))
    for method in METHODS.values():
        if method.knob is not None:
            with pytest.raises(ParameterError, match=f"{method.knob.name} must be left out"):
                method.of({method.knob.name: 1.0})
        for other in METHODS.values():
            for name in set(other.settings.known()) - set(method.known):
                with pytest.raises(ParameterError, match=f"{method.name} does not use it"):
                    method.of({name: 1})
