"""The exception tree, the place put in front of a message, and the public names."""

import inspect
import re

import pytest

import fedgauge
from fedgauge import errors


def exceptions():
    found = inspect.getmembers(errors, inspect.isclass)
    return {name: kind for name, kind in found if issubclass(kind, Exception)}


@pytest.mark.parametrize(
    ("name", "bases"),
    [
        ("InputError", (errors.FedgaugeError, ValueError)),
        ("AxisError", (errors.FedgaugeError, ValueError)),
        ("AxisMismatch", (errors.AxisError,)),
        ("PlanError", (errors.FedgaugeError, ValueError)),
        ("RecordError", (errors.FedgaugeError, ValueError)),
        ("UndefinedMetric", (errors.FedgaugeError, ValueError)),
        ("CountOverflow", (errors.FedgaugeError, OverflowError)),
    ],
)
def test_each_exception_has_the_documented_bases(name, bases):
    assert getattr(errors, name).__bases__ == bases


def test_the_drawn_tree_names_every_exception_once():
    drawing = errors.__doc__.split("::")[1]
    drawn = re.findall(r"^[ │├└─]+([A-Z]\w+)", drawing, flags=re.MULTILINE)
    assert sorted(drawn) == sorted(exceptions())


def test_the_drawn_tree_shows_the_builtin_bases():
    for name, builtin in re.findall(r"(\w+) \((\w+Error)\)", errors.__doc__):
        assert builtin in [base.__name__ for base in exceptions()[name].__bases__]


ERRORS = [kind for kind in exceptions().values() if issubclass(kind, errors.FedgaugeError)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_located_puts_the_place_in_front_and_keeps_the_kind(kind):
    with pytest.raises(kind) as caught, errors.located("client 'site-b'"):
        raise kind("3 of 7 labels are missing.")
    assert type(caught.value) is kind
    assert str(caught.value) == "client 'site-b': 3 of 7 labels are missing."
    assert caught.value.__suppress_context__


def test_places_nest_from_the_outside_in():
    with (
        pytest.raises(errors.InputError, match=r"^client 'a': a\.csv: bad\.$"),
        errors.located("client 'a'"),
        errors.located("a.csv"),
    ):
        raise errors.InputError("bad.")


def test_located_leaves_other_errors_alone():
    stray = KeyError("stray")
    with pytest.raises(KeyError) as caught, errors.located("client 'a'"):
        raise stray
    assert caught.value is stray


def test_public_names_are_sorted_unique_and_importable():
    assert fedgauge.__all__ == sorted(set(fedgauge.__all__))
    missing = [name for name in fedgauge.__all__ if not hasattr(fedgauge, name)]
    assert missing == []


def test_every_exception_is_public():
    assert set(exceptions()) <= set(fedgauge.__all__)
    assert all(getattr(fedgauge, name) is kind for name, kind in exceptions().items())
