"""A series of results: its order, what is no series, what is told of each look."""

import csv
import json
import os

import numpy as np
import pytest
from scipy.stats import gamma, norm

import fedgauge as fg
from fedgauge.estimation.repair import consistent
from fedgauge.measures.drift import Moved, Noise, _heavy, area, jump_limit, least_change, moved
from fedgauge.measures.watching import Looks, loudest_node, shift
from fedgauge.results.dated import dated_files
from fedgauge.results.proof import Signature

AXIS = fg.Axis.uniform(64, outside="clip")


def week(seed, signal=1.5, n=3000, **options):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    s = 1 / (1 + np.exp(1 - signal * y - rng.normal(size=n)))
    clients = {f"site-{i}": (y[i::3], s[i::3]) for i in range(3)}
    return fg.evaluate(clients, **({"axis": AXIS} | options))


def noise_of(variance, looks, loud=1.0):
    """Noise that is the same in every bin, for more looks than there are yet."""

    def covariance(left, right):
        return np.full(looks, variance * (left * right).sum())

    return Noise(covariance, lambda *_: np.full((), loud))


WEEKS = {f"week {i}": week(i, 1.5 if i < 6 else 1.0) for i in range(1, 8)}
CALIBRATOR = WEEKS["week 3"].calibrator()
TREND = fg.Trend.of(WEEKS, at=[0.5])


def test_a_fall_of_the_auc_is_an_alarm_when_it_comes_and_not_before():
    looks = [each.look for each in TREND.alarms if each.metric == "roc_auc"]
    assert looks[0] == "week 6"
    assert {each.look for each in TREND.alarms} <= {"week 6", "week 7"}
    assert "ROC AUC moved by -0.0" in str(TREND)


def test_what_a_look_was_judged_to_be_does_not_change_by_later_ones():
    early = fg.Trend.of(dict(list(WEEKS.items())[:6]), at=[0.5])
    kept = [each for each in TREND.alarms if each.look != "week 7"]
    assert [each[:4] for each in early.alarms] == [each[:4] for each in kept]


def test_values_are_those_of_the_results():
    frame = TREND.to_frame()
    row = frame.query("look == 'week 3' and metric == 'recall'").iloc[0]
    assert row["value"] == WEEKS["week 3"].at_threshold(0.5).recall.value
    share = frame.query("look == 'week 3' and metric == 'prevalence'").iloc[0]
    assert share["value"] == pytest.approx(
        WEEKS["week 3"].positives / WEEKS["week 3"].examples, abs=1e-12
    )
    assert len(frame) == 7 * (5 + 3 + 2)
    assert frame.query("look == 'week 1'")["z"].isna().all()


def test_the_change_of_the_auc_is_about_that_of_the_values():
    """Each look is placed among the pool's classes: the same to second order."""
    row = TREND.to_frame().query("look == 'week 6' and metric == 'roc_auc'").iloc[0]
    before = np.mean([WEEKS[f"week {i}"].roc_auc.value for i in range(1, 6)])
    assert row["moved"] == pytest.approx(WEEKS["week 6"].roc_auc.value - before, abs=0.01)


def test_psi_is_the_sum_over_tenths_and_its_chance_value_that_of_a_chi_square():
    axis = fg.Axis.uniform(10)
    counts = np.stack([np.full((2, 10), 50.0), np.full((2, 10), 50.0)])
    counts[1, 0] = np.linspace(30, 70, 10)
    found = shift(Looks(axis, counts, None), axis.edges[1:-1])
    p, q = counts[1].sum(axis=0) / 1000, np.full(10, 0.1)
    assert found.psi == pytest.approx(np.sum((p - q) * np.log(p / q)))
    assert found.psi_expected == pytest.approx(9 * (1 / 1000 + 1 / 1000))
    assert found.ks == pytest.approx(np.abs(np.cumsum(p - q)).max())


