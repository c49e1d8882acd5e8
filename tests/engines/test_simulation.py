"""`evaluate` in one process: every way to hand over clients, and what is refused."""

import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused

import fedgauge as fg
from fedgauge.engines.simulation import simulate

SITES = {"site-a": 900, "site-b": 500, "site-c": 40}


def make_clients(seed=4):
    rng = np.random.default_rng(seed)
    clients = {}
    for name, rows in SITES.items():
        labels = rng.integers(0, 2, rows)
        clients[name] = labels, np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    return clients


@pytest.fixture
def clients():
    return make_clients()


@pytest.fixture
def result(clients):
    return fg.evaluate(clients)


def pool(clients):
    return tuple(np.concatenate(column) for column in zip(*clients.values(), strict=True))


def streamed(labels, scores, *, wrap=lambda labels, scores: (labels, scores)):
    def chunks():
        for start in range(0, len(labels), 128):
            yield wrap(labels[start : start + 128], scores[start : start + 128])

    return chunks


FORMS = {
    "pairs": lambda clients: list(clients.items()),
    "generator": lambda clients: iter(clients.items()),
    "lists": lambda clients: {n: (y.tolist(), p.tolist()) for n, (y, p) in clients.items()},
    "bool labels": lambda clients: {n: (y == 1, p) for n, (y, p) in clients.items()},
    "examples": lambda clients: {n: fg.Examples(*data) for n, data in clients.items()},
    "stream of pairs": lambda clients: {n: streamed(*data) for n, data in clients.items()},
    "stream of examples": lambda clients: {
        n: streamed(*data, wrap=fg.Examples) for n, data in clients.items()
    },
    "pandas": lambda clients: {n: (pd.Series(y), pd.Series(p)) for n, (y, p) in clients.items()},
    "polars": lambda clients: {n: (pl.Series(y), pl.Series(p)) for n, (y, p) in clients.items()},
    "arrow": lambda clients: {n: (pa.array(y), pa.array(p)) for n, (y, p) in clients.items()},
    "read-only": lambda clients: {n: freeze(*data) for n, data in clients.items()},
}


def freeze(*arrays):
    for array in arrays:
        array.setflags(write=False)
    return arrays


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_forms_of_clients_agree(clients, result, form):
    found = fg.evaluate(form(clients))
    assert found.record == result.record
    assert found.clients == 3


def test_score_files_and_a_score_table(clients, result, tmp_path):
    files = {}
    for name, (labels, scores) in clients.items():
        pq.write_table(pa.table({"y": labels, "p": scores}), tmp_path / f"{name}.parquet")
        files[name] = fg.ScoreFile(tmp_path / f"{name}.parquet", label="y", score="p")
    assert fg.evaluate(files).record == result.record
    refused(fg.InputError, "clients must be a mapping", fg.evaluate, files["site-a"])
    labels, scores = pool(clients)
    site = np.repeat(list(SITES), list(SITES.values()))
    pq.write_table(pa.table({"y": labels, "p": scores, "site": site}), tmp_path / "all.parquet")
    table = fg.ScoreTable([tmp_path / "all.parquet"], client="site", label="y", score="p")
    assert fg.evaluate(table).record == result.record


def test_inputs_stay_as_they_were_and_streams_may_be_read_again(clients):
    streams = {name: streamed(*data) for name, data in clients.items()}
    assert fg.evaluate(streams).record == fg.evaluate(streams).record
    fg.evaluate(clients, axis=fg.Axis.uniform(16, 0.2, 0.8, outside="clip"))
    for name, (labels, scores) in make_clients().items():
        np.testing.assert_array_equal(clients[name][0], labels)
        np.testing.assert_array_equal(clients[name][1], scores)
    assert list(clients) == list(SITES)


def test_large_client_counts_like_its_chunks():
    rng = np.random.default_rng(8)
    scores = rng.random(1_200_000)
    labels = (rng.random(scores.size) < scores).astype(np.int64)
    whole = fg.evaluate({"a": (labels, scores)})
    assert whole.negatives + whole.positives == scores.size
    assert whole.positives == labels.sum()
    assert fg.evaluate({"a": streamed(labels, scores)}).record == whole.record


def peak_memory(clients):
    def generated():
        rng = np.random.default_rng(0)
        for i in range(clients):
            scores = rng.random(200)
            yield f"site-{i}", (scores > 0.5, scores)

    tracemalloc.start()
    try:
        fg.evaluate(generated(), axis=fg.Axis.uniform(64))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_names_of_clients_alone():
    """Rows of one client are 1,800 bytes, its name with its place in a set under 200."""
    peak_memory(200)  # whatever is loaded or cached once
    assert peak_memory(5_000) < 1.5 * peak_memory(200) + 4_800 * 200


