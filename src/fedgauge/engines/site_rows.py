"""The rows of a site in an evaluation by files, and its note of which they were."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from fedgauge.data.examples import Data
from fedgauge.data.row_checks import RowSummary
from fedgauge.errors import ExchangeError, InputError, located
from fedgauge.plan import EvaluationPlan
from fedgauge.site import Site
from fedgauge.site.rows import NamedRows
from fedgauge.storage import MALFORMED


class Rows(Protocol):
    """A site's rows, as its operator named them when joining."""

    @property
    def path(self) -> str:
        """The file."""

    @property
    def columns(self) -> str:
        """The columns in words."""

    def check(self, plan: EvaluationPlan, site: Site) -> None:
        """Refuse, before anything is spent, a file that cannot be counted under a plan."""

    def data(self, plan: EvaluationPlan, site: Site) -> Data:
        """The rows."""

    def warnings(self, counted: RowSummary, plan: EvaluationPlan) -> list[str]:
        """What is wrong with the rows, as far as they were counted; each names the file."""


def read_note(note: bytes, kinds: Sequence[type[Rows]] = (NamedRows,)) -> Rows:
    """Rows of one of these kinds, as they were noted when a site joined."""
    for kind in kinds:
        with suppress(*MALFORMED):
            return msgspec.json.decode(note, type=kind)
    raise ExchangeError(
        "this site's record of which rows it joined with is damaged. Abandon this evaluation and "
        "join a new one."
    )


def rows_of(site: Site, plan: EvaluationPlan, rows: Rows | None) -> Rows:
    """The rows that were named or, where none were, those that the site file declares."""
    if rows is None:
        return declared_rows(site, plan)
    if site.has_periods and rows != declared_rows(site, plan):
        site.refuse_by_hand(f"rows of {rows.path}")
    return rows


def declared_rows(site: Site, plan: EvaluationPlan) -> NamedRows:
    """The rows that a site file declares, with the columns that a plan asks for; reads none."""
    if site.data is None:
        raise InputError(
            f"{site.path} does not say which rows this site has. Name the file and its columns, or "
            "declare them there, in a table [data]."
        )
    site.require_in_place(site.data.path)
    rows = site.data.narrowed(plan)
    if not plan.task.of_labels:
        with located(f"[data] in {site.path} does not fit the plan"):
            rows.by_task(plan.task)
    return rows
