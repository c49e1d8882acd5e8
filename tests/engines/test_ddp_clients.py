"""Units, caps and many small clients under distributed differential privacy."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from counts import counts_of
from ddp import POLYA, ROWS, clipping, exact_counts

import fedgauge as fg
from noise import without_noise

pytestmark = pytest.mark.usefixtures("few_redraws")


@pytest.fixture
def exact(monkeypatch):
    """Noise comes out as none, so that what was counted shows."""
    without_noise(monkeypatch)


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
    found = fg.evaluate(rows, privacy=privacy, axis=fg.Axis.uniform(64, outside="clip"))
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
    np.testing.assert_array_equal(together.released.counts, alone.released.counts)
    assert together.clients == alone.clients == len(parts)
    if privacy != POLYA:
        np.testing.assert_array_equal(together.released.counts, exact_counts(clipping(32)))


@pytest.mark.parametrize("kind", LABELS.values(), ids=LABELS.keys())
def test_small_clients_of_one_kind_of_label(kind):
    labels, scores = (column[:200] for column in ROWS)
    clients = {f"s{i}": (kind(labels[i : i + 1]), scores[i : i + 1]) for i in range(200)}
    found = fg.evaluate(clients, axis=clipping(32))
    np.testing.assert_array_equal(found.released.counts, exact_counts(clipping(32), labels, scores))


def test_small_clients_may_differ_in_names_and_kinds_of_labels():
    clients = {
        "a": (np.array(["yes", "no"], object), [0.9, 0.1]),
        "b": (np.array(["yes", "nein"], object), [0.9, 0.1]),
    }
    found = fg.evaluate(clients, axis=clipping(2), positive="yes")
    np.testing.assert_array_equal(found.released.counts, [[2, 0], [0, 2]])
    # As floats both whole numbers would be one: 2^53 + 1 has no float of its own.
    large = 2**53
    clients = {
        "a": (np.array([large + 1, large]), [0.9, 0.1]),
        "b": (np.array([float(large)]), [0.1]),
    }
    found = fg.evaluate(clients, axis=clipping(2), positive=large + 1)
    np.testing.assert_array_equal(found.released.counts, [[2, 0], [0, 1]])


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
    np.testing.assert_array_equal(found.released.counts, exact_counts(clipping(32)))


EVERY_NOISE = [
    POLYA,
    fg.DistributedDP(4.0, delta=1e-5, noise="skellam"),
    fg.DistributedDP(4.0, delta=1e-5, noise="discrete-gaussian"),
]


@pytest.mark.parametrize("privacy", EVERY_NOISE, ids=lambda privacy: privacy.noise)
def test_a_generator_or_a_table_of_few_clients_is_as_good_as_a_mapping(privacy, tmp_path):
    labels, scores = ROWS
    parts = np.array_split(np.arange(len(labels)), 3)
    clients = {f"s{i}": (labels[rows], scores[rows]) for i, rows in enumerate(parts)}
    owners = np.repeat(list(clients), [len(rows) for rows in parts])
    path = tmp_path / "all.parquet"
    pq.write_table(pa.table({"site": owners, "y": labels, "p": scores}), path)
    table = fg.ScoreTable([path], client="site", label="y", score="p")
    options = {"privacy": privacy, "tree": (8,), "seed": 5}
    wanted = fg.evaluate(clients, **options).record
    assert wanted.plan.cohort == fg.Cohort(3)
    assert fg.evaluate(iter(clients.items()), **options).record == wanted
    assert fg.evaluate(table, **options).record == wanted
