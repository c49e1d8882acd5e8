"""`evaluate` under distributed differential privacy: what is promised, drawn, kept and refused.

Seeds are fixed: a test of a sample passes always or never, and says how rarely a fresh seed
would fail a right implementation.
"""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import fedgauge as fg

FALSE_ALARM = 1e-6
POLYA = fg.DistributedDP(1.0)
MODELS = {
    "polya": POLYA,
    "skellam": fg.DistributedDP(1.0, delta=1e-6, noise="skellam"),
    "discrete-gaussian": fg.DistributedDP(1.0, delta=1e-6, noise="discrete-gaussian"),
}
every_model = pytest.mark.parametrize("privacy", MODELS.values(), ids=MODELS.keys())


@pytest.fixture(autouse=True)
def few_redraws(monkeypatch):
    """Bounds that come fast. How good they are is tested in tests/statistics."""
    monkeypatch.setattr("fedgauge.measures.estimates._DRAWS", 12)


def draw_rows(rows, seed, rate=0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < rate).astype(np.int64)
    return labels, np.clip(rng.normal(0.35 + 0.3 * labels, 0.15), 0, 1)


def split(labels, scores, sites):
    return {f"site-{i}": (labels[i::sites], scores[i::sites]) for i in range(sites)}


ROWS = draw_rows(3_000, seed=1)


@pytest.fixture
def clients():
    return split(*ROWS, sites=6)


def counts_of(result):
    return np.array(result.record.slices[0].counts)


def exact_counts(axis, labels=ROWS[0], scores=ROWS[1]):
    histogram = fg.ScoreHistogram(axis)
    histogram.update(labels, scores)
    return histogram.counts


def clipping(bins):
    return fg.Axis.uniform(bins, outside="clip")


# What is promised


@every_model
def test_statement(clients, privacy):
    found = fg.evaluate(clients, privacy=privacy, examples=3_000, positive_rate=0.3, tree=(8, 4))
    stated = found.privacy
    assert stated.model == "distributed-dp"
    assert stated.claim == "simulated"
    assert (stated.unit, stated.neighbours) == ("example", "add-remove")
    assert stated.epsilon == 1.0
    assert stated.cohort == fg.Cohort(min_survivors=6, max_colluding=1)
    assert stated.public_inputs == ("examples 3000", "positive_rate 0.3")
    # The tables' own delta is part of the claim, and tiny.
    asked = privacy.delta or 0.0
    assert asked <= stated.delta <= asked + 2**-80
    assert found.plan.privacy == privacy


def test_pure_noise_states_the_distance_of_its_tables(clients):
    assert 0 < fg.evaluate(clients, privacy=POLYA).privacy.delta < 2**-80


@pytest.mark.parametrize(
    ("unit", "neighbours", "stated"),
    [
        ("example", "replace-one", "replace-one"),
        ("client", "replace-one", "replace-one"),
        ("client", "add-remove", "zero-out"),
    ],
)
def test_statement_names_unit_and_neighbours(clients, unit, neighbours, stated):
    privacy = fg.DistributedDP(1.0, unit=unit, neighbours=neighbours)
    found = fg.evaluate(clients, privacy=privacy)
    assert (found.privacy.unit, found.privacy.neighbours) == (unit, stated)
    assert f"for one {unit} ({stated})" in str(found)


def test_hints_that_were_not_given_are_not_listed(clients):
    assert fg.evaluate(clients, privacy=POLYA).privacy.public_inputs == ()
    found = fg.evaluate(clients, privacy=POLYA, positive_rate=0.3, tree="flat")
    assert found.privacy.public_inputs == ("positive_rate 0.3",)


def test_hints_are_listed_as_they_were_given(clients):
    found = fg.evaluate(clients, privacy=POLYA, examples=1_234_567, tree=(8, 8))
    assert found.privacy.public_inputs == ("examples 1234567",)


def test_verdict(clients):
    lines = str(fg.evaluate(clients, privacy=POLYA, seed=1)).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("6 clients, about ")
    assert "at 95%" in lines[1]
    assert "epsilon 1, delta " in lines[3]
    assert "simulated" in lines[3]