def test_noise_raises_the_psi_that_is_expected():
    axis, counts = fg.Axis.uniform(10), np.full((2, 2, 10), 50.0)

    loud = noise_of(4.0, looks=3)  # of a later one as well
    exact, noisy = (shift(Looks(axis, counts, each), axis.edges[1:-1]) for each in (None, loud))
    # A share is (group - share) / n: 2 * 4 * (0.9**2 + 9 * 0.1**2) / 1000**2 in each look, of 10.
    more = 10 * 2 * 8 * (0.81 + 0.09) / 1000**2 / 0.1
    assert noisy.psi_expected - exact.psi_expected == pytest.approx(more)


def test_bins_that_were_merged_in_another_way_are_compared_on_those_in_common():
    plan = fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3, 1), min_cell=5)
    looks = {str(i): week(i, n=400, axis="auto", plan=plan) for i in range(3)}
    axes = {result.released.axis.bins for result in looks.values()}
    assert len(axes) > 1
    trend = fg.Trend.of(looks)
    row = trend.to_frame().query("look == '2' and metric == 'roc_auc'").iloc[0]
    assert np.isfinite(row["z"])


def test_the_noise_of_looks_is_that_of_their_counts_also_on_bins_in_common():
    model = fg.DistributedDP(epsilon=1.0)
    fine, coarse = (
        week(1, privacy=model, axis=fg.Axis.uniform(bins, outside="clip")).pooled
        for bins in (64, 16)
    )
    looks = Looks.of([fine, coarse])
    assert looks.axis.bins == 16
    assert looks.counts[0] == pytest.approx(fine.unbiased.reshape(2, 16, 4).sum(axis=-1))
    one, other = np.random.default_rng(0).normal(size=(2, 2, 16))
    wide = (np.repeat(each, 4, axis=-1) for each in (one, other))
    told = fine.covariance(*wide), coarse.covariance(one, other)
    assert looks.noise.covariance(one, other) == pytest.approx(told)
    assert Looks.of([WEEKS["week 1"].pooled]).noise is None


def test_looks_by_one_plan_have_one_noise_and_others_their_own():
    """Of many looks it is worked out once for each plan, and given to those by it."""
    loud, quiet = (
        [week(seed, privacy=fg.DistributedDP(epsilon)).pooled for seed in range(2)]
        for epsilon in (0.5, 2.0)
    )
    mixed = [loud[0], quiet[0], loud[1], quiet[1]]
    weights = np.random.default_rng(0).normal(size=(2, 64))
    told = [float(each.noise_variance(weights)) for each in mixed]
    assert told[0] != told[1]
    assert Looks.of(mixed).noise.covariance(weights, weights) == pytest.approx(told)


def test_the_noise_of_local_reports_is_that_of_each_look():
    reports = [week(seed, privacy=fg.LocalDP(6.0)).pooled for seed in range(2)]
    weights = np.random.default_rng(0).normal(size=(2, reports[0].axis.bins))
    told = [float(each.noise_variance(weights)) for each in reports]
    assert told[0] != told[1]
    looks = Looks.of(reports)
    assert looks.noise.covariance(weights, weights) == pytest.approx(told)
    assert looks.noise.loudest(weights, 1) == 0.0


def test_noise_under_a_map_is_that_of_each_look():
    """It hangs on the map, which joins bins here, and not on the plan alone."""
    steps = WEEKS["week 3"].calibrator("isotonic")
    mapped = [
        week(seed, privacy=fg.DistributedDP(1.0)).with_calibrator(steps).pooled for seed in range(2)
    ]
    looks = Looks.of(mapped)
    weights = np.random.default_rng(0).normal(size=(2, looks.axis.bins))
    told = [float(each.noise_variance(weights)) for each in mapped]
    assert looks.noise.covariance(weights, weights) == pytest.approx(told)
    assert looks.noise.loudest(weights, 0) == 1.0


def test_the_loudest_node_is_that_of_the_tree():
    """As noise drawn for one node after the other moves the estimates."""
    tree, variances = (4, 4), (3.0, 2.0)
    weights = np.random.default_rng(0).normal(size=(1, 16))
    heard = []
    for depth, nodes in enumerate((4, 16)):
        for node in range(nodes):
            levels = [np.zeros((1, 4)), np.zeros((1, 16))]
            levels[depth][0, node] = np.sqrt(variances[depth])
            heard.append(float((consistent(levels, tree, variances) * weights).sum()) ** 2)
    assert loudest_node(tree, variances, weights) == pytest.approx(max(heard) / sum(heard))


