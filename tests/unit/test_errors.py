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


def test_each_exception_has_the_documented_bases_and_is_public():
    for name in ("InputError", "AxisError", "PlanError", "RecordError", "UndefinedMetric"):
        assert getattr(errors, name).__bases__ == (errors.FedgaugeError, ValueError)
    assert errors.AxisMismatch.__bases__ == (errors.AxisError,)
    assert errors.CountOverflow.__bases__ == (errors.FedgaugeError, OverflowError)
    assert set(exceptions()) <= set(fedgauge.__all__)
    assert all(getattr(fedgauge, name) is kind for name, kind in exceptions().items())


def test_the_drawn_tree_and_exit_codes_are_those_of_the_exceptions():
    drawing = errors.__doc__.split("::")[1]
    drawn = re.findall(r"^[ │├└─]+([A-Z]\w+)", drawing, flags=re.MULTILINE)
    assert sorted(drawn) == sorted(exceptions())
    for name, builtin in re.findall(r"(\w+) \((\w+Error)\)", errors.__doc__):
        assert builtin in [base.__name__ for base in exceptions()[name].__bases__]
    codes = re.findall(r"^[ │├└─]+([A-Z]\w+).*?  ([12])\b", errors.__doc__, flags=re.MULTILINE)
    assert {name: int(code) for name, code in codes} == {
        kind.__name__: kind.exit_code for kind in ERRORS
    }
    unfinished = {kind.__name__ for kind in ERRORS if kind.exit_code == 1}
    assert unfinished == {
        *("RecordError", "LedgerError", "ExchangeError"),
        *("ProtocolError", "CohortTooSmall", "ReportRefused", "ResultWithheld"),
    }
    assert {kind.exit_code for kind in ERRORS} == {1, 2}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_commands_end_with_the_exit_code_and_places_stand_in_front(kind, capsys):
    with pytest.raises(typer.Exit) as ended, readable_errors():
        raise kind("what is wrong\nand what to do.")
    assert ended.value.exit_code == kind.exit_code
    assert capsys.readouterr().err == "fedgauge: what is wrong and what to do.\n"
    with pytest.raises(kind) as caught, errors.located("client 'site-b'"):
        raise kind("3 of 7 labels are missing.")
    assert type(caught.value) is kind
    assert str(caught.value) == "client 'site-b': 3 of 7 labels are missing."
    assert caught.value.__suppress_context__


def test_places_nest_from_the_outside_in_and_leave_other_errors_alone():
    with (
        pytest.raises(errors.InputError, match=r"^client 'a': a\.csv: bad\.$"),
        errors.located("client 'a'"),
        errors.located("a.csv"),
    ):
        raise errors.InputError("bad.")
    stray = KeyError("stray")
    with pytest.raises(KeyError) as caught, errors.located("client 'a'"):
        raise stray
    assert caught.value is stray
