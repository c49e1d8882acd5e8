"""What noise costs: from noise to (epsilon, delta) and back, for the approximate mechanisms."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from numbers import Integral
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.errors import InputError, PlanError
from fedgauge.privacy.models import PrivacyStatement

# The rows of one unit shift nodes of every level. All of them in one node is the worst case
# under log-concave noise, at every epsilon, so a level is accounted as one shift by `cap`.
# Proof: write g_a(x) for the best power of a test of level x that tells noise from noise
# shifted by a. Best tests are thresholds, hence g_(a+b)(x) = g_a(g_b(x)). A test on two nodes
# shifted by a and b uses on the first a level x(y) that depends on the second; its power is
# E g_a(x(Y + b)) <= g_a(E x(Y + b)) <= g_a(g_b(E x(Y))), by concavity and by the meaning of
# g_b. So two nodes tell no more than one shifted by a + b, and fewer rows no more than many.
# Levels may split the rows differently: what dominates at every epsilon still does after
# composition (Zhu, Dong, Wang 2022). Poisson and discrete Gaussian laws are log-concave and
# so are sums: this covers Skellam noise and the true sum of discrete Gaussian shares.

_CUT: Final = 1e-20  # tail mass of one law that is counted as a failure of privacy
_CUT_RATE: Final = math.log(2 / _CUT)
_LEAST_DELTA: Final = 1e-12  # rounding in the Fourier transforms stays below 1e-14
_WIDEST: Final = 1e8  # mean or sigma2; up to here ive() gives log-ratios to about 1e-11
_HARDLY_ANY: Final = 1e-300  # variance: of less, floats say nothing
_MOST_VALUES: Final = 1 << 20  # of the laws of all levels that differ
_MOST_STEPS: Final = 1 << 25  # of the composed loss, for each law that is composed
_TAU_TERMS: Final = 1 << 16  # summed one by one; millions of parties would take gigabytes
_FINENESS: Final = 1e-3  # of the deviation of the loss: all that rounding up can add to epsilon
# Of delta: processors differ in the last digits, up to 4e-15 of delta as measured, and a site
# must not refuse what a coordinator calibrated elsewhere.
_SPARE: Final = 1e-9


def skellam_delta(epsilon: float, *, means: Sequence[float], cap: int = 1, moves: int = 1) -> float:
    """Delta at `epsilon` of Skellam noise on every node of every level, rounded up.

    `means` has, by level, the mean of both Poisson laws whose difference is a node's noise. A unit
    has at most `cap` rows; `moves` is 1 if neighbours add or remove a unit, 2 if they replace one.
    """
    _check(epsilon, cap=cap, moves=moves)
    return _composed_delta(epsilon, _skellam, means, cap=cap, moves=moves)


@lru_cache(maxsize=256)
def calibrate_skellam(
    epsilon: float, delta: float, *, levels: int, cap: int = 1, moves: int = 1
) -> float:
    """Smallest mean, to 0.1%, of a node's whole Skellam noise that is (epsilon, delta)-DP."""
    variance = _gaussian_variance(epsilon, delta, levels=levels, cap=cap, moves=moves)

    def cost(mean: float) -> float:
        return skellam_delta(epsilon, means=(mean,) * levels, cap=cap, moves=moves)

    return _smallest(cost, delta, guess=variance / 2)


def gaussian_tau(sigma2: float, parties: int) -> float:
    """The most that a sum of discrete Gaussians costs for not being a discrete Gaussian.

    It has `parties` shares of parameter ``sigma2 / parties``. The logarithm of the ratio of the
    laws stays within tau / 2, so the privacy loss of a node moves by at most tau. Infinite for
    shares below 1/4, outside the theorem.
    """
    _check(parties=parties)
    _check_widths([sigma2])
    if parties == 1:
        return 0.0
    share = sigma2 / parties
    if share < 0.25:
        return math.inf
    # Kairouz, Liu, Steinke 2021, on sums. Their 10 is twice 5: adding share k + 1 multiplies
    # the law by a theta function of parameter s = share k / (k + 1), which lies within
    # 1 +- 2 sum_j exp(-2 pi^2 s j^2), so log(max / min) <= 5 exp(-2 pi^2 s) once s >= 1/8.
    # Terms fall with k: beyond the first ones each is at most the last of these.
    k = np.arange(1, min(parties, _TAU_TERMS))
    terms = np.exp(-2 * math.pi**2 * share * k / (k + 1))
    return float(10 * (terms.sum() + (parties - 1 - len(k)) * terms[-1]))


