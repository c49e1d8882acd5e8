"""Local reports to a result: from a server's intake, or from data that is reported here."""

import numpy as np

from fedgauge.distribution import Aligned, Estimator
from fedgauge.evaluation import Evaluation
from fedgauge.histogram import ScoreHistogram
from fedgauge.intake import ReportServer
from fedgauge.lookup import Floats
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import response
from fedgauge.privacy.keystream import WordSource
from fedgauge.repair import consistent

_AT_ONCE = 65_536  # rows reported together


def result_of(server: ReportServer, *, estimator: Estimator = Aligned()) -> Evaluation:
    """The result of all reports accepted so far.

    It claims ``"enforced"``: each report was randomised before the server saw it. More reports
    may come; a later result holds them too and costs no further privacy.
    """
    plan = server.plan
    levels, variances = server.counts()
    reports = server.reports
    return Evaluation(
        plan,
        plan.statement("enforced"),
        pooled(plan, levels, variances, reports),
        clients=reports,
        reports=reports,
        estimator=estimator,
    )


def simulate_reports(plan: EvaluationPlan, total: ScoreHistogram, source: WordSource) -> Floats:
    """Counts from a report for every row counted, each randomised by itself."""
    oracles, counts = plan.oracles, total.counts.ravel()
    tallies = [np.zeros(oracle.tallies, dtype=np.int64) for oracle in oracles]
    reports = [0] * len(oracles)
    # Sums do not depend on the order of rows, so a row's cell is all there is to know.
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, int(ends[-1])))
        leaves = np.searchsorted(ends, rows, side="right")
        for level, payloads in enumerate(response.randomise(oracles, leaves, source)):
            oracles[level].add(tallies[level], payloads)
            reports[level] += len(payloads)
    levels = response.debias(oracles, tallies, reports, plan.channels)
    return pooled(plan, levels, plan.noise_variances(sum(reports)), sum(reports))


def pooled(
    plan: EvaluationPlan, levels: list[Floats], variances: tuple[float, ...], reports: int
) -> Floats:
    """Counts of the bins: least squares over the tree, given the number of reports."""
    return response.settle(consistent(levels, plan.tree, variances), reports)
