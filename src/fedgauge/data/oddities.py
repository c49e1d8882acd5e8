"""What a client's rows came to, and what was odd about them: for its operator alone."""

from dataclasses import dataclass
from typing import Final, TypedDict

from fedgauge.data.labels import Label
from fedgauge.errors import FedgaugeError

_BEYOND: Final = "lie beyond the axis"
_IN_AN_END: Final = "counted in an end bin"
_NEGATIVE: Final = "counted as negative"
_FIRST: Final = "counted as the first class"
_NEITHER: Final = "neither the positive label nor one other"
_REFUSED: Final = (
    "an exact sum stops at them, at `submit`, and the attempt counts. Mend the file before that; "
    "where this site has joined, abandon it, and ask for a new invitation"
)
_MANY_CLIPPED: Final = 0.1  # of the rows: rounding above 1 is rare, another scale is not


class LeftOut(TypedDict, total=False):
    """Rows that were left out, and examples that have none, as :class:`Oddities` calls them."""

    malformed: int
    unlisted: int
    repeated: int
    unlabelled: int


@dataclass(frozen=True)
class Oddities:
    """How many of a client's rows were odd, and how.

    Under noise a row that cannot be counted as it is must not silence a client, for silence would
    tell of the row. Such a row has a stated place: a score that is missing or no number in the
    first bin, one beyond the axis in the bin at that end, a label that is missing or not the
    positive one among the negatives, of several classes in the first one, a group that is missing
    or not listed in "other". Rows without the id of a subject, where a plan
    protects subjects, are left out: nobody could say whose they are.

    Parameters
    ----------
    rows
        Rows counted.
    not_finite, clipped
        Of their scores, those that are missing, NaN, infinite or no numbers; others beyond the
        axis.
    missing_labels, other_labels
        Labels that are missing; labels that are neither positive nor the one other value, or of no
        class.
    no_subject
        Rows without the id of a subject, where the plan protects subjects.
    malformed
        Rows of a text file that were left out, with too few fields or too many.
    over_largest
        Counts that were cut down to the plan's largest.
    unlisted, repeated
        Of labels apart from scores: rows of examples that have no bin; further rows of an example.
    unlabelled
        Examples that have a bin and no row.
    by_row
        Scores that each row has.
    of_classes
        Whether labels tell several classes apart.
    failure
        Why no row could be counted; empty if they could.

    Examples
    --------
    >>> Oddities(rows=1200, not_finite=3).in_words
    ['3 of 1,200 scores are missing, infinite or no numbers: counted in an end bin.']
    """

    rows: int = 0
    not_finite: int = 0
    clipped: int = 0
    missing_labels: int = 0
    other_labels: int = 0
    no_subject: int = 0
    malformed: int = 0
    over_largest: int = 0
    unlisted: int = 0
    repeated: int = 0
    unlabelled: int = 0
    failure: str = ""
    by_row: int = 1
    of_classes: bool = False

    @property
    def in_words(self) -> list[str]:
        """Short sentences for the operator, of which none quotes a row; empty if all is well."""
        told = [f"{what}: {place}." for what, place in self._found()]
        return [*told, f"no row was counted: {self.failure}"] if self.failure else told

    def as_refused(self, *, clips: bool) -> list[str]:
        """The same where odd rows are refused, as in an exact sum, whose axis may clip scores."""
        told = [
            f"{what}: {place if clips and what.endswith(_BEYOND) else _REFUSED}."
            for what, place in self._found()
        ]
        return [*told, f"the rows cannot be counted: {self.failure}"] if self.failure else told

    def _found(self) -> list[tuple[str, str]]:
        """What is odd, and where it counts under noise."""
        of, of_scores = f"of {self.rows:,}", f"of {self.rows * self.by_row:,}"
        known = "none of the plan's classes" if self.of_classes else _NEITHER
        place = _FIRST if self.of_classes else _NEGATIVE
        found = [
            (
                self.not_finite,
                f"{of_scores} scores are missing, infinite or no numbers",
                _IN_AN_END,
            ),
            (self.clipped, f"{of_scores} scores {_BEYOND}", "counted in its end bins"),
            (self.missing_labels, f"{of} labels are missing", place),
            (self.other_labels, f"{of} labels are {known}", place),
            (self.no_subject, "rows have no subject id", "left out"),
            (self.malformed, "rows have too few or too many fields", "left out"),
            (self.over_largest, "counts are above the plan's largest", "cut down to it"),
            (self.unlisted, "rows are of examples without a bin", "left out"),
            (self.repeated, "rows have the id of a row before", "left out"),
            (self.unlabelled, "examples with a bin have no row", _NEGATIVE),
        ]
        return [(f"{count:,} {what}", place) for count, what, place in found if count]


@dataclass(frozen=True)
class Counted:
    """What a site's rows came to. It stays at the site: shown to its operator, never sent.

    Parameters
    ----------
    positives
        Rows that count as positive, of `oddities.rows`; None where that is not one number.
    oddities
        How many rows there are, and how many of them are odd.

    Examples
    --------
    >>> Counted(300, Oddities(rows=1200, clipped=2, missing_labels=3)).in_words
    '1,200 rows: 300 positive, 2 clipped into the end bins, 3 odd'
    """

    positives: int | None
    oddities: Oddities

    @property
    def in_words(self) -> str:
        """Rows, positives, clipped and odd ones, in one line."""
        odd = self.oddities
        left_out = odd.no_subject + odd.malformed + odd.unlisted + odd.repeated
        positive = "" if self.positives is None else f"{self.positives:,} positive, "
        told = (
            f"{odd.rows:,} rows: {positive}{odd.clipped:,} clipped into the end "
            f"bins, {odd.not_finite + odd.missing_labels + odd.other_labels:,} odd"
        )
        return f"{told}; {left_out:,} left out" if left_out else told

    def warnings(
        self,
        positive: Label | None,
        low: float,
        high: float,
        *,
        exact: bool = False,
        clips: bool = True,
    ) -> list[str]:
        """What an operator should see to before it is too late; quotes no row.

        `positive` is the plan's label, `low` and `high` are the ends of its axis, `exact` says
        whether odd rows are refused, and `clips` whether scores beyond the axis are not.
        """
        rows, odd = self.oddities.rows, self.oddities
        told = odd.as_refused(clips=clips) if exact else odd.in_words
        if odd.clipped > _MANY_CLIPPED * rows * odd.by_row:
            scale = (
                f"It goes from {low:g} to {high:g}, and percent, logits or points do not fit: "
                "convert the scores, or ask for a plan with an axis for them."
            )
            told = [f"{each} {scale}" if _BEYOND in each else each for each in told]
        if odd.failure:
            return told
        if not rows:
            return [*told, "there are no rows that count. Check the export."]
        if self.positives in (0, rows):
            share = "all" if self.positives else "none"
            told.append(
                f"{share} of {rows:,} rows are positive, which in the plan is "
                f"{1 if positive is None else positive!r}. Check the label column; {RELABEL}"
            )
        return told


# A label is the plan's to say, and a site's file may forbid it: no option of a site's commands.
RELABEL: Final = (
    "recode it, or ask for a plan made with `fedgauge plan --positive LABEL`, whose label the site "
    "file must list (labels)."
)


def in_short(error: BaseException) -> str:
    """What went wrong, without what a foreign message might quote."""
    if isinstance(error, FedgaugeError):  # whose messages hold no values
        return str(error)
    return f"reading the rows ended in {type(error).__name__}."
