"""Laws of noise shares, as a privacy model asks for them."""

import numpy as np

from fedgauge.privacy.models import LevelNoise
from fedgauge.privacy.noise import ShareLaw


def share_law(spec, parameter, *, parties, shares=1, sensitivity=None):
    """The law of some clients' shares of noise on counts, or on what else is that sensitive."""
    reach = spec.level_sensitivity if sensitivity is None else sensitivity
    return ShareLaw(spec.noise, parameter, parties=parties, shares=shares, sensitivity=reach)


def level_noise(spec, cohort, levels, weights=None):
    """The strength of the noise at each level, as calibrated."""
    return spec.calibrate(cohort, levels, weights=weights).levels


def check_promise(spec, cohort, noise):
    """Refuse noise on levels that costs more than the model promises."""
    spec.check_promise(LevelNoise(tuple(noise), 0.0), cohort)


def without_noise(monkeypatch):
    """Noise that comes out as none in every engine: how it is drawn is tested elsewhere."""
    for engine in ("contribution", "simulation"):
        monkeypatch.setattr(
            f"fedgauge.engines.{engine}.draw_noise",
            lambda plan, *_, **__: np.zeros(plan.numbers, dtype=np.int64),
        )
