"""Maps of every form, for tests of what all of them do."""

import fedgauge as fg
from fedgauge.histograms.calibrator import Beta, LogOddsLine, Steps

FORMS = {
    "identity": Beta(1.0, 1.0, 0.0),
    "beta": Beta(0.7, 1.4, -0.3),
    "beta without a": Beta(0.0, 1.2, 0.1),
    "beta without b": Beta(0.8, 0.0, 0.1),
    "steep": Beta(40.0, 60.0, 3.0),
    "constant": Beta(0.0, 0.0, -1.0),
    "line": LogOddsLine((-4.0, -1.0, 0.5, 3.0), (-3.0, -1.5, -1.4, 6.0)),
    "flat line": LogOddsLine((-1.0, 1.0, 2.0), (-0.5, -0.5, 0.9)),
    "one knot": LogOddsLine((0.2,), (-0.4,)),
    "cliff": LogOddsLine((0.0, 1e-12), (-20.0, 20.0)),
    "steps": Steps((0.1, 0.5, 1.0), (0.05, 0.2, 0.6, 0.9)),
    "one step": Steps((), (0.3,)),
    "falling": Steps((0.3, 0.6), (0.2, 0.5, 0.4)),
}
MONOTONE = {name: form for name, form in FORMS.items() if name != "falling"}


def calibrator(form, method="test"):
    """A map of this form."""
    return fg.Calibrator(method, form)
