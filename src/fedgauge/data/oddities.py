"""What was odd about a client's rows: counted in a stated place, and told to its operator."""

from dataclasses import dataclass

from fedgauge.errors import FedgaugeError


@dataclass(frozen=True)
class Oddities:
    """How many of a client's rows were odd, and how.

    Under noise a row that cannot be counted as it is must not silence a client, for silence would
    tell of the row. Such a row has a stated place: a score that is missing or no number in the
    first bin, one beyond the axis in the bin at that end, a label that is missing or not the
    positive one among the negatives. Rows without the id of a subject, where a plan
    protects subjects, are left out: nobody could say whose they are.

    Parameters
    ----------
    rows
        Rows counted.
    not_finite, clipped
        Of these, scores that are missing, NaN, infinite or no numbers; others beyond the axis.
    missing_labels, other_labels
        Labels that are missing; labels that are neither positive nor the one other value.
    no_subject
        Rows without the id of a subject, where the plan protects subjects.
    malformed
        Rows of a text file that were left out, with too few fields or too many.
    over_largest
        Counts that were cut down to the plan's largest.
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
    failure: str = ""

    @property
    def in_words(self) -> list[str]:
        """Short sentences for the operator, of which none quotes a row; empty if all is well."""
        of = f"of {self.rows:,}"
        told = {
            f"{self.not_finite:,} {of} scores are missing, infinite or no numbers: counted in an "
            "end bin.": self.not_finite,
            f"{self.clipped:,} {of} scores lie beyond the axis: counted in its end bins.": (
                self.clipped
            ),
            f"{self.missing_labels:,} {of} labels are missing: counted as negative.": (
                self.missing_labels
            ),
            f"{self.other_labels:,} {of} labels are neither the positive label nor one other: "
            "counted as negative.": self.other_labels,
            f"{self.no_subject:,} rows have no subject id: left out.": (self.no_subject),
            f"{self.malformed:,} rows have too few or too many fields: left out.": self.malformed,
            f"{self.over_largest:,} counts are above the plan's largest: cut down to it.": (
                self.over_largest
            ),
            f"no row was counted: {self.failure}": self.failure,
        }
        return [sentence for sentence, applies in told.items() if applies]


def in_short(error: BaseException) -> str:
    """What went wrong, without what a foreign message might quote."""
    if isinstance(error, FedgaugeError):  # whose messages hold no values
        return str(error)
    return f"reading the rows ended in {type(error).__name__}."