@pytest.mark.parametrize("loud", [1.0, 0.25])
@pytest.mark.parametrize("noisy", [1.0, 0.6])
def test_deviates_with_noise_are_those_of_sums_of_laplace_numbers(loud, noisy):
    """Numbers of a gamma mixture, summed finely; r* is off by 0.02 at most."""
    shares = gamma.isf((np.arange(200_000) + 0.5) / 200_000, 1 / loud, scale=loud)
    far = np.array([2.5, 3.5])
    chances = [norm.sf(x / np.sqrt(1 - noisy + noisy * shares)).mean() for x in far]
    told = _heavy(far, np.full(2, noisy), np.full(2, loud))
    assert told == pytest.approx(norm.isf(chances), abs=0.02)
    assert np.all(told < far)


def test_noise_makes_the_same_difference_less_of_an_alarm():
    """Its variance counts, and its tail is heavier than a normal one."""
    counts = np.stack([np.full((2, 10), 100.0)] * 5)
    counts[-1, 1] = np.linspace(60, 140, 10)

    terms = area(counts.sum(axis=0))
    exact, noisy = moved(counts, terms), moved(counts, terms, noise_of(50.0, looks=6))
    assert noisy.by == pytest.approx(exact.by)
    assert noisy.z < noisy.by / noisy.deviation < exact.by / exact.deviation
    assert noisy.z < moved(counts, terms, noise_of(50.0, looks=6, loud=0.01)).z
    assert 0.5 < noisy.loud < 1.0  # that of the last look, and what the others have of the noise


def test_few_rows_are_not_compared():
    counts = np.full((3, 2, 2), 9.0)  # 18 of a class
    assert np.isnan(moved(counts, area(counts.sum(axis=0))).z)


def test_one_look_has_nothing_to_be_compared_with():
    trend = fg.Trend.of({"a": WEEKS["week 1"]})
    assert not trend.alarms
    assert "nothing to compare it with yet" in str(trend)


def test_a_look_that_noise_hides_is_in_no_test():
    hidden = week(9, n=30, privacy=fg.DistributedDP(epsilon=0.1))
    trend = fg.Trend.of({"a": WEEKS["week 1"], "b": hidden, "c": WEEKS["week 2"]})
    assert list(trend.withheld) == ["b"]
    frame = trend.to_frame()
    assert frame.query("look == 'b'")["value"].isna().all()
    assert frame.query("look == 'c' and metric == 'roc_auc'")["z"].notna().all()


def test_a_change_is_found_from_about_the_limit_of_three_looks_on():
    """Normal looks without noise: (limit + 1.28) deviations over the root of three, and a little.

    The looks after the change are soon among those that the next is compared with.
    """
    looks = Moved(*(np.full(100, each) for each in (0.0, 0.01, 0.0, 0.0, 0.0, 1.0)))
    told = least_change(looks, 0.05)[-1]
    plain = 0.01 * (jump_limit(0.05 / 3, 103) + 1.2816) / np.sqrt(3)
    assert plain < told < 1.02 * plain
    noisy = least_change(looks._replace(noisy=np.full(100, 1.0)), 0.05)[-1]
    assert noisy > 1.2 * told
    few = looks._replace(skew=np.full(100, 0.7))
    never = looks._replace(deviation=np.full(100, 1e-15))
    assert np.isnan([least_change(each, 0.05)[-1] for each in (few, never)]).all()


def test_the_least_change_is_told_of_all_that_is_watched():
    assert 0.01 < TREND.least("roc_auc") < TREND.least("recall", 0.5) < 0.2
    assert f"ROC AUC {TREND.least('roc_auc'):.4f}" in str(TREND)
    assert fg.Trend.of({"a": WEEKS["week 1"]}).least("roc_auc") is None
    with pytest.raises(fg.InputError, match="recall is not watched there"):
        TREND.least("recall", 0.4)


def test_the_verdict_says_what_moved_first():
    assert "ROC AUC (first at week 6)" in TREND.verdict
    quiet = fg.Trend.of(dict(list(WEEKS.items())[:4]))
    assert quiet.verdict.startswith("no alarm in 4 looks")
    hidden = week(9, n=30, privacy=fg.DistributedDP(epsilon=0.1))
    assert fg.Trend.of({"a": hidden}).verdict.startswith("no look tells anything")


