"""The oracles of local DP: how one row becomes a report, and how reports become counts.

A report says in which cell a row is: its class and its node at one level of the tree, cell ``class
* nodes + node``. It is private by itself, so nobody has to trust a sum. Two ways:

- :class:`UnaryEncoding`, Optimal Unary Encoding (Wang et al. 2017): one bit for each cell.
- :class:`HadamardResponse` (Acharya, Sun, Zhang 2019): a number of a few bits, more variance.

All chances are whole numbers out of 2^64, compared with uniform words, so the law of a report is
exactly the one stated. They are rounded so that two cells never give a report with probabilities
further apart than e^epsilon, and delta is zero.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats
from fedgauge.errors import NoSignal
from fedgauge.privacy.keystream import WordSource

Cells = NDArray[np.integer[Any]]
Payloads = NDArray[np.uint8]
Tallies = NDArray[np.int64]

WHOLE: Final = 2**64  # chances are out of this many
KEEP: Final = 2**63  # of the one that is set: 1/2, exactly
MOST_CELLS: Final = 1 << 16
_CACHED_BYTES: Final = 1 << 20  # of random bytes at a time, to stay in a core's cache
_ROWS: Final = 255  # whose bits add up in 8-bit sums


class Oracle(Protocol):
    """How one row's cell becomes a report, and many reports become counts."""

    @property
    def cells(self) -> int:
        """Cells that a row can be in."""

    @property
    def payload_bytes(self) -> int:
        """Size of a report without its header."""

    @property
    def tallies(self) -> int:
        """How many numbers the server keeps, whatever the number of reports."""

    @property
    def worst_ratio(self) -> Fraction:
        """Largest ratio of a report's probabilities between two cells, exactly."""

    def variances(self, counts: Floats) -> Floats:
        """Variance of the estimate of each cell, where `counts` rows are in the cells."""

    def encode(self, cells: Cells, source: WordSource) -> Payloads:
        """A report for each cell, one a row."""

    def are_valid(self, payloads: Payloads) -> bool:
        """Whether :meth:`encode` could have made all of them."""

    def add(self, tallies: Tallies, payloads: Payloads) -> None:
        """Add reports to what is kept."""

    def estimate(self, tallies: Tallies, reports: int) -> Floats:
        """Unbiased counts of the cells."""


