"""The exception tree, its exit codes, the place put in front of a message, and the public names."""

import inspect
import re

import pytest
import typer

import fedgauge
from fedgauge import errors
from fedgauge.cli.terminal import readable_errors


def exceptions():
    classes = inspect.getmembers(errors, inspect.isclass)
    return {name: kind for name, kind in classes if issubclass(kind, Exception)}


ERRORS = [kind for kind in exceptions().values() if issubclass(kind, errors.FedgaugeError)]


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


def test_the_drawn_tree_shows_the_exit_codes():
    drawn = re.findall(r"^[ │├└─]+([A-Z]\w+).*?  ([12])\b", errors.__doc__, flags=re.MULTILINE)
    assert {name: int(code) for name, code in drawn} == {
        kind.__name__: kind.exit_code for kind in ERRORS
    }


def test_what_could_not_be_finished_exits_with_1_and_what_can_be_mended_with_2():
    unfinished = {kind.__name__ for kind in ERRORS if kind.exit_code == 1}
    assert unfinished == {
        *("RecordError", "LedgerError", "ExchangeError"),
        *("ProtocolError", "CohortTooSmall", "ReportRefused", "ResultWithheld"),
    }
    assert {kind.exit_code for kind in ERRORS} == {1, 2}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_a_command_ends_with_the_exit_code_of_its_error(kind, capsys):
    with pytest.raises(typer.Exit) as ended, readable_errors():
        raise kind("what is wrong\nand what to do.")
    assert ended.value.exit_code == kind.exit_code
    assert capsys.readouterr().err == "fedgauge: what is wrong and what to do.\n"


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
