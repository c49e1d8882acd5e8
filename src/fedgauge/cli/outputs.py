"""Files that commands write: what is not of their kind is never overwritten."""

from collections.abc import Callable
from pathlib import Path

import fedgauge as fg
from fedgauge.cli.options import STDOUT


def refuse_to_replace(
    *,
    json: Path | None = None,
    plots: Path | None = None,
    plan: Path | None = None,
    second: Path | None = None,
    calibrator: Path | None = None,
    roster: Path | None = None,
    trend: Path | None = None,
    rows: Path | None = None,
    html: Path | None = None,
    report: Path | None = None,
) -> None:
    """Refuse, before any work, to write over files that are not of the kind to be written.

    Rows are never written over: none can be told from somebody's data.
    """
    if json not in (None, STDOUT):
        _check(json, "result", _is_result, "--json")
    if plots is not None:
        from fedgauge.plots.figures import NAMES, OF_SLICES, is_plot

        for name in (*NAMES, *OF_SLICES):
            _check(plots / name, "plot", is_plot, "--plots")
    for page, option in ((html, "--html"), (report, "--out")):
        if page is not None:
            from fedgauge.plots.page import is_report

            _check(page, "report", is_report, option)
    if plan is not None:
        _check(plan, "plan", _is_plan, "--out")
    if second is not None:
        _check(second, "plan of a second round", _is_second, "--out")
    if calibrator is not None:
        _check(calibrator, "map", _is_map, "--out")
    if roster is not None:
        _check(roster, "roster", _is_roster, "--output")
    if trend is not None:
        _check(trend, "trend", _is_trend, "--out")
    if rows is not None and rows.exists():
        raise fg.InputError(
            f"{rows} exists, and rows are not overwritten. Name another place with --out, or move "
            "that file away."
        )


def _check(path: Path, kind: str, is_one: Callable[[Path], bool], option: str) -> None:
    try:
        # What is no file is refused where it is written; an empty file holds nothing to lose.
        replaces = path.is_file() and path.stat().st_size > 0 and not is_one(path)
    except OSError as error:
        raise fg.RecordError(f"cannot write {path}: {error.strerror}.") from None
    if replaces:
        raise fg.InputError(
            f"{path} exists and is no {kind} of fedgauge, so it is not overwritten. Name another "
            f"place with {option}, or move that file away."
        )


def _is_result(path: Path) -> bool:
    return _reads(lambda: fg.Evaluation.from_json(path)) or _reads(
        lambda: fg.LabelAuc.from_json(path)
    )


def _is_plan(path: Path) -> bool:
    return _reads(lambda: fg.EvaluationPlan.load(path))


def _is_second(path: Path) -> bool:
    from fedgauge.reports.rounds import SecondPlan

    return _reads(lambda: SecondPlan.load(path))


def _is_map(path: Path) -> bool:
    return _reads(lambda: fg.Calibrator.from_json(path))


def _is_roster(path: Path) -> bool:
    from fedgauge.vertical.party_file import read_file
    from fedgauge.vertical.roster import Roster

    return _reads(lambda: Roster.from_bytes(read_file(path)))


def _is_trend(path: Path) -> bool:
    if path.suffix == ".html":
        from fedgauge.plots.page import is_trend_page

        return is_trend_page(path)
    from fedgauge.results.series_record import is_trend

    return is_trend(path)


def _reads(read: Callable[[], object]) -> bool:
    try:
        read()
    except fg.FedgaugeError:
        return False
    return True