@pytest.mark.parametrize(("delta", "examples"), [(1e-3, 1_000), (0.1, 3_000)])
def test_delta_that_could_publish_an_example_warns(clients, delta, examples):
    privacy = fg.DistributedDP(1.0, delta=delta, noise="skellam")
    with pytest.warns(fg.PrivacyWarning, match=f"not below 1 / {examples:,}"):
        fg.evaluate(clients, privacy=privacy, examples=examples, tree=(8,))


def test_small_delta_does_not_warn(clients):
    # Warnings are errors here.
    privacy = fg.DistributedDP(1.0, delta=0.99e-3, noise="skellam")
    fg.evaluate(clients, privacy=privacy, examples=1_000, tree=(8,))


def test_absurd_epsilon_warns_and_still_counts(clients):
    with pytest.warns(fg.PrivacyWarning, match="epsilon 1000 protects nobody"):
        privacy = fg.DistributedDP(1000.0)
    found = fg.evaluate(clients, privacy=privacy)
    np.testing.assert_array_equal(counts_of(found), exact_counts(found.plan.axis))
    assert len(str(found).splitlines()) == 5


# What is drawn


@every_model
def test_seed_makes_it_repeatable(clients, privacy):
    first, again, other = (fg.evaluate(clients, privacy=privacy, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(counts_of(first), counts_of(again))
    assert np.any(counts_of(first) != counts_of(other))
    assert first.record == again.record


@every_model
def test_without_a_seed_no_two_results_are_alike(clients, privacy):
    first, second = (counts_of(fg.evaluate(clients, privacy=privacy)) for _ in range(2))
    # 128 counts with noise of a deviation above 1 agree with a chance below 2^-128.
    assert np.any(first != second)


@every_model
def test_seed_repeats_every_share_too(clients, privacy):
    options = {"privacy": privacy, "seed": 3, "every_share": True}
    first, again = (counts_of(fg.evaluate(clients, **options)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != exact_counts(clipping(64)))


def noise_at_leaves(privacy, *, bins=8192, seed, every_share, cohort=None, sites=6):
    """Noise at the nodes of one flat level: 2 * bins independent draws."""
    found = fg.evaluate(
        split(*ROWS, sites=sites),
        privacy=privacy,
        axis=clipping(bins),
        cohort=cohort,
        seed=seed,
        every_share=every_share,
    )
    exact = exact_counts(clipping(bins))
    return (found._counts - exact).ravel(), found


@every_model
@pytest.mark.parametrize("cohort", [None, fg.Cohort(4, 2)], ids=["everybody", "more than needed"])
def test_every_share_and_their_sum_follow_one_law(privacy, cohort):
    """False alarms: at most 1e-6 for each of two tests (Kolmogorov-Smirnov is conservative)."""
    alone, _ = noise_at_leaves(privacy, seed=11, every_share=True, cohort=cohort)
    together, found = noise_at_leaves(privacy, seed=12, every_share=False, cohort=cohort)
    assert not np.array_equal(alone, together)
    assert stats.ks_2samp(alone, together).pvalue > FALSE_ALARM
    # Mean squares against the variance stated in the result; their own errors are estimated.
    stated = found.record.slices[0].variances[0][0]
    for noise in (alone, together):
        squares = noise**2
        deviations = (squares.mean() - stated) / (squares.std() / np.sqrt(squares.size))
        assert abs(deviations) < stats.norm.isf(FALSE_ALARM / 2)


@every_model
def test_totals_of_both_ways_follow_one_law(privacy):
    """False alarms: at most 1e-6. Each total adds the noise of 64 leaves of one class."""
    totals = [
        noise_at_leaves(privacy, seed=seed, every_share=every)[0].reshape(-1, 64).sum(axis=1)
        for seed, every in ((21, True), (22, False))
    ]
    assert stats.ks_2samp(*totals).pvalue > FALSE_ALARM
    assert stats.levene(*totals).pvalue > FALSE_ALARM


def test_noise_is_calibrated_to_those_who_do_not_collude():
    """False alarm: 1e-6. With 2 of 4 colluding and 6 there, the variance is three times as large.

    Discrete Laplace noise of epsilon 1 comes from 2 honest clients; 6 clients add their shares.
    """
    noise, _ = noise_at_leaves(POLYA, seed=31, every_share=False, cohort=fg.Cohort(4, 2))
    expected = 3 * 2 * np.exp(-1) / (1 - np.exp(-1)) ** 2
    squares = noise**2
    deviations = (squares.mean() - expected) / (squares.std() / np.sqrt(squares.size))
    assert abs(deviations) < stats.norm.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize("every_share", [False, True])
@every_model
def test_numbers_do_not_depend_on_who_holds_a_row(clients, privacy, every_share):
    labels, scores = ROWS
    order = np.random.default_rng(2).permutation(len(labels))
    uneven = np.split(order, [10, 20, 30, 500, 2_900])
    other = {f"s{i}": (labels[rows], scores[rows]) for i, rows in enumerate(uneven)}
    options = {"privacy": privacy, "tree": (8, 8), "seed": 4, "every_share": every_share}
    assert fg.evaluate(other, **options).record == fg.evaluate(clients, **options).record


# Axis, tree, plan


def test_without_hints_one_flat_level_of_64(clients):
    plan = fg.evaluate(clients, privacy=POLYA).plan
    assert plan.axis.spec == clipping(64).spec
    assert plan.tree == (64,)
    assert plan.rounds == (fg.HistogramRound((64,), (1.0,)),)


def test_tree_sets_the_bins(clients):
    plan = fg.evaluate(clients, privacy=POLYA, tree=(16, 8)).plan
    assert plan.axis.spec == clipping(128).spec
    assert plan.tree == (16, 8)
    assert plan.rounds == (fg.HistogramRound((16, 128), (0.5, 0.5)),)


def test_hints_choose_what_the_planner_proposes(clients):
    found = fg.evaluate(clients, privacy=POLYA, examples=3_000, positive_rate=0.3)
    planned = fg.planner.propose(privacy=POLYA, clients=6, examples=3_000, positive_rate=0.3)
    assert found.plan == planned
    assert found.plan.digest == planned.digest


def test_tree_and_hints_give_the_planner_s_axis(clients):
    plan = fg.evaluate(clients, privacy=POLYA, examples=3_000, tree=(8, 4)).plan
    assert plan.tree == (8, 4)
    assert plan.axis == fg.planner.reference_axis(32, fg.planner.DEFAULT_POSITIVE_RATE)
    flat = fg.evaluate(clients, privacy=POLYA, positive_rate=0.3, tree="flat").plan
    assert flat.tree == (64,)
    assert flat.axis == fg.planner.reference_axis(64, 0.3)


@pytest.mark.parametrize(
    "scores", [ROWS[1], 3 * ROWS[1]], ids=["inside the axis", "outside the axis"]
)
def test_axis_that_refuses_is_refused(scores):
    with pytest.raises(fg.PlanError, match='outside="clip"'):
        fg.evaluate(split(ROWS[0], scores, 6), privacy=POLYA, axis=fg.Axis.uniform(16))


@pytest.mark.parametrize("options", [{}, {"tree": (4, 4)}, {"axis": clipping(16)}])
def test_scores_outside_are_clipped(options):
    labels, scores = ROWS
    wide = split(labels, 3 * scores - 1, 6)
    narrow = split(labels, np.clip(3 * scores - 1, 0, 1), 6)
    wide, narrow = (fg.evaluate(c, privacy=POLYA, seed=1, **options) for c in (wide, narrow))
    assert wide.record == narrow.record


@every_model
def test_plan_and_shortcuts_agree(clients, privacy):
    cohort = fg.Cohort(5, 2)
    plan = fg.EvaluationPlan.for_histogram(clipping(64), cohort, tree=(8, 8), privacy=privacy)
    by_plan = fg.evaluate(clients, plan, seed=9)
    by_options = fg.evaluate(
        clients, privacy=privacy, axis=clipping(64), tree=(8, 8), cohort=cohort, seed=9
    )
    assert by_plan.record == by_options.record
    assert by_plan.plan is plan


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("privacy", {"privacy": POLYA}),
        ("hints", {"examples": 100}),
        ("hints", {"positive_rate": 0.3}),
    ],
)
def test_plan_with_shortcuts_is_refused(clients, name, options):
    plan = fg.EvaluationPlan.for_histogram(clipping(8), fg.Cohort(6), privacy=POLYA)
    with pytest.raises(fg.PlanError, match=f"a plan already says {name}"):
        fg.evaluate(clients, plan, **options)


def test_plan_that_breaks_its_promise_is_refused_before_data_is_read():
    plan = fg.EvaluationPlan.for_histogram(clipping(8), fg.Cohort(6), privacy=POLYA)
    text = plan.to_bytes().replace(b'"noise":[1.0]', b'"noise":[1.5]')
    loose = fg.EvaluationPlan.from_bytes(text)

    def unread():
        raise AssertionError("data was read")

    with pytest.raises(fg.PlanError, match="promises epsilon 1 but its noise costs more"):
        fg.evaluate({f"s{i}": unread for i in range(6)}, loose)


@pytest.mark.parametrize(
    "hints",
    [
        {"examples": 0},
        {"examples": -5},
        {"examples": float("nan")},
        {"examples": float("inf")},
        {"examples": "many"},
        {"positive_rate": 0.0},
        {"positive_rate": 1.0},
        {"positive_rate": float("nan")},
        {"positive_rate": "few"},
    ],
    ids=str,
)
@pytest.mark.parametrize("axis", ["auto", clipping(8)], ids=["auto", "given axis"])
def test_bad_hints_are_refused(clients, hints, axis):
    (name,) = hints
    with pytest.raises(fg.PlanError, match=name):
        fg.evaluate(clients, privacy=POLYA, axis=axis, **hints)


def neighbours_of(clients):
    """Datasets that differ by one row, added, removed or changed."""
    labels, scores = clients["site-2"]
    yield "removed", (labels[1:], scores[1:])
    yield "added", (np.append(labels, 1), np.append(scores, 0.999))
    yield "outside", (np.append(labels, 0), np.append(scores, 1e300))
    yield "label", (np.append(labels[:-1], 1 - labels[-1]), scores)
    yield "score", (labels, np.append(scores[:-1], 0.0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tree": (8, 8)},
        {"axis": clipping(8)},
        {"examples": 3_000, "positive_rate": 0.3},
        {"positive_rate": 0.3, "tree": "flat"},
    ],
    ids=["nothing", "tree", "axis", "hints", "hint and tree"],
)
def test_neighbouring_datasets_give_the_same_plan(clients, options):
    plan = fg.evaluate(clients, privacy=POLYA, **options).plan.to_bytes()
    for name, data in neighbours_of(clients):
        other = fg.evaluate(clients | {"site-2": data}, privacy=POLYA, **options)
        assert other.plan.to_bytes() == plan, name


# Cohort


@pytest.mark.parametrize("needed", [7, 100])
def test_fewer_clients_than_the_cohort_needs(clients, needed):
    cohort = fg.Cohort(needed)
    plan = fg.EvaluationPlan.for_histogram(clipping(8), cohort, privacy=POLYA)
    for options in ({"plan": plan}, {"cohort": cohort, "privacy": POLYA}):
        with pytest.raises(fg.PlanError, match=f"needs {needed} clients and 6 took part"):
            fg.evaluate(clients, **options)


@every_model
def test_one_client_has_nobody_to_hide_behind(privacy):
    with pytest.raises(fg.PlanError, match="no noise is left when 1 of 1 clients collude"):
        fg.evaluate({"alone": ROWS}, privacy=privacy)


@pytest.mark.parametrize("colluding", [6, 7])
def test_everybody_colluding_is_refused(clients, colluding):
    with pytest.raises(fg.PlanError, match=f"no noise is left when {colluding} of 6"):
        fg.evaluate(clients, privacy=POLYA, cohort=fg.Cohort(6, colluding))


def test_two_clients_are_enough():
    found = fg.evaluate(split(*ROWS, sites=2), privacy=POLYA, seed=1)
    assert found.privacy.cohort == fg.Cohort(2, 1)
    # One client's shares alone are the noise of epsilon 1, and two add theirs.
    ratio = np.exp(-1)
    stated = found.record.slices[0].variances[0][0]
    assert stated == pytest.approx(2 * 2 * ratio / (1 - ratio) ** 2)


def test_colluders_may_be_excluded_from_the_cohort(clients):
    found = fg.evaluate(clients, privacy=POLYA, cohort=fg.Cohort(1, 0), seed=1)
    ratio = np.exp(-1)
    stated = found.record.slices[0].variances[0][0]
    assert stated == pytest.approx(6 * 2 * ratio / (1 - ratio) ** 2)


# Units


@pytest.fixture
def exact(monkeypatch):
    """Noise is drawn as zeros, so that what was counted shows."""
    monkeypatch.setattr(
        "fedgauge.privacy.shares.ShareLaw.draw",
        lambda _law, _source, shape: np.zeros(shape, dtype=np.int64),
    )


PEOPLE = pd.DataFrame(
    {
        "site": ["a", "a", "a", "a", "b", "b", "b", "c"],
        "who": ["ann", "ann", "ann", "bob", "ann", "eve", "eve", "dan"],
        "y": [0, 0, 1, 1, 1, 0, 1, 1],
        "p": [0.1, 0.1, 0.9, 0.9, 0.9, 0.1, 0.9, 0.9],
    }
)


def people_as_examples(_folder):
    return {
        site: fg.Examples(rows["y"], rows["p"], subject=rows["who"])
        for site, rows in PEOPLE.groupby("site")
    }


def people_as_stream(_folder):
    """One row at a time: a cap must hold over all chunks of a client."""

    def stream(rows):
        return lambda: [
            fg.Examples([y], [p], subject=[who])
            for who, y, p in zip(rows["who"], rows["y"], rows["p"], strict=True)
        ]

    return {site: stream(rows) for site, rows in PEOPLE.groupby("site")}


def people_as_files(folder):
    files = {}
    for site, rows in PEOPLE.groupby("site"):
        rows.to_csv(folder / f"{site}.csv", index=False)
        files[site] = fg.ScoreFile(folder / f"{site}.csv", label="y", score="p", subject="who")
    return files


def people_as_table(folder):
    pq.write_table(pa.Table.from_pandas(PEOPLE), folder / "all.parquet")
    columns = {"client": "site", "label": "y", "score": "p", "subject": "who"}
    return fg.ScoreTable([folder / "all.parquet"], **columns)


FORMS = [people_as_examples, people_as_stream, people_as_files, people_as_table]
every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
    ("unit", "cap", "expected"),
    [
        # negatives below 0.5, positives above: whose rows count, the first ones first
        ("example", 1, [[3, 0], [0, 5]]),
        ("subject", 1, [[2, 0], [0, 3]]),  # ann at a and at b are two subjects
        ("subject", 2, [[3, 0], [0, 4]]),
        ("subject", 3, [[3, 0], [0, 5]]),
        ("client", 1, [[1, 0], [0, 2]]),
        ("client", 3, [[3, 0], [0, 4]]),
    ],
)
def test_rows_beyond_the_cap_do_not_count(tmp_path, form, unit, cap, expected):
    privacy = fg.DistributedDP(1.0, unit=unit, max_per_unit=cap)
    found = fg.evaluate(form(tmp_path), privacy=privacy, axis=clipping(2))
    assert found.clients == 3
    np.testing.assert_array_equal(counts_of(found), expected)


