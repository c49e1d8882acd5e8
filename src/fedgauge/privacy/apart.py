"""Labels apart from scores in plain words: what leaves, and what each party learns."""

from typing import Final

from fedgauge.privacy.models import ONLOOKER, READER, together

ANY_RANGES: Final = "That holds whatever ranges whoever scored the rows put them into"
ROSTER: Final = (
    "Earlier, a list of the site's examples left, without labels: their ids or, where the site "
    "scored them itself, their scores, sorted."
)
KNOWN: Final = (
    "Whoever scored the examples knows how many of them each site has in each range, and what is "
    "not positive there is negative"
)
SHOWN: Final = (
    "the scores that each range reaches from and to, and how many examples all sites together have "
    "in it, exactly"
)
ALL_NOISE: Final = (
    "Before sending, the site adds random whole numbers to {}, drawn from its operating system's "
    "secure generator: all of the noise itself, whatever others do."
)
SCORER: Final = "The coordinator, who scored the examples"
ANOTHER: Final = "Another site with labels"


def leaves(numbers: int, ranges: int, *, larger: bool) -> str:
    """What a label party sends."""
    text = (
        f"{numbers:,} whole numbers, once: how many of the site's examples in each of {ranges:,} "
        "ranges of the score are positive"
    )
    if larger:
        text += ", and in larger ranges made of these"
    return (
        f"{text}. Which range an example is in, the site was told by whoever scored it. No row, "
        f"score, label, name or identifier leaves with these numbers. {ROSTER}"
    )


def scorer_learns(least: int, allowed: str) -> str:
    """What the party learns that scored, and put examples into ranges as it liked."""
    return (
        "Which examples each site has labels for, from the lists. Then the sum over at least "
        f"{least} sites, blurred by their random numbers. {allowed}, as shown below, whatever "
        "ranges it chose: an approved but hostile coordinator that puts an example into a range "
        "of its own learns no more. The promise is for a label, not for a site: ranges that hold "
        "the examples of one site alone show how many of these are positive, blurred."
    )


def party_learns(told: str) -> str:
    """What a label party learns of the others, and of scores."""
    return (
        "Of the examples on its list, whether they were scored, and the range that each is in, so "
        "roughly how they rank; not their scores, unless it scored them itself, nor how far ranges "
        "reach. Nobody checks that it has labels for what it lists. Nothing of the others "
        f"until there is a result. {told}"
    )


def reader_learns(allowed: str) -> str:
    """What whoever reads the result learns."""
    return (
        f"The same blurred sum; {SHOWN}. {allowed}, whatever else the reader knows. What examples "
        "score, and how many there are, is not hidden."
    )


def onlooker_learns(told: str) -> str:
    """What whoever sees all messages learns."""
    return (
        f"{told} Who also sees the lists and the files of ranges learns which examples each site "
        "has, and their ranges; no label."
    )


def learned_alone(allowed: str) -> list[tuple[str, str]]:
    """Each party, and what it learns where every site adds all of the noise itself."""
    return [
        (
            SCORER,
            "Which examples each site has labels for, from the lists. Then the blurred numbers of "
            f"each site. {allowed}, as shown below, whatever ranges or places it chose.",
        ),
        (together(0), "The same of all other sites: the noise of each is its own."),
        (
            ANOTHER,
            "Of the examples on its list, whether they were scored, and the range or place that "
            "each has. Of the others what is in the result.",
        ),
        (READER, f"What is made of all blurred numbers. {allowed}, whatever else is known."),
        (ONLOOKER, onlooker_learns("As much as the coordinator: all noise is in the numbers.")),
    ]
