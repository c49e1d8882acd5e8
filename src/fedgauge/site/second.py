"""When a site joins the second of two rounds: once, and as it joined the first.

The bins of a second round follow from a sum that no site sees. Whoever opened it can claim any
counts, and so choose among the bins that the plan allows: once, since sums over other bins can be
subtracted from each other, and each would cost as much again.
"""

from typing import Final

from fedgauge.errors import PlanRefused
from fedgauge.site.books import Books, Spend
from fedgauge.site.entries import FIRST, Account, Asked, Cost, Turn
from fedgauge.site.exact import ExactSum, Sites

_NOT_THERE: Final = (
    "the plan is for the second of two rounds, and this site did not join the first, or has given "
    "it up. Ask for an invitation to both."
)


def check_second(
    books: Books,
    account: Account,
    cost: Cost,
    asked: Asked,
    exact: ExactSum | None,
    turn: Turn,
) -> None:
    """Refuse a second round of anything but an evaluation that this site joined from the start.

    `exact` says who is invited to which plan, as it was before bins were found.
    """
    first = books.spends.get(turn.first or b"")
    if first is None or first.turn != FIRST or first.status == "released" or exact is None:
        raise PlanRefused(_NOT_THERE)
    for what, same in (
        ("plan", (exact.plan, asked.dated) == (first.plan, first.asked.dated)),
        ("coordinator", asked.coordinator == first.asked.coordinator),
        ("model", asked.model == first.asked.model),
        ("roster", _invited(exact) == _invited(first)),
        ("dataset, or cost", (account, cost) == (first.account, first.cost)),
    ):
        if not same:
            raise PlanRefused(
                f"the second of two rounds has another {what} than the first, which this site "
                "joined. Ask for a new evaluation."
            )
    if books.second_of(turn.first or b"") is not None:
        raise PlanRefused(
            "this site joined another second round of that evaluation, and each has one: sums over "
            "other bins can be subtracted from each other. Ask for a new evaluation."
        )
    if first.survivors is not None and len(first.survivors) != turn.clients:
        raise PlanRefused(
            "the bins are not those of the first round that this site was in: it was over another "
            "number of sites. Ask for a new evaluation."
        )
    if cost.is_exact_sum:
        _check_exact(books, account, first, turn)


def _invited(sum_: ExactSum | Spend) -> Sites | None:
    return None if sum_.roster is None else sum_.roster.sites


def _check_exact(books: Books, account: Account, first: Spend, turn: Turn) -> None:
    """Refuse a second exact sum that, less others, shows a site's counts or narrower bins."""
    if first.survivors is None:
        raise PlanRefused(
            "this site did not see the first of two exact sums to its end, and the difference of "
            "the two would show its counts. Ask for a new evaluation."
        )
    others = (each.turn for each in books.exact_sums(account.dataset))
    if any(other is not None and other.bins not in ("", turn.bins) for other in others):
        raise PlanRefused(
            "an earlier exact sum on this dataset found other bins under the same plan, and sums "
            "over other bins can be subtracted from each other. Run with noise (mix_exact)."
        )


def check_same_sites(books: Books, second: Spend, sites: Sites) -> None:
    """Refuse a second exact sum over other sites than the first was over."""
    if second.first is not None and books.spends[second.first].survivors != sites:
        raise PlanRefused(
            "the second of two exact sums would be over other sites than the first, and their "
            "difference would show those. Start again when all of them are there, or with noise."
        )