@every_form
def test_every_form_has_the_same_noise(tmp_path, form):
    privacy = fg.DistributedDP(1.0, unit="subject", max_per_unit=2)
    options = {"privacy": privacy, "axis": clipping(2), "seed": 8}
    expected = fg.evaluate(people_as_examples(tmp_path), **options)
    assert fg.evaluate(form(tmp_path), **options).record == expected.record
    assert expected.privacy.unit == "subject"


@pytest.mark.parametrize(("unit", "cap"), [("subject", 1), ("subject", 5), ("client", 20)])
def test_noise_grows_with_the_cap(clients, unit, cap):
    privacy = fg.DistributedDP(1.0, unit=unit, max_per_unit=cap)
    rows = {
        name: fg.Examples(labels, scores, subject=np.arange(len(labels)))
        for name, (labels, scores) in clients.items()
    }
    found = fg.evaluate(rows, privacy=privacy)
    ratio = np.exp(-1 / cap)
    stated = found.record.slices[0].variances[0][0]
    # Six clients' shares, five of which are the noise of epsilon 1.
    assert stated == pytest.approx(6 / 5 * 2 * ratio / (1 - ratio) ** 2)


@pytest.mark.parametrize(
    "data",
    [(ROWS[0][:9], ROWS[1][:9]), fg.Examples([0, 1], [0.1, 0.9]), lambda: [([0, 1], [0.1, 0.9])]],
    ids=["pair", "examples", "stream"],
)
def test_subjects_without_ids_are_refused(data):
    privacy = fg.DistributedDP(1.0, unit="subject")
    with pytest.raises(fg.InputError, match=r"client 'b'.*each row needs the id of its subject"):
        fg.evaluate({"a": fg.Examples([0], [0.1], subject=[1]), "b": data}, privacy=privacy)