def gaussian_delta(
    epsilon: float, *, sigma2s: Sequence[float], parties: int, cap: int = 1, moves: int = 1
) -> float:
    """Delta of the sum of discrete Gaussian shares on every node of every level, rounded up.

    `sigma2s` has, by level, sigma^2 of the noise, P(k) ~ exp(-k^2 / (2 sigma2)); each of `parties`
    honest clients adds a share of ``sigma2 / parties``. 1 where `gaussian_tau` uses up epsilon.
    """
    _check(epsilon, cap=cap, moves=moves)
    # One touched node for each level and move: all rows in one is the worst for the sum too.
    gap = moves * math.fsum(gaussian_tau(sigma2, parties) for sigma2 in sigma2s)
    if gap > epsilon:
        return 1.0
    # P <= e^(gap/2) P* and Q >= e^(-gap/2) Q* give
    # sum (P - e^eps Q)+ <= e^(gap/2) sum (P* - e^(eps - gap) Q*)+.
    ideal = _composed_delta(epsilon - gap, _gaussian, sigma2s, cap=cap, moves=moves)
    return min(1.0, math.exp(gap / 2) * ideal)


@lru_cache(maxsize=256)
def calibrate_gaussian(
    epsilon: float, delta: float, *, levels: int, parties: int, cap: int = 1, moves: int = 1
) -> float:
    """Smallest sigma2, to 0.1%, for which discrete Gaussian shares are (epsilon, delta)-DP.

    Refused if the shares are so small that `gaussian_tau` would cost more than 5% of epsilon.
    """
    variance = _gaussian_variance(epsilon, delta, levels=levels, cap=cap, moves=moves)

    def cost(sigma2: float, parties: int) -> float:
        sigma2s = (sigma2,) * levels
        return gaussian_delta(epsilon, sigma2s=sigma2s, parties=parties, cap=cap, moves=moves)

    sigma2 = _smallest(lambda sigma2: cost(sigma2, 1), delta, guess=variance)
    gap = levels * moves * gaussian_tau(sigma2, parties)
    if gap > 0.05 * epsilon:
        raise PlanError(
            f"discrete Gaussian noise does not suit {parties} clients at epsilon {epsilon:g}: "
            f"each share has a parameter of only {sigma2 / parties:.2g}, and the sum of such "
            f"small shares is too far from a discrete Gaussian (the bound on the difference "
            f"adds {gap:.2g} to epsilon; at most 5% of epsilon is allowed). "
            'Use noise="skellam" or noise="polya", or a smaller epsilon.'
        )
    if cost(sigma2, parties) <= (1 - _SPARE) * delta:
        return sigma2
    return _smallest(lambda sigma2: cost(sigma2, parties), delta, guess=sigma2)


def compose(costs: Iterable[PrivacyStatement | tuple[float, float]]) -> tuple[float, float]:
    """Total (epsilon, delta) of releases, each of which may depend on those before it: their sums.

    Tighter theorems need budgets that are fixed in advance. With an exact sum epsilon is infinite.
    Statements (``result.privacy``) of different units or neighbours are refused.

    Examples
    --------
    >>> compose([(1.0, 1e-6), (0.5, 0.0)])
    (1.5, 1e-06)
    """
    costs = list(costs)
    stated = [each for each in costs if isinstance(each, PrivacyStatement)]
    kinds = {(each.unit, each.neighbours) for each in stated if each.epsilon is not None}
    if len(kinds) > 1:
        named = "; ".join(sorted(f"one {unit}, {neighbours}" for unit, neighbours in kinds))
        raise InputError(
            f"these results protect different things ({named}), so their epsilons do not add up. "
            "Compose those of one unit and one kind of neighbours."
        )
    pairs = [
        (math.inf if each.epsilon is None else each.epsilon, each.delta or 0.0)
        if isinstance(each, PrivacyStatement)
        else each
        for each in costs
    ]
    return math.fsum(e for e, _ in pairs), min(1.0, math.fsum(d for _, d in pairs))


class _Noise(NamedTuple):
    """A symmetric law on the integers; outside -reach..reach it has less than _CUT mass."""

    variance: float
    reach: int
    log_mass: Callable[[NDArray[np.int64]], NDArray[np.float64]]


def _skellam(mean: float) -> _Noise:
    from scipy.special import ive  # loaded only where there is such noise

    # Bernstein: P(X >= k) <= exp(-k^2 / (2 (variance + k / 3))) for jumps of size 1.
    reach = _CUT_RATE / 3 + math.sqrt(_CUT_RATE**2 / 9 + 4 * _CUT_RATE * mean)
    # P(k) = exp(-2 mean) I_k(2 mean), which is what ive returns, without overflow.
    return _Noise(2 * mean, math.ceil(reach), lambda k: np.log(ive(abs(k), 2 * mean)))


def _gaussian(sigma2: float) -> _Noise:
    # Sub-Gaussian with parameter sigma2: Canonne, Kamath, Steinke 2020.
    reach = math.ceil(math.sqrt(2 * _CUT_RATE * sigma2))
    with np.errstate(over="ignore"):
        total = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma2)).sum()
    return _Noise(sigma2, reach, lambda k: -(k**2) / (2 * sigma2) - np.log(total))