@pytest.mark.parametrize("form", [list, iter], ids=["list", "generator"])
@pytest.mark.parametrize("privacy", [fg.SecureAggregation(), fg.LocalDP(8.0)], ids=["sa", "ldp"])
def test_a_client_named_twice_is_refused(clients, form, privacy):
    twice = form([*clients.items(), ("site-a", clients["site-b"])])
    with pytest.raises(fg.InputError, match="client 'site-a' is named twice, and would count"):
        fg.evaluate(twice, privacy=privacy)
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8), fg.Cohort(3))
    with pytest.raises(fg.InputError, match="client 'site-a' is named twice"):
        simulate([*clients.items(), ("site-a", clients["site-b"])], plan, summation="secure")


EMPTY = {
    "pair": ([], []),
    "arrays": (np.array([], np.int64), np.array([])),
    "examples": fg.Examples([], []),
    "stream": lambda: [],
    "stream of empty chunks": lambda: [([], []), ([], [])],
}


@pytest.mark.parametrize("data", EMPTY.values(), ids=EMPTY.keys())
def test_client_without_examples_is_named(clients, data):
    clients["site-d"] = data
    refused(fg.InputError, r"'site-d'.*no examples\. Leave this client out", fg.evaluate, clients)


def test_empty_chunks_do_no_harm(clients, result):
    labels, scores = clients["site-a"]
    clients["site-a"] = lambda: [([], []), (labels, scores), fg.Examples([], [])]
    assert fg.evaluate(clients).record == result.record


@pytest.mark.parametrize("nobody", [{}, [], iter(())])
def test_no_clients(nobody):
    refused(fg.InputError, "no clients", fg.evaluate, nobody)


@pytest.mark.parametrize(("label", "missing"), [(0, "positive"), (1, "negative")])
def test_one_class_everywhere(label, missing):
    found = fg.evaluate({"a": ([label] * 3, [0.1, 0.2, 0.3]), "b": ([label], [0.4])})
    assert found.negatives + found.positives == 4
    assert len(str(found).splitlines()) == 5
    assert f"no client has a {missing} example" in str(found)


WRONG_CLIENTS = {
    "path": "scores.csv",
    "one pair": ([0, 1], [0.1, 0.9]),
    "pairs without names": [([0, 1], [0.1, 0.9])],
    "three parts": [("a", [0, 1], [0.1, 0.9])],
    "numbers": [1, 2],
    "data frame": pd.DataFrame({"y": [0, 1], "p": [0.1, 0.9]}),
    "array": np.zeros((3, 2)),
    "none": None,
    "number": 5,
    "examples": fg.Examples([0, 1], [0.1, 0.9]),
    "histogram": fg.ScoreHistogram(fg.Axis.uniform(4)),
    "stream": lambda: [([0, 1], [0.1, 0.9])],
}


@pytest.mark.parametrize("wrong", WRONG_CLIENTS.values(), ids=WRONG_CLIENTS.keys())
def test_clients_of_another_shape(wrong):
    refused(fg.InputError, "clients must be a mapping, or an iterable of", fg.evaluate, wrong)


WRONG_DATA = {
    "list of two": ([[0, 1], [0.1, 0.9]], "got list of 2"),
    "three parts": (([0], [0.1], [1]), "got tuple of 3"),
    "path": ("s.csv", "got str"),
    "number": (3, "got int"),
    "none": (None, "got NoneType"),
    "generator": (iter([([0], [0.1])]), "got list_iterator"),
    "stream of numbers": (lambda: [1, 2], "got int"),
    "stream of nothing": (lambda: None, "NoneType"),
    "stream without list": (lambda: 5, "int"),
    "lengths": (([0, 1, 1], [0.1, 0.9]), "y_true has 3 rows and y_score 2"),
    "two columns": (([0, 1], [[0.1, 0.9], [0.2, 0.8]]), "several scores each"),
    "text scores": (([0, 1], ["0.987654321", "SECRET123"]), "not numbers"),
    "missing score": (([0, 1], [0.5, None]), "1 of 2 scores are missing"),
    "infinite score": (([0, 1], [0.5, np.inf]), "1 of 2 scores are missing, NaN or infinite"),
    "score outside": (([0, 1], [0.5, 1.987654321]), r"1 of 2 scores lie outside the axis \[0, 1\]"),
    "text labels": ((["no", "SECRET123"], [0.1, 0.9]), "2 of 2 labels are neither bool nor 0/1"),
    "missing labels": (([None, None], [0.1, 0.9]), "2 of 2 labels are missing"),
    "missing label": (([0, None, 1], [0.1, 0.9, 0.4]), "1 of 3 labels are missing"),
    "dates": ((np.array(["2020-01-01"], "M8[D]"), [0.1]), "label"),
}