@pytest.mark.parametrize("unit", ["subject", "client"])
def test_client_named_twice_is_refused_where_a_cap_holds(unit):
    rows = fg.Examples([0, 1], [0.1, 0.9], subject=["ann", "bob"])
    with pytest.raises(fg.InputError, match="client 'a' is named twice"):
        fg.evaluate([("a", rows), ("b", rows), ("a", rows)], privacy=fg.DistributedDP(1, unit=unit))


# No signal


@every_model
def test_no_signal_is_no_curve(clients, privacy, tmp_path):
    privacy = fg.DistributedDP(0.02, delta=privacy.delta, noise=privacy.noise)
    found = fg.evaluate(clients, privacy=privacy, seed=1)
    for ask in (
        lambda: found.roc_auc,
        lambda: found.average_precision,
        found.roc_curve,
        found.pr_curve,
    ):
        with pytest.raises(fg.NoSignal, match=r"no signal: the noise .* Use a larger epsilon"):
            ask()
    assert "no signal" in str(found)
    assert len(str(found).splitlines()) == 5
    for estimator in (fg.Quantile(16), fg.Range()):
        with pytest.raises(fg.NoSignal):
            found.with_estimator(estimator).roc_curve()

    found.to_json(tmp_path / "r.json")
    plain = json.loads((tmp_path / "r.json").read_text())["slices"][0]
    assert plain["metrics"] == {}
    assert plain["curves"] == {"roc": None, "pr": None}
    loaded = fg.Evaluation.from_json(tmp_path / "r.json")
    assert loaded.record == found.record
    with pytest.raises(fg.NoSignal):
        loaded.roc_curve()


