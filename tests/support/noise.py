"""Laws of noise shares, as a privacy model asks for them."""

from fedgauge.privacy.models import LevelNoise
from fedgauge.privacy.shares import ShareLaw


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