@pytest.mark.parametrize(("data", "told"), WRONG_DATA.values(), ids=WRONG_DATA.keys())
def test_wrong_data_names_the_client_and_shows_no_value(clients, data, told):
    clients["site-d"] = data
    with pytest.raises(fg.InputError, match=told) as caught:
        fg.evaluate(clients)
    error = caught.value
    assert "client 'site-d'" in str(error)
    assert "SECRET123" not in str(error)
    assert "987654321" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_errors_inside_a_stream_come_through():
    def broken():
        yield [0, 1], [0.1, 0.9]
        raise ConnectionError("the database went away")

    refused(ConnectionError, "went away", fg.evaluate, {"a": broken})


def make_plan(**options):
    options = {"axis": fg.Axis.uniform(64), "cohort": fg.Cohort(min_survivors=3)} | options
    return fg.EvaluationPlan.for_histogram(**options)


def test_plan_says_it_all_and_no_shortcut_beside_it(clients):
    plan = make_plan(tree=(8, 8), task=fg.BinaryTask(positive=0))
    with pytest.warns(fg.InputWarning, match="Are labels reversed"):
        found = fg.evaluate(clients, plan, estimator=fg.Quantile(32))
    assert found.plan is plan
    assert found.estimator == fg.Quantile(32)
    labels, _ = pool(clients)
    assert found.positives == np.count_nonzero(labels == 0)
    with pytest.raises(fg.PlanError, match="has axis, cohort, positive"):
        fg.evaluate(
            clients, make_plan(), axis=fg.Axis.uniform(8), cohort=fg.Cohort(), positive="yes"
        )


HINTS = {"examples": "hints", "positive_rate": "hints"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("axis", fg.Axis.uniform(64)),
        ("tree", "flat"),
        ("tree", (8, 8)),
        ("cohort", fg.Cohort()),
        ("positive", 1),
        ("positive", 0),
        ("positive", False),
        ("task", fg.BinaryTask()),
        ("groups", ["a", "b"]),
        ("models", ["new", "old"]),
        ("score_sums", True),
        ("privacy", fg.DistributedDP(1.0)),
        ("examples", 100),
        ("positive_rate", 0.3),
        ("at", 0.3),
    ],
)
def test_plan_with_a_shortcut_is_refused(clients, name, value):
    with pytest.raises(fg.PlanError, match=rf"already has {HINTS.get(name, name)}[\s\S]*not both"):
        fg.evaluate(clients, make_plan(), **{name: value})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"axis": fg.Axis.from_values([0.1, 0.9])}, "known already"),
        ({"privacy": fg.DistributedDP(1.0, delta=1e-6, noise="skellam")}, "noise='polya'"),
        ({"privacy": fg.DistributedDP(0.1)}, "Raise epsilon, or leave the score sums out"),
        ({"score_sums": "yes"}, "score_sums must be True or False"),
    ],
    ids=["values", "skellam", "epsilon", "text"],
)
def test_score_sums_that_cannot_be_are_refused_before_data_is_read(options, told):
    def read():
        raise AssertionError("data was read")

    clients = dict.fromkeys("abc", read)
    refused(fg.PlanError, told, fg.evaluate, clients, **{"score_sums": True} | options)
    with pytest.raises(fg.PlanError, match=told):
        fg.evaluate(iter(clients.items()), **{"score_sums": True} | options)


def test_small_clients_counted_together_have_their_sums():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 3_000), rng.random(3_000)
    rows = {f"s{i}": (labels[i : i + 1], scores[i : i + 1]) for i in range(3_000)}
    expected = fg.ScoreHistogram(fg.Axis.uniform(16), sum_steps=256)
    expected.update(labels, scores)
    found = fg.evaluate(rows, axis=fg.Axis.uniform(16), score_sums=True)
    np.testing.assert_array_equal(found.released.sums, expected.sums)
    planned = fg.evaluate(rows, make_plan(axis=fg.Axis.uniform(16), score_sums=True))
    assert planned.record.slices == found.record.slices


@pytest.mark.parametrize("needed", [4, 100])
def test_too_few_clients_for_the_plan(clients, needed):
    cohort = fg.Cohort(min_survivors=needed)
    for options in ({"plan": make_plan(cohort=cohort)}, {"cohort": cohort}):
        with pytest.raises(fg.PlanError, match=f"the plan needs {needed} clients and 3 took part"):
            fg.evaluate(clients, **options)


@pytest.mark.parametrize("tree", [(4096,), (64, 64), (16, 16, 16), (2,) * 12])
def test_tree_changes_the_plan_and_no_number(clients, result, tree):
    found = fg.evaluate(clients, tree=tree)
    assert found.plan.tree == tree
    flat = fg.evaluate(clients, axis=fg.Axis.uniform(4096))
    assert found.record.slices == flat.record.slices
    for name in ("auto", "flat"):
        assert fg.evaluate(clients, tree=name).record == result.record