def test_no_signal_tells_which_class_is_hidden():
    labels, scores = draw_rows(3_000, seed=3, rate=0.004)
    found = fg.evaluate(split(labels, scores, 6), privacy=POLYA, seed=1)
    with pytest.raises(fg.NoSignal, match="hides the number of positives"):
        found.roc_curve()


def test_class_that_is_nowhere_is_no_signal():
    # Whether a class is missing is not said for sure: that would be a leak.
    labels, scores = ROWS
    found = fg.evaluate(split(np.ones_like(labels), scores, 6), privacy=POLYA, seed=1)
    with pytest.raises(fg.NoSignal, match="negatives"):
        found.roc_curve()


@pytest.mark.parametrize("seed", range(5))
def test_pure_noise_draws_no_curve(seed):
    """Each class needs four standard deviations: a false alarm has a chance below 1e-3 each."""
    tiny = {"a": ([0], [0.1]), "b": ([1], [0.9]), "c": ([1], [0.4])}
    found = fg.evaluate(tiny, privacy=fg.DistributedDP(0.3), seed=seed)
    with pytest.raises(fg.NoSignal):
        found.roc_curve()


ESTIMATORS = {
    "aligned": fg.Aligned(),
    "linear": fg.Aligned("linear"),
    "quantile": fg.Quantile(16),
    "combine": fg.Quantile(16, pr="combine"),
    "range l1": fg.Range("l1"),
    "range l2": fg.Range("l2"),
}