def test_the_record_has_what_each_look_promises_and_costs():
    looks = {
        str(i): week(i, privacy=fg.DistributedDP(epsilon=epsilon))
        for i, epsilon in enumerate((1.0, 0.5))
    }
    record = fg.Trend.of(looks, at=[0.5]).record
    assert [each["epsilon"] for each in record["looks"]] == [1.0, 0.5]
    assert [each["spent"]["epsilon"] for each in record["looks"]] == [1.0, 1.5]
    assert record["looks"][0]["claim"] == "simulated"
    assert record["watched"][-1]["title"] == "precision at 0.5"
    assert TREND.record["looks"][0]["spent"] is None


def test_the_budget_adds_up():
    looks = {str(i): week(i, privacy=fg.DistributedDP(epsilon=1.0)) for i in range(2)}
    assert fg.Trend.of(looks).spent[0] == 2.0
    assert "epsilon 2" in str(fg.Trend.of(looks))
    assert TREND.spent[0] == np.inf
    assert "exact sums" in str(TREND)


def test_scores_that_are_no_probabilities_have_no_losses():
    rng = np.random.default_rng(0)
    looks = {}
    for name in "ab":
        y = rng.random(500) < 0.4
        rows = {"a": (y, rng.normal(y, 1.0))}
        looks[name] = fg.evaluate(rows, axis=fg.Axis.uniform(32, low=-8, high=8))
    assert "brier_score" not in set(fg.Trend.of(looks).to_frame()["metric"])


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ({}, "there are none"),
        ({"a": WEEKS["week 1"], "b": WEEKS["week 1"]}, "a and b are the same result"),
        (
            {
                "a": WEEKS["week 1"],
                "b": WEEKS["week 2"].with_calibrator(CALIBRATOR),
            },
            "different maps",
        ),
        (
            {
                "a": fg.evaluate({"a": (["s", "w"], [0.9, 0.1])}, positive="s"),
                "b": fg.evaluate({"a": (["s", "w"], [0.9, 0.1])}, positive="w"),
            },
            "different labels as positive",
        ),
    ],
)
def test_what_is_no_series_is_refused(looks, told):
    with pytest.raises(fg.InputError, match=told):
        fg.Trend.of(looks)


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        (fg.Axis.uniform(64, low=0, high=2), "from and to different scores"),
        (fg.Axis.uniform(63, outside="clip"), "no bin edge in common"),
    ],
)
def test_axes_that_have_nothing_in_common_are_refused(axis, told):
    with pytest.raises(fg.InputError, match=told):
        fg.Trend.of({"a": WEEKS["week 1"], "b": week(1, axis=axis)})


def test_what_is_no_result_is_refused():
    with pytest.raises(fg.InputError, match=r"fg\.read_trend"):
        fg.Trend.of({"a": "weekly/a.json"})


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ([Signature("broken", reason="counts differ")], "a is not what was signed: counts differ"),
        (
            [Signature("unknown key", model=digest) for digest in ("1f", "2e")],
            "a and b were signed for different models",
        ),
    ],
)
def test_signatures_that_do_not_fit_are_refused(monkeypatch, states, told):
    looks = {"a": WEEKS["week 1"], "b": WEEKS["week 2"]}
    for result, state in zip(looks.values(), states, strict=False):
        monkeypatch.setattr(result._origin, "_examined", state)
    with pytest.raises(fg.InputError, match=told):
        fg.Trend.of(looks)


@pytest.mark.parametrize("rate", [0, 1, -0.1, True, "0.05"])
def test_a_rate_is_a_chance(rate):
    with pytest.raises(fg.InputError, match="rate must lie"):
        fg.Trend.of(WEEKS, rate=rate)


# Files


def saved(folder, names):
    for seed, name in enumerate(names):
        week(seed, n=200).to_json(folder / name)
    return folder


