"""The exception tree: every error fedgauge raises on purpose.

::

    FedgaugeError
    ├── InputError (ValueError)       rows, columns or files that cannot be measured
    ├── AxisError (ValueError)        a score axis that cannot exist or be used
    │   └── AxisMismatch              two histograms, or a histogram and a plan, disagree
    ├── PlanError (ValueError)        a plan that is incomplete, inconsistent or altered
    ├── RecordError (ValueError)      a saved result that cannot be read
    ├── SiteError (ValueError)        a site file, or its key, that cannot be used
    ├── PlanRefused                   a plan that a site does not take part in
    │   └── BudgetExceeded            it would cost more privacy than the ledger allows
    ├── LedgerError                   a privacy ledger that is damaged, old or out of reach
    ├── ProtocolError                 a message that is malformed, misplaced or dishonest
    │   ├── CohortTooSmall            too few clients are left to release a sum
    │   └── ReportRefused             bytes that are no local report of this plan
    ├── IntakeError                   an intake of local reports that cannot be used
    ├── ExchangeError                 a step of a file exchange that cannot be taken
    ├── UndefinedMetric (ValueError)  a number that the counts do not define
    │   └── NoSignal                  the noise is larger than what is measured
    └── CountOverflow (OverflowError) counts too large for 64 bits

    PrivacyWarning (UserWarning)      a setting that is allowed but protects little

A message says what, where, the rule and the remedy. It never holds a score, a
label or a count of a bin.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class FedgaugeError(Exception):
    """Base class of all errors raised by fedgauge."""


class InputError(FedgaugeError, ValueError):
    """Rows, columns or files that cannot be measured."""


class AxisError(FedgaugeError, ValueError):
    """A score axis that cannot exist or be used."""


class AxisMismatch(AxisError):
    """Two histograms, or a histogram and a plan, use different axes."""


class PlanError(FedgaugeError, ValueError):
    """A plan that is incomplete, inconsistent or altered."""


class RecordError(FedgaugeError, ValueError):
    """A saved result that cannot be read."""


class SiteError(FedgaugeError, ValueError):
    """A site file, or its key, that cannot be used."""


class PlanRefused(FedgaugeError):
    """A plan that a site does not take part in; for the site's operator alone."""


class BudgetExceeded(PlanRefused):
    """A plan that would cost more privacy than the ledger allows."""


class LedgerError(FedgaugeError):
    """A privacy ledger that is damaged, older than it was, or out of reach."""


class ProtocolError(FedgaugeError):
    """A message that is malformed, misplaced or dishonest."""


class CohortTooSmall(ProtocolError):
    """Too few clients are left to release a sum."""


class ReportRefused(ProtocolError):
    """Bytes that are no local report of this plan; the message is one of few reasons."""


class IntakeError(FedgaugeError):
    """An intake of local reports that cannot be opened or written."""


class ExchangeError(FedgaugeError):
    """A step of a file exchange that cannot be taken."""


class UndefinedMetric(FedgaugeError, ValueError):
    """A number that the counts do not define."""


class NoSignal(UndefinedMetric):
    """The noise is larger than what is measured."""


class CountOverflow(FedgaugeError, OverflowError):
    """Counts too large for 64-bit integers."""


class PrivacyWarning(UserWarning):
    """A setting that is allowed but protects little."""


@contextmanager
def located(place: str) -> Iterator[None]:
    """Put `place` in front of the message of any fedgauge error raised inside."""
    try:
        yield
    except FedgaugeError as error:
        raise type(error)(f"{place}: {error}") from None