def is_rate(*values):
    return all(np.all((np.asarray(v) >= 0) & (np.asarray(v) <= 1)) for v in values)


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
@pytest.mark.parametrize("options", [{"axis": clipping(16)}, {"tree": (4, 4)}], ids=str)
def test_curves_of_few_noisy_rows_stay_within_their_range(estimator, options):
    """Tiny data near the gate: many negative counts, and curves wherever there is a signal."""
    labels, scores = draw_rows(240, seed=4, rate=0.4)
    drawn = 0
    grid = np.linspace(0, 1, 101)
    for seed in range(60):
        found = fg.evaluate(
            split(labels, scores, 4),
            privacy=fg.DistributedDP(0.5),
            estimator=estimator,
            seed=seed,
            **options,
        )
        assert found.negatives >= 0
        assert found.positives >= 0
        try:
            roc, pr = found.roc_curve(), found.pr_curve()
        except fg.NoSignal:
            continue
        drawn += 1
        assert is_rate(roc.fpr, roc.tpr, roc(grid), pr.precision, pr.recall, pr(grid))
        assert np.all(np.diff(roc.fpr) >= 0)
        assert np.all(np.diff(roc.tpr) >= 0)
        assert np.all(np.diff(pr.recall) <= 0)
        assert (roc.fpr[0], roc.tpr[0]) == (0, 0)
        assert (roc.fpr[-1], roc.tpr[-1]) == pytest.approx((1, 1))
        assert is_rate(roc.path.area(), pr.path.area())
        assert np.any(counts_of_noisy(found) < 0)
    assert drawn >= 10