def _composed_delta(
    epsilon: float, law: Callable[[float], _Noise], widths: Sequence[float], *, cap: int, moves: int
) -> float:
    """Delta of one shift by `cap` on each level, `moves` times over."""
    _check_widths(widths)
    pld = _dp_accounting().privacy_loss_distribution
    noises = [(law(width), times * moves) for width, times in Counter(widths).items()]
    deviation = cap * math.sqrt(sum(times / noise.variance for noise, times in noises))
    step = _FINENESS * min(deviation, 3.0) / (len(widths) * moves)
    if any(cap > 2 * noise.reach or noise.variance < _HARDLY_ANY for noise, _ in noises):
        return 1.0  # hardly a value of the noise is possible under both neighbours
    _check_work(sum(2 * noise.reach for noise, _ in noises), _MOST_VALUES)
    masses = [_two_sides(noise, cap) for noise, _ in noises]
    if not all(np.any(np.isfinite(here) & np.isfinite(there)) for here, there in masses):
        return 1.0  # no value at all is
    with np.errstate(invalid="ignore"):
        losses = sum(
            times * _span(here - there)
            for (here, there), (_, times) in zip(masses, noises, strict=True)
        )
    _check_work(len(noises) * losses / step, _MOST_STEPS)
    composed = []
    for (here, there), (_, times) in zip(masses, noises, strict=True):
        upper: dict[int, float] = dict(enumerate(here.tolist()))
        upper[-1] = math.log(_CUT)  # an outcome of one side only stands for the tails
        # The law is symmetric: adding and removing have the same loss.
        one = pld.from_two_probability_mass_functions(
            dict(enumerate(there.tolist())), upper, value_discretization_interval=step
        )
        composed.append(one.self_compose(times))
    total = reduce(lambda one, other: one.compose(other), composed)
    return min(1.0, float(total.get_delta_for_epsilon(epsilon)))


def _two_sides(noise: _Noise, cap: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logarithms of the masses of the noise, and of the noise shifted by `cap`."""
    k = np.arange(-noise.reach, noise.reach + 1)
    # Log 0 becomes an unbounded loss: pessimistic.
    with np.errstate(divide="ignore", over="ignore"):
        return noise.log_mass(k), noise.log_mass(k - cap)


def _span(losses: NDArray[np.float64]) -> float:
    finite = losses[np.isfinite(losses)]
    return float(np.ptp(finite)) if finite.size else 0.0


def _check_work(amount: float, most: int) -> None:
    """Refuse what takes more than a second or two to account for."""
    if amount > most:
        raise PlanError(
            "this noise takes too long to be accounted for. Raise epsilon, lower the cap, or send "
            "fewer levels."
        )


def _gaussian_variance(epsilon: float, delta: float, *, levels: int, cap: int, moves: int) -> float:
    """Variance that continuous Gaussian noise needs: where the search starts."""
    _check(epsilon, levels=levels, cap=cap, moves=moves)
    if epsilon == 0 or not _LEAST_DELTA <= delta < 1:
        raise PlanError(
            f"approximate noise needs epsilon above 0 and delta from {_LEAST_DELTA:g} to below 1, "
            f"got {epsilon:g} and {delta:g}."
        )
    pld = _dp_accounting()
    law = pld.privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(
        pld.common.DifferentialPrivacyParameters(epsilon, delta),
        sensitivity=cap * math.sqrt(levels * moves),
    )
    return float(law.standard_deviation) ** 2


def _smallest(cost: Callable[[float], float], delta: float, *, guess: float) -> float:
    """The smallest width, to 0.1%, whose decreasing cost is at most delta, with some to spare."""
    delta *= 1 - _SPARE
    step = 1.01
    low, high = guess / step, guess
    while cost(high) > delta:
        step *= step
        low, high = high, high * step
    while cost(low) <= delta:
        step *= step
        low, high = low / step, low
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= delta else (middle, high)
    return high


def _dp_accounting() -> Any:
    try:
        import dp_accounting.pld as pld
    except ImportError:
        raise PlanError(
            "dp-accounting is missing, and without it the cost of Skellam or Gaussian noise is "
            "unknown. Install it: pip install 'fedgauge[privacy]'."
        ) from None
    return pld


def _check(epsilon: float = 0, **counts: int) -> None:
    if not 0 <= epsilon < math.inf:
        raise PlanError(f"epsilon must be at least 0 and finite, got {epsilon}.")
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise PlanError(f"{name} must be a whole number of at least 1, got {value}.")


def _check_widths(widths: Sequence[float]) -> None:
    if len(widths) == 0 or not all(0 < width < math.inf for width in widths):
        raise PlanError("every level needs noise of a positive, finite variance.")
    if max(widths) > _WIDEST:
        raise PlanError(
            f"noise wider than {_WIDEST:g} cannot be accounted for accurately. "
            "Raise epsilon, lower the cap, or send fewer levels."
        )
