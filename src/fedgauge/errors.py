"""The exception tree: every error fedgauge raises on purpose.

::

    FedgaugeError                      2
    ├── InputError (ValueError)        2  rows, columns or files that cannot be measured
    │   └── LabelError                 2  labels that are neither positive nor negative
    ├── AxisError (ValueError)         2  a score axis that cannot exist or be used
    │   └── AxisMismatch               2  two histograms, or a histogram and a plan, disagree
    ├── CalibratorError (ValueError)   2  a map of scores that cannot exist or be read
    ├── PlanError (ValueError)         2  a plan that is incomplete, inconsistent or altered
    ├── RecordError (ValueError)       1  a saved result that cannot be read
    ├── SiteError (ValueError)         2  a site file, or its key, that cannot be used
    ├── PlanRefused                    2  a plan that a site does not take part in
    │   └── BudgetExceeded             2  it would cost more privacy than the ledger allows
    ├── LedgerError                    1  a privacy ledger that is damaged, old or out of reach
    ├── ProtocolError                  1  a message that is malformed, misplaced or dishonest
    │   ├── CohortTooSmall             1  too few clients are left to release a sum
    │   └── ReportRefused              1  bytes that are no local report of this plan
    ├── IntakeError                    2  an intake of local reports that cannot be used
    ├── ExchangeError                  1  a step of a file exchange that cannot be taken
    ├── ResultWithheld                 1  a result that would show a few examples
    ├── UndefinedMetric (ValueError)   2  a number that the counts do not define
    │   └── NoSignal                   2  noise, or too few examples, hide what is measured
    └── CountOverflow (OverflowError)  2  counts too large for 64 bits

    PrivacyWarning (UserWarning)          a setting that is allowed but protects little
    InputWarning (UserWarning)            rows that were left out, or that look wrong

The number is `exit_code`, with which a command ends: 2 for usage or input that the user can
mend, 1 for work that could not be finished.

A message says what, where, the rule and the remedy. It never holds a score, a
label or a count of a bin.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from fedgauge.escaping import in_one_line


class _Told:
    """What may quote names of files and fields, which are anybody's text."""

    def __str__(self) -> str:
        return in_one_line(" ".join(super().__str__().split()))


class FedgaugeError(_Told, Exception):
    """Base class of all errors raised by fedgauge.

    Examples
    --------
    >>> issubclass(fg.AxisError, fg.FedgaugeError), fg.AxisError.exit_code
    (True, 2)
    """

    exit_code: ClassVar[int] = 2


class InputError(FedgaugeError, ValueError):
    """Rows, columns or files that cannot be measured.

    Examples
    --------
    >>> fg.evaluate({"a": ([0, 1], [0.2])})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.InputError: client 'a': y_true has 2 rows and y_score 1. ...
    """


class LabelError(InputError):
    """Labels that are neither positive nor negative.

    Examples
    --------
    >>> fg.evaluate({"a": (["no", "yes"], [0.2, 0.7])})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.LabelError: client 'a': 2 of 2 labels are neither bool nor ...
    """


class AxisError(FedgaugeError, ValueError):
    """A score axis that cannot exist or be used.

    Examples
    --------
    >>> fg.Axis.uniform(0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.AxisError: an axis needs at least 1 bin, got 0. 4096 is a ...
    """


class AxisMismatch(AxisError):
    """Two histograms, or a histogram and a plan, use different axes.

    Examples
    --------
    >>> fine = fg.ScoreHistogram(fg.Axis.uniform(8))
    >>> fine + fg.ScoreHistogram(fg.Axis.uniform(4))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.AxisMismatch: cannot add histograms on axes 97213e04 and ...
    """


class CalibratorError(FedgaugeError, ValueError):
    """A map from scores to probabilities that cannot exist or be read.

    Examples
    --------
    >>> fg.Calibrator.from_json("nothing")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.CalibratorError: cannot read nothing: No such file or directory. ...
    """


class PlanError(FedgaugeError, ValueError):
    """A plan that is incomplete, inconsistent or altered.

    Examples
    --------
    >>> fg.EvaluationPlan.from_toml("tree = 5")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.PlanError: this is not a plan in TOML: Expected `array`, ...
    """


class RecordError(FedgaugeError, ValueError):
    """A saved result that cannot be read.

    Examples
    --------
    >>> fg.Evaluation.from_json("/dev/null")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.RecordError: cannot read /dev/null: ...
    """

    exit_code = 1


class SiteError(FedgaugeError, ValueError):
    """A site file, or its key, that cannot be used.

    Examples
    --------
    >>> fg.Site.from_toml("nowhere/site.toml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.SiteError: there is no site file ...
    """


class PlanRefused(FedgaugeError):
    """A plan that a site does not take part in; for the site's operator alone.

    Examples
    --------
    >>> import tempfile
    >>> from fedgauge.site import create_site
    >>> site = create_site(f"{tempfile.mkdtemp()}/a", name="hospital-a", dataset="stroke-2026")
    >>> plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(64, outside="clip"), fg.LocalDP(5.0))
    >>> site.judge_reports(plan)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.PlanRefused: the privacy model local-dp is not among those allowed here: ...
    """