def counts_of_noisy(found):
    """The counts, without the work of a record."""
    return found._counts


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_estimates_of_few_noisy_rows_lie_within_their_bounds(estimator):
    labels, scores = draw_rows(240, seed=4, rate=0.4)
    drawn = 0
    for seed in range(8):
        found = fg.evaluate(
            split(labels, scores, 4),
            privacy=fg.DistributedDP(1.0),
            axis=clipping(16),
            estimator=estimator,
            seed=seed,
        )
        for estimate in (found.roc_auc, found.average_precision):
            low, high = estimate.bounds
            assert 0 <= low <= estimate.value <= high <= 1
            assert estimate.level == 0.95
            assert estimate.parts["noise"] > 0
            assert estimate.parts["binning"] >= 0
        drawn += 1
    assert drawn == 8


def test_negative_totals_do_not_crash():
    """Of 40 seeds some make a class, or both, come out below zero."""
    tiny = {"a": ([0], [0.1]), "b": ([1], [0.9]), "c": ([1], [0.4])}
    below = 0
    for seed in range(40):
        found = fg.evaluate(tiny, privacy=fg.DistributedDP(0.1), tree=(8,), seed=seed)
        below += bool(np.any(counts_of_noisy(found).sum(axis=1) < 0))
        text = str(found)
        assert len(text.splitlines()) == 5
        assert "nan" not in text
        assert found.negatives >= 0
        assert found.positives >= 0
    assert below > 10


# Saving


@every_model
@pytest.mark.parametrize("estimator", [fg.Aligned(), fg.Range("l1")], ids=["aligned", "range"])
def test_json_round_trip(clients, privacy, estimator, tmp_path):
    found = fg.evaluate(clients, privacy=privacy, tree=(8, 4), estimator=estimator, seed=2)
    path = tmp_path / "r.json"
    found.to_json(path)
    loaded = fg.Evaluation.from_json(path)
    assert loaded.record == found.record
    assert loaded.record.to_json() == path.read_bytes()
    assert str(loaded) == str(found)
    np.testing.assert_array_equal(counts_of(loaded), counts_of(found))
    plain = json.loads(path.read_text())["slices"][0]
    assert any(count != int(count) for row in plain["counts"] for count in row)
    assert np.shape(plain["variances"]) == (2, 32)
    assert np.min(plain["variances"]) > 0
    assert plain["metrics"]["roc_auc"]["level"] == 0.95


def test_counts_in_json_agree_with_the_tree(clients):
    """Least squares: the leaves' noise variance is below that of the leaves alone."""
    found = fg.evaluate(clients, privacy=POLYA, tree=(8, 4), seed=2)
    ratio = np.exp(-0.5)
    alone = 6 / 5 * 2 * ratio / (1 - ratio) ** 2
    assert 0.5 * alone < found.record.slices[0].variances[0][0] < alone


# Many small clients


