"""What epsilon and delta come to, in numbers that people can weigh: beliefs, and chances."""

import math
from typing import Final

_PRIORS: Final = (0.1, 0.5)
_COUNTABLE: Final = 1e-15  # below, nobody reads the digits, and a float does not hold them


def strongest_belief(prior: float, epsilon: float) -> float:
    """The most that a belief can become by a result: its odds grow at most e^epsilon-fold.

    Examples
    --------
    >>> round(strongest_belief(0.5, 1.0), 4)
    0.7311
    >>> strongest_belief(0.1, 1000.0)
    1.0
    """
    return prior / (prior + (1 - prior) * math.exp(-epsilon))


def percent(share: float) -> str:
    """A share in percent, rounded up to a tenth: it stands after "at most".

    Examples
    --------
    >>> percent(strongest_belief(0.1, 1.0)), percent(0.5)
    ('23.2%', '50%')
    """
    tenths = math.ceil(share * 1000 - 1e-9)
    return f"{tenths / 10:g}%"


def beliefs(epsilon: float) -> str:
    """From which belief to which at most, in words.

    Examples
    --------
    >>> beliefs(1.0)
    '10% becomes at most 23.2%, and 50% at most 73.2%'
    """
    first, second = (f"at most {percent(strongest_belief(prior, epsilon))}" for prior in _PRIORS)
    return f"{_PRIORS[0]:.0%} becomes {first}, and {_PRIORS[1]:.0%} {second}"


def chance(delta: float) -> str:
    """A small probability as a chance, to two digits.

    Examples
    --------
    >>> chance(1e-6)
    '1 in 1,000,000'
    >>> chance(2.0**-40)
    '1 in 1,100,000,000,000'
    >>> chance(8e-35)
    '1 in 10^34'
    """
    if delta < _COUNTABLE:
        return f"1 in 10^{math.floor(-math.log10(delta))}"  # no less than it is
    return f"1 in {int(float(f'{1 / delta:.1e}')):,}"


def delta_of(steps: int, epsilon: float, delta: float) -> float:
    """The delta of so many steps from neighbour to neighbour, each of (epsilon, delta).

    Examples
    --------
    >>> delta_of(1, 1.0, 1e-6), delta_of(3, 1000.0, 1e-6)
    (1e-06, 1.0)
    """
    # docs/privacy.md, "Composition": delta (1 + e^epsilon + ... + e^((steps-1) epsilon))
    growth = sum(math.exp(min(step * epsilon, 700.0)) for step in range(steps))
    return min(delta * growth, 1.0)