@pytest.mark.parametrize("tree", [(), (0,), (-4096, -1), (2.5,), "deep", (16, 16), (4096, 2)])
def test_trees_that_are_none_or_do_not_fit_the_axis(clients, tree):
    axis = fg.Axis.uniform(4096) if tree in ((16, 16), (4096, 2)) else "auto"
    refused(fg.PlanError, "tree", fg.evaluate, clients, axis=axis, tree=tree)


def test_a_tree_sets_the_bins_of_the_automatic_axis_and_no_other_name_does(clients):
    assert fg.evaluate(clients, tree=(16, 16)).plan.axis == fg.Axis.uniform(256)
    with pytest.raises(
        fg.PlanError, match="axis must be 'auto', 'two-round', an Axis or a TwoRound, got 'logit'"
    ):
        fg.evaluate(clients, axis="logit")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"privacy": fg.DistributedDP(1.0)},
        {"privacy": fg.DistributedDP(1.0), "tree": (3, 5)},
        {"privacy": fg.DistributedDP(1.0), "examples": 60, "tree": (8,)},
        {"privacy": fg.LocalDP(5.0), "examples": 60},
        {"privacy": fg.DistributedDP(1.0), "models": ["new", "old"]},
        {"privacy": fg.DistributedDP(1.0), "models": ["new", "old"], "examples": 60},
        {"privacy": fg.DistributedDP(1.0), "groups": ["F", "M"]},
    ],
    ids=str,
)
def test_one_half_and_named_thresholds_are_edges_of_the_automatic_axis(clients, options):
    scores = {
        name: {"new": s, "old": s} if "models" in options else s for name, (_, s) in clients.items()
    }
    grouped = "groups" in options
    rows = {
        name: fg.Examples(y, scores[name], group=["F"] * len(y) if grouped else None)
        for name, (y, _) in clients.items()
    }
    for at, edges in ((None, {0.5}), (0.3, {0.3, 0.5}), ([0.9, 0.12], {0.12, 0.5, 0.9})):
        assert edges <= {*fg.evaluate(rows, at=at, **options).plan.axis.edges}


@pytest.mark.parametrize("axis", ["two-round", fg.Axis.uniform(64)])
def test_thresholds_are_for_the_automatic_axis(clients, axis):
    refused(
        fg.PlanError,
        "at= makes edges of the automatic axis",
        fg.evaluate,
        clients,
        axis=axis,
        at=0.3,
    )
    refused(fg.PlanError, "a threshold lies between", fg.evaluate, clients, at=1.5)


def test_privacy_statement_and_verdict_and_what_is_public_by_default(result):
    assert result.plan.cohort == fg.Cohort(min_survivors=3, max_colluding=1)
    assert result.plan.axis == fg.Axis.probabilities()
    assert result.plan.tree == (4178,)
    other = {name: (labels, scores**4) for name, (labels, scores) in make_clients(9).items()}
    assert fg.evaluate(other).plan == result.plan
    privacy = result.privacy
    assert privacy.model == "secure-aggregation"
    assert privacy.claim == "simulated"
    assert privacy.cohort == result.plan.cohort
    assert privacy.public_inputs == ()
    assert (privacy.epsilon, privacy.delta) == (None, None)
    assert (privacy.unit, privacy.neighbours) == (None, None)
    lines = str(result).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("3 clients, 1,440 examples, ")
    assert f"{result.roc_auc.value:.4f}" in lines[1]
    assert "simulated" in lines[3]


def test_what_is_no_way_to_sum_or_no_plan_is_refused():
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(4), fg.Cohort(1, 0))
    with pytest.raises(fg.PlanError, match="plain, every-share, secure, got 'sum'"):
        simulate({"a": ([0, 1], [0.2, 0.7])}, plan, summation="sum")
    with pytest.raises(fg.PlanError, match="plan must be an EvaluationPlan, got NoneType"):
        simulate({"a": ([0, 1], [0.2, 0.7])}, None)


def test_the_number_of_pairs_counts_not_the_length_of_what_holds_them():
    class Odd:
        def __len__(self):
            return 9

        def __iter__(self):
            return iter([("a", ([0, 1], [0.2, 0.7])), ("b", ([0, 1], [0.2, 0.7]))])

    assert fg.evaluate(Odd()).plan.cohort == fg.Cohort(2)


def test_a_table_is_not_summed_securely(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("site,y,p\na,0,0.2\nb,1,0.7\n")
    table = fg.ScoreTable([path], client="site", label="y", score="p")
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(4), fg.Cohort(2))
    with pytest.raises(fg.InputError, match="each client's data on its own"):
        simulate(table, plan, summation="secure")