class BudgetExceeded(PlanRefused):
    """A plan that would cost more privacy than the ledger allows.

    Examples
    --------
    >>> import tempfile
    >>> from fedgauge.site import Account, Cost, Ledger
    >>> folder = tempfile.mkdtemp()
    >>> ledger = Ledger.create(f"{folder}/ledger.sqlite", head=f"{folder}/head")
    >>> account = Account("stroke-2026", "example", "add-remove")
    >>> ledger.reserve(bytes(32), account, Cost(2.0, 0.0), default_limit=Cost(1.0, 0.0))
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.BudgetExceeded: the privacy budget of stroke-2026 ...
    """


class LedgerError(FedgaugeError):
    """A privacy ledger that is damaged, older than it was, or out of reach.

    Examples
    --------
    >>> from fedgauge.site import Ledger
    >>> Ledger("nowhere/ledger.sqlite", head="nowhere/head").entries()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.LedgerError: cannot use ledger ... No such file or directory.
    """

    exit_code = 1


class ProtocolError(FedgaugeError):
    """A message that is malformed, misplaced or dishonest.

    Examples
    --------
    >>> from fedgauge.protocol import Envelope
    >>> Envelope.from_bytes(b"a letter")
    Traceback (most recent call last):
        ...
    fedgauge.errors.ProtocolError: this is not a message of kind Envelope.
    """

    exit_code = 1


class CohortTooSmall(ProtocolError):
    """Too few clients are left to release a sum.

    Examples
    --------
    >>> from fedgauge.keys import SigningKey
    >>> from fedgauge.secagg import SummationServer
    >>> plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8), fg.Cohort(3))
    >>> members = [SigningKey.generate().public for _ in range(4)]
    >>> server = SummationServer.invite(plan, members, SigningKey.generate())
    >>> server.step({})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.CohortTooSmall: 0 members answered and 3 are needed. ...
    """


class ReportRefused(ProtocolError):
    """Bytes that are no local report of this plan; the message is one of few reasons.

    Examples
    --------
    >>> from fedgauge.local.messages import ReportFormat
    >>> plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(64, outside="clip"), fg.LocalDP(5.0))
    >>> ReportFormat(plan).read(b"a letter")
    Traceback (most recent call last):
        ...
    fedgauge.errors.ReportRefused: not a report
    """


class IntakeError(FedgaugeError):
    """An intake of local reports that cannot be opened or written.

    Examples
    --------
    >>> plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(64, outside="clip"), fg.LocalDP(5.0))
    >>> fg.ReportServer(plan, "/dev/null")
    Traceback (most recent call last):
        ...
    fedgauge.errors.IntakeError: cannot use the intake /dev/null/reports.sqlite: File exists.
    """


class ExchangeError(FedgaugeError):
    """A step of a file exchange that cannot be taken.

    Examples
    --------
    >>> from fedgauge.engines.exchange import Exchange
    >>> Exchange("nowhere", site=None).progress()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.ExchangeError: there is no folder nowhere. Name the one that ...
    """

    exit_code = 1


class ResultWithheld(FedgaugeError):
    """A result that would show a few examples however its bins are merged.

    Examples
    --------
    >>> plan = fg.planner.propose(privacy=fg.SecureAggregation(), clients=1, min_cell=10)
    >>> fg.evaluate({"a": ([0, 1], [0.2, 0.7])}, plan)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.ResultWithheld: the result is withheld: a class has fewer ...
    """

    exit_code = 1


class UndefinedMetric(FedgaugeError, ValueError):
    """A number that the counts do not define.

    Examples
    --------
    >>> fg.evaluate({"a": ([1, 1], [0.2, 0.7])}).roc_auc  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.UndefinedMetric: no client has a negative example, so ROC and PR ...
    """


class NoSignal(UndefinedMetric):
    """Noise, or the rule about small cells, hides what is measured.

    Examples
    --------
    >>> few = {"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 0, 1], [0.1, 0.6, 0.4])}
    >>> fg.evaluate(few, privacy=fg.DistributedDP(0.1), seed=1).roc_auc  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.NoSignal: no signal: the noise (standard deviation ...
    """


class CountOverflow(FedgaugeError, OverflowError):
    """Counts too large for 64-bit integers.

    Examples
    --------
    >>> many = fg.ScoreHistogram.from_counts(fg.Axis.uniform(2), [[2**62, 0], [0, 0]])
    >>> many + many  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fedgauge.errors.CountOverflow: more than 4,611,686,018,427,387,904 examples ...
    """


class PrivacyWarning(_Told, UserWarning):
    """A setting that is allowed but protects little.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     privacy = fg.DistributedDP(50.0)
    >>> print(told[0].message)
    epsilon 50 protects nobody: 1 is usual, 10 is already weak.
    """


class InputWarning(_Told, UserWarning):
    """Rows that were left out, since nothing goes with them, or that look wrong.

    Examples
    --------
    >>> import warnings
    >>> scores, bought = ({f"user {k}": k > 20 for k in range(size)} for size in (40, 41))
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     result = fg.evaluate_vertical(scores, {"shop": bought}, positive_rate=0.4, seed=1)
    >>> print(told[0].message)
    1 of 41 labels of party 'shop' have no score and are left out.
    """


@contextmanager
def located(place: str) -> Iterator[None]:
    """Put `place` in front of the message of any fedgauge error raised inside."""
    try:
        yield
    except FedgaugeError as error:
        raise type(error)(f"{place}: {error}") from None