LABELS = {
    "integers": lambda labels: labels,
    "small integers": lambda labels: labels.astype(np.uint8),
    "floats": lambda labels: labels.astype(float),
    "bools": lambda labels: labels == 1,
    "text": lambda labels: np.where(labels == 1, "1", "0"),
    "objects": lambda labels: labels.astype(object),
    "mixed objects": lambda labels: np.array(["0", 1], dtype=object)[labels],
}


@pytest.mark.parametrize("privacy", [fg.SecureAggregation(), POLYA], ids=["sa", "ddp"])
def test_small_clients_count_alike_together_and_alone(privacy):
    labels, scores = ROWS
    kinds = [kind for name, kind in LABELS.items() if name != "mixed objects"]
    sizes = np.random.default_rng(5).integers(1, 4, 1_400)
    cuts = np.cumsum(sizes)[: np.searchsorted(np.cumsum(sizes), len(labels))]
    parts = [rows for rows in np.split(np.arange(len(labels)), cuts) if rows.size]
    assert len(parts) > 1_100  # more than are counted together
    clients = [
        (f"s{i}", (kinds[i % len(kinds)](labels[rows]), scores[rows]))
        for i, rows in enumerate(parts)
    ]
    options = {"privacy": privacy, "axis": clipping(32), "seed": 1}
    together = fg.evaluate(iter(clients), **options)
    # A stream is always counted alone.
    alone = fg.evaluate(((name, lambda data=data: [data]) for name, data in clients), **options)
    np.testing.assert_array_equal(together._counts, alone._counts)
    assert together.clients == alone.clients == len(parts)
    if privacy != POLYA:
        np.testing.assert_array_equal(together._counts, exact_counts(clipping(32)))


@pytest.mark.parametrize("kind", LABELS.values(), ids=LABELS.keys())
def test_small_clients_of_one_kind_of_label(kind):
    labels, scores = (column[:200] for column in ROWS)
    clients = {f"s{i}": (kind(labels[i : i + 1]), scores[i : i + 1]) for i in range(200)}
    found = fg.evaluate(clients, axis=clipping(32))
    np.testing.assert_array_equal(found._counts, exact_counts(clipping(32), labels, scores))


def test_small_clients_may_name_their_negatives_differently():
    clients = {
        "a": (np.array(["yes", "no"], object), [0.9, 0.1]),
        "b": (np.array(["yes", "nein"], object), [0.9, 0.1]),
    }
    found = fg.evaluate(clients, axis=clipping(2), positive="yes")
    np.testing.assert_array_equal(found._counts, [[2, 0], [0, 2]])


def test_labels_of_two_kinds_are_not_made_one():
    # As floats both whole numbers would be one: 2^53 + 1 has no float of its own.
    large = 2**53
    clients = {
        "a": (np.array([large + 1, large]), [0.9, 0.1]),
        "b": (np.array([float(large)]), [0.1]),
    }
    found = fg.evaluate(clients, axis=clipping(2), positive=large + 1)
    np.testing.assert_array_equal(found._counts, [[2, 0], [0, 1]])


BAD_ROWS = {
    "label": ((np.array([2]), [0.5]), "1 of 1 labels are neither bool nor 0/1"),
    "score": ((np.array([1]), [np.nan]), "1 of 1 scores are missing"),
    "lengths": (([1, 0], [0.5]), "y_true has 2 rows and y_score 1"),
    "nothing": ((np.array([], np.int64), []), "no examples"),
}


@pytest.mark.parametrize(("data", "told"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
@pytest.mark.parametrize("place", [0, 700, 1_499])
def test_bad_row_among_small_clients_names_its_client(data, told, place):
    clients = [(f"s{i}", (ROWS[0][i : i + 1], ROWS[1][i : i + 1])) for i in range(1_500)]
    clients[place] = (f"s{place}", data)
    with pytest.raises(fg.InputError, match=rf"client 's{place}': .*{told}"):
        fg.evaluate(clients)


def test_small_and_large_clients_mix():
    labels, scores = ROWS
    clients = {"small": (labels[:5], scores[:5]), "large": (labels[5:], scores[5:])}
    assert len(clients["large"][0]) > 1_024
    found = fg.evaluate(clients, axis=clipping(32))
    np.testing.assert_array_equal(found._counts, exact_counts(clipping(32)))
