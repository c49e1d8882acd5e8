"""The laws of local reports in exact fractions, written from the chances that plans state."""

import itertools
import math
from fractions import Fraction

import mpmath
from scipy.linalg import hadamard

from fedgauge.privacy.oracles import WHOLE, UnaryEncoding

HALF = Fraction(1, 2)


def power(epsilon):
    """A rational interval that holds e^epsilon."""
    bounds = mpmath.iv
    bounds.prec = 300
    value = bounds.exp(bounds.mpf(epsilon))
    return tuple(Fraction(int(end.man) * Fraction(2) ** int(end.exp)) for end in ends(value))


def ends(interval):
    with mpmath.workprec(400):
        return [mpmath.mpf(interval.a), mpmath.mpf(interval.b)]


def unary_law(cells, raised, keep=HALF):
    """Probability of every report for every cell."""
    q = Fraction(raised, WHOLE)
    laws = []
    for cell in range(cells):
        chance = [keep if other == cell else q for other in range(cells)]
        laws.append(
            {
                bits: math.prod(c if bit else 1 - c for c, bit in zip(chance, bits, strict=True))
                for bits in itertools.product((0, 1), repeat=cells)
            }
        )
    return laws


def hadamard_law(cells, blank, blocks):
    """Probability of every number for every cell, from SciPy's Hadamard matrix."""
    rows = -(-cells // blocks)
    width = 1 << (rows - 1).bit_length()
    w, signs = Fraction(blank, WHOLE), hadamard(width)
    laws = []
    for cell in range(cells):
        block, row = divmod(cell, rows)
        law = {}
        for said, column in itertools.product(range(2 * blocks), range(width)):
            true = said == 2 * block + (signs[row, column] < 0)
            law[said * width + column] = (w / (2 * blocks) + (1 - w) * true) / width
        laws.append(law)
    return laws


def worst(laws):
    """Largest ratio of a report's probabilities over all pairs of cells."""
    assert all(sum(law.values()) == 1 for law in laws)
    every = ([law[report] for law in laws] for report in laws[0])
    return max(max(chances) / min(chances) for chances in every)


def law_of(oracle):
    if isinstance(oracle, UnaryEncoding):
        return unary_law(oracle.cells, oracle.raised)
    return hadamard_law(oracle.cells, oracle.blank, oracle.blocks)