class UnaryEncoding:
    """One bit for each cell: that of the row's cell is set by a fair coin, others rarely.

    `raised` is the chance that the bit of another cell is set, out of 2^64.
    """

    def __init__(self, cells: int, raised: int) -> None:
        self.cells = cells
        self.raised = raised

    @classmethod
    def calibrated(cls, epsilon: float, *, cells: int) -> "UnaryEncoding":
        """The one with the least noise that keeps epsilon."""
        # Two inputs differ in two bits of the report. With p = 1/2 the largest ratio is
        # (p / q) (1 - q) / (1 - p) = (1 - q) / q, which is at most e^epsilon where
        # q >= 1 / (e^epsilon + 1): rounded up, raised is the least chance that keeps it.
        return cls(cells, least(epsilon, lambda power: 1 / (power + 1), odds))

    @property
    def payload_bytes(self) -> int:
        """A bit for each cell."""
        return -(-self.cells // 8)

    @property
    def tallies(self) -> int:
        """A sum for each cell."""
        return self.cells

    @property
    def worst_ratio(self) -> Fraction:
        """Where the bit of one cell is set and that of the other is not."""
        return odds(self.raised)

    def variances(self, counts: Floats) -> Floats:
        """n v0 + c, with v0 = 4 e^epsilon / (e^epsilon - 1)^2."""
        # p (1 - p) / (p - q)^2 for a row of the cell, q (1 - q) / (p - q)^2 = v0 for another;
        # with p = 1/2 the two differ by 1. Bits are independent, and so are the estimates.
        q = self.raised / WHOLE
        variances: Floats = counts.sum() * (q * (1 - q) / (0.5 - q) ** 2) + counts
        return variances

    def encode(self, cells: Cells, source: WordSource) -> Payloads:
        """A report for each cell, one a row; bits beyond the last cell are zero."""
        payloads = np.empty((len(cells), self.payload_bytes), dtype=np.uint8)
        step = max(1, _CACHED_BYTES // self.cells)
        for start in range(0, len(cells), step):
            held = cells[start : start + step]
            bits = draw_bits(source, self.raised, len(held) * self.cells)
            bits = bits.reshape(len(held), self.cells)
            bits[np.arange(len(held)), held] = draw_bits(source, KEEP, len(held))
            payloads[start : start + step] = np.packbits(bits, axis=1)
        return payloads

    def are_valid(self, payloads: Payloads) -> bool:
        """Whether no bit beyond the last cell is set."""
        padding = np.uint8(0xFF >> (self.cells % 8 or 8))
        return not np.any(payloads[:, -1] & padding)

    def add(self, tallies: Tallies, payloads: Payloads) -> None:
        """Add the bits of each cell."""
        for start in range(0, len(payloads), _ROWS):
            bits = np.unpackbits(payloads[start : start + _ROWS], axis=1, count=self.cells)
            tallies += bits.sum(axis=0, dtype=np.uint8)

    def estimate(self, tallies: Tallies, reports: int) -> Floats:
        """(c - n q) / (p - q) for every cell."""
        q = self.raised / WHOLE
        counts: Floats = (tallies.astype(np.float64) - reports * q) / (0.5 - q)
        return counts


class HadamardResponse:
    """A public random column, and privately a block and a sign there: one number of a few bits.

    The cells are cut into `blocks`, a power of two; a cell is a row of the b x b Hadamard matrix of
    its block, b the smallest power of two that holds a block's cells. A report draws a column,
    looks up the sign of its row there, and says block and sign by randomised response over all 2 x
    `blocks` answers: with chance `blank`, out of 2^64, any of them, else the true one.

    With one block this is one bit and a column, whose variance never falls below 1 for each report.
    Blocks, as in Hadamard response for large epsilon (Acharya, Sun, Zhang 2019), divide that by 21
    at epsilon 5 and 128 cells. In their form the column is private, among those with a plus sign:
    the same variance and size, but correlated errors, and the variance of a sum of cells was up to
    1.4 times as large in trials. Here they are uncorrelated, as repair by least squares takes them
    to be.
    """

    def __init__(self, cells: int, blank: int, blocks: int) -> None:
        self.cells = cells
        self.blank = blank
        self.blocks = blocks
        # A cell's variance grows with all of its block, so a block holds neighbouring bins of
        # one class: a rare class is then not hurt by the other.
        self._rows = -(-cells // blocks)
        self._width = 1 << (self._rows - 1).bit_length()

    @classmethod
    def calibrated(cls, epsilon: float, *, cells: int) -> "HadamardResponse":
        """The one with the least noise that keeps epsilon."""
        # The column is the same for every cell. Of 2 B answers, one has chance w / 2 B, and the
        # true one 1 - w more. The largest ratio is 1 + 2 B (1 - w) / w, at most e^epsilon where
        # w >= 2 B / (2 B + e^epsilon - 1): rounded up.
        made = []
        for blocks in (1 << power for power in range(cells.bit_length())):
            blank = least(
                epsilon,
                lambda power, twice=2 * blocks: twice / (twice + power - 1),
                lambda chance, twice=2 * blocks: _lift(chance, twice),
            )
            if blank < WHOLE:
                made.append(cls(cells, blank, blocks))
        return min(made, key=mean_variance)

    @property
    def numbers(self) -> int:
        """A report is a number below this one."""
        return 2 * self.blocks * self._width

    @property
    def payload_bytes(self) -> int:
        """Whole bytes that hold a number."""
        return -(-(self.numbers - 1).bit_length() // 8)

    @property
    def tallies(self) -> int:
        """A sum for each number."""
        return self.numbers

    @property
    def worst_ratio(self) -> Fraction:
        """For an answer that is true of one cell and not of the other."""
        return _lift(self.blank, 2 * self.blocks)

    def variances(self, counts: Floats) -> Floats:
        """n (w / B) / (1 - w)^2 + C / (1 - w) - c, where C rows are in the cell's block."""
        # A report counts +1 or -1 for the cells of the block it names and 0 for others. It names
        # a given block with chance w / B, and 1 - w more if the row is there. Its mean is 1 - w
        # for the row's cell and 0 for all others, since Hadamard rows are orthogonal.
        w = self.blank / WHOLE
        block = np.arange(self.cells) // self._rows
        inside = np.bincount(block, counts, minlength=self.blocks)[block]
        even = counts.sum() * (w / self.blocks / (1 - w) ** 2)
        variances: Floats = even + inside / (1 - w) - counts
        return variances

    def encode(self, cells: Cells, source: WordSource) -> Payloads:
        """A report for each cell, one a row, most significant byte first."""
        words = source.words(2 * len(cells))
        blank, uniform = words[: len(cells)] < np.uint64(self.blank), words[len(cells) :]
        block, row = np.divmod(np.asarray(cells, dtype=np.uint64), np.uint64(self._rows))
        # Widths are powers of two: the low and the high bits of a word are uniform below them.
        column = uniform & np.uint64(self._width - 1)
        anything = (uniform >> np.uint64(32)) & np.uint64(2 * self.blocks - 1)
        true = np.uint64(2) * block + _is_odd(row & column)
        said = np.where(blank, anything, true) * np.uint64(self._width) + column
        octets = said.astype(">u4").view(np.uint8).reshape(len(cells), 4)
        return np.ascontiguousarray(octets[:, 4 - self.payload_bytes :])

    def are_valid(self, payloads: Payloads) -> bool:
        """Whether all are numbers that can be said."""
        return not np.any(self._numbers(payloads) >= self.numbers)

    def add(self, tallies: Tallies, payloads: Payloads) -> None:
        """Count how often each number was said."""
        tallies += np.bincount(self._numbers(payloads), minlength=self.numbers)

    def estimate(self, tallies: Tallies, reports: int) -> Floats:  # noqa: ARG002
        """Signed sums over the columns of each cell's block, over 1 - w."""
        plus, minus = np.moveaxis(tallies.reshape(self.blocks, 2, self._width), 1, 0)
        rows = _hadamard(plus - minus)[:, : self._rows].ravel()[: self.cells]
        counts: Floats = rows / (1 - self.blank / WHOLE)
        return counts

    def _numbers(self, payloads: Payloads) -> NDArray[np.int64]:
        places = 256 ** np.arange(self.payload_bytes)[::-1]
        return payloads.astype(np.int64) @ places


def mean_variance(oracle: Oracle) -> float:
    """Variance that one report adds to the estimate of a cell, where all cells are alike."""
    even = np.full(oracle.cells, 1 / oracle.cells)
    return float(oracle.variances(even).mean())


def draw_bits(source: WordSource, chance: int, count: int) -> NDArray[np.bool_]:
    """Independent bits that are set with `chance` out of 2^64, exactly."""
    # A uniform word is below the chance when its first byte is, or is equal and the other 56
    # bits are below the rest. Those are drawn only where it matters, in one of 256 cases.
    first, rest = divmod(chance, 2**56)
    octets = source.words(-(-count // 8)).view(np.uint8)[:count]
    bits = octets < first
    open_ = np.flatnonzero(octets == first)
    bits[open_] = (source.words(len(open_)) >> np.uint64(8)) < np.uint64(rest)
    return bits


def draw_topics(source: WordSource, count: int, topics: int) -> NDArray[np.int64]:
    """What each report is about, a level or a block: at random and public, whatever the row.

    All are equally likely but for one part in 2^64 / `topics`.
    """
    if topics == 1:
        return np.zeros(count, dtype=np.int64)
    return (source.words(count) % np.uint64(topics)).astype(np.int64)


def keeps(ratio: Fraction, epsilon: float) -> bool:
    """Whether a ratio of probabilities is at most e^epsilon, in exact arithmetic."""
    import mpmath  # here and below: only local reports need it

    if ratio <= 1:
        return True
    bits = 128
    while True:
        with mpmath.workprec(bits):
            # Rounded once each, so within a few units in the last place.
            gap = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator) - epsilon
            if abs(gap) > mpmath.ldexp(1 + abs(epsilon), 16 - bits):
                return bool(gap < 0)
        bits *= 2  # ends: e^epsilon is irrational, so the gap is not zero


def odds(chance: int) -> Fraction:
    """How much likelier it is that something of a chance out of 2^64 does not happen, exactly."""
    return Fraction(WHOLE - chance, chance)


def _lift(chance: int, twice_blocks: int) -> Fraction:
    return 1 + twice_blocks * odds(chance)


def least(epsilon: float, share: Any, ratio: Any) -> int:
    """The least chance, out of 2^64, whose ratio is at most e^epsilon."""
    import mpmath

    with mpmath.workprec(256):
        chance = max(1, int(mpmath.floor(share(mpmath.exp(epsilon)) * WHOLE)))
    while not keeps(ratio(chance), epsilon):
        chance += 1
    return chance


def _is_odd(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """1 where the number of set bits, of the 32 lowest, is odd, else 0."""
    for shift in (16, 8, 4, 2, 1):
        words = words ^ (words >> np.uint64(shift))
    return words & np.uint64(1)


def _hadamard(rows: Tallies) -> Tallies:
    """Each row times the Hadamard matrix, by butterflies."""
    half = 1
    while half < rows.shape[1]:
        pairs = rows.reshape(len(rows), -1, 2, half)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        rows = np.stack([first + second, first - second], axis=2).reshape(rows.shape)
        half *= 2
    return rows


def variances(oracles: Sequence[Oracle], reports: int, blocks: int = 1) -> tuple[float, ...]:
    """Variance of one node's estimated count at each level, for a cell of mean frequency.

    With L levels of B blocks and n reports, n L B v + n (L B - 1) f (1 - f), where v is the
    variance that one report adds. It grows with the frequency f of a cell; here f = 1 / cells, its
    mean over a level whatever the data: public, and weights that do not look at the counts keep
    their least-squares estimate unbiased. `oracles` are those of one block.
    """
    drawn = len(oracles) * blocks
    return tuple(
        reports
        * (drawn * mean_variance(oracle) + (drawn - 1) * (1 - 1 / oracle.cells) / oracle.cells)
        for oracle in oracles
    )


def node_variances(oracles: Sequence[Oracle], leaves: Floats) -> list[Floats]:
    """Variance of every node's estimated count at each level, where `leaves` rows are in the bins.

    Unlike :func:`variances` it depends on the counts: for redrawing noise, not for weights.
    """
    levels, reports = len(oracles), leaves.sum()
    by_level = []
    for oracle in oracles:
        counts = leaves.reshape(oracle.cells, -1).sum(axis=1)
        # A level is told about by one in L reports: of a sample, scaled up by L.
        sampled = (levels - 1) * counts * (1 - counts / reports)
        by_level.append((levels * oracle.variances(counts) + sampled).reshape(len(leaves), -1))
    return by_level


def randomise(oracles: Sequence[Oracle], leaves: Cells, source: WordSource) -> list[Payloads]:
    """A report for each row, by level; `leaves` are the rows' cells at the last level."""
    drawn = draw_topics(source, len(leaves), len(oracles))
    finest = oracles[-1].cells
    # Bins of a node are next to each other, and a class has a whole number of nodes.
    return [
        oracle.encode(leaves[drawn == level] // (finest // oracle.cells), source)
        for level, oracle in enumerate(oracles)
    ]


def randomise_drawn(
    oracles: Sequence[Sequence[Oracle]], drawn: Cells, leaves: Cells, source: WordSource
) -> list[Payloads]:
    """A report for each row about its cell in the block drawn for it, by block and level."""
    return [
        payloads
        for block, levels in enumerate(oracles)
        for payloads in randomise(levels, leaves[drawn == block], source)
    ]


def debias(
    oracles: Sequence[Oracle], tallies: Sequence[Tallies], reports: Sequence[int], channels: int
) -> list[Floats]:
    """Unbiased counts of all rows by channel and node, from the reports about each level."""
    if not any(reports):
        raise NoSignal("no signal: there are no reports yet.")
    if not all(reports):
        raise NoSignal(
            "no signal: a level of the tree has no report yet. Wait for more, or use a flat tree."
        )
    total = sum(reports)
    return [
        oracle.estimate(tally, count).reshape(channels, -1) * (total / count)
        for oracle, tally, count in zip(oracles, tallies, reports, strict=True)
    ]


def debias_drawn(
    oracles: Sequence[Sequence[Oracle]],
    tallies: Sequence[Tallies],
    reports: Sequence[int],
    channels: Sequence[int],
) -> list[Floats]:
    """Unbiased counts of all rows by channel and node; tallies and reports by block and level."""
    levels, total, blocks = len(oracles[0]), sum(reports), []
    for number, (own, rows) in enumerate(zip(oracles, channels, strict=True)):
        part = slice(number * levels, (number + 1) * levels)
        if total and not any(reports[part]):
            raise NoSignal(
                "no signal: a class, a model or a way to group rows has no report yet. Wait for "
                "more."
            )
        counts = debias(own, tallies[part], reports[part], rows)
        blocks.append([level * (total / sum(reports[part])) for level in counts])
    return [np.concatenate(level) for level in zip(*blocks, strict=True)]


def settle(leaves: Floats, reports: float | Floats, terms: Floats | None = None) -> Floats:
    """Leaf estimates that add up to the number of reports, which is public.

    All leaves have the same variance and the same covariance with the total, so the least-squares
    estimate given the total shares what is missing equally. `terms` is how many channels each row
    is the sum of, by default one.
    """
    if terms is None:
        terms = np.ones(leaves.shape[-2])
    missing = reports - leaves.sum(axis=(-2, -1), keepdims=True)
    each = missing / (terms.sum() * leaves.shape[-1])
    return np.asarray(leaves + each * terms[:, np.newaxis])