def test_dates_in_names_say_the_order(tmp_path):
    folder = saved(tmp_path, ["b-2026-01-05.json", "a-20260112.json", "c-2026-W01.json"])
    trend = fg.read_trend(folder)
    assert trend.looks == ("c-2026-W01", "b-2026-01-05", "a-20260112")
    assert trend.when["c-2026-W01"] == "2025-12-29"
    assert "dates" in trend.order


def test_names_without_dates_are_ordered_as_people_count(tmp_path):
    found = dated_files(saved(tmp_path, ["week-10.json", "week-9.json"]), "name")
    assert list(found.files) == ["week-9", "week-10"]
    assert found.when == {"week-9": None, "week-10": None}
    assert "no dates" in found.order


def test_times_of_files_say_the_order_where_they_are_asked(tmp_path):
    folder = saved(tmp_path, ["a.json", "b.json"])
    os.utime(folder / "a.json", (2e9, 2e9))
    os.utime(folder / "b.json", (1e9, 1e9))
    found = dated_files(folder, "time")
    assert list(found.files) == ["b", "a"]
    assert found.when["b"] == "2001-09-09T01:46:40+00:00"


def test_dates_in_some_names_only_are_refused(tmp_path):
    folder = saved(tmp_path, ["2026-01-05.json", "last.json"])
    with pytest.raises(fg.InputError, match=r"last\.json has no date"):
        fg.read_trend(folder)


def test_two_results_of_one_date_are_refused(tmp_path):
    folder = saved(tmp_path, ["site-a-2026-W02.json", "site-b-2026-W02.json"])
    with pytest.raises(fg.InputError, match="one date in their names"):
        fg.read_trend(folder)
    assert len(dated_files(folder, "time").files) == 2


def test_files_that_are_no_results_are_skipped_and_named(tmp_path):
    folder = saved(tmp_path, ["a.json", "b.json"])
    (folder / "notes.txt").write_text("x")
    (folder / "other.json").write_text("{}")
    (folder / "sub").mkdir()
    fg.read_trend(folder).to_json(folder / "trend.json")
    trend = fg.read_trend(folder)
    assert trend.looks == ("a", "b")
    assert set(trend.skipped) == {"notes.txt", "other.json", "sub", "trend.json"}
    assert "fedgauge-trend" in trend.skipped["trend.json"]


def test_a_result_that_was_edited_is_no_file_to_skip(tmp_path):
    folder = saved(tmp_path, ["a.json", "b.json"])
    record = json.loads((folder / "b.json").read_text())
    record["clients"] = 0
    (folder / "b.json").write_text(json.dumps(record))
    with pytest.raises(fg.RecordError, match=r"b\.json"):
        fg.read_trend(folder)


def test_a_result_that_was_cut_short_is_no_file_to_skip(tmp_path):
    folder = saved(tmp_path, ["a.json", "b.json"])
    whole = (folder / "b.json").read_bytes()
    (folder / "b.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(fg.RecordError, match=r"b\.json"):
        fg.read_trend(folder)


def test_two_files_of_one_name_are_refused(tmp_path):
    folder = saved(tmp_path, ["a.json", "a.JSON"])
    with pytest.raises(fg.InputError, match="have one name"):
        fg.read_trend(folder)


@pytest.mark.parametrize("name", ["", "missing", "file"])
def test_a_folder_without_results_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("x")
    with pytest.raises(fg.InputError):
        fg.read_trend(tmp_path / name)


def test_saved_numbers_are_those_of_the_frame(tmp_path):
    TREND.to_json(tmp_path / "t.json")
    TREND.to_csv(tmp_path / "t.csv")
    kept = json.loads((tmp_path / "t.json").read_text())
    assert kept["format"] == "fedgauge-trend/1"
    assert kept["alarms"][0]["look"] == TREND.alarms[0].look
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(kept["rows"]) == len(TREND.to_frame())


def test_a_slice_is_followed(tmp_path):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        y, s = rng.random(400) < 0.4, rng.random(400)
        rows = fg.Examples(y, s, group=rng.choice(["x", "y"], 400))
        fg.evaluate({"a": rows}, groups=["x", "y"]).to_json(tmp_path / f"{seed}.json")
    part = fg.read_trend(tmp_path, group="x")
    assert part.results["0"].slice.group == "x"
