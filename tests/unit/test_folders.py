"""Folders of files, in partitions or not, read like one file."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from plans import noisy_plan

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently

TABLE = {"label": "y", "score": "p"}


def fill(folder, where, *, seed, rows=1000, ending="parquet"):
    rng = np.random.default_rng(seed)
    scores = rng.random(rows)
    table = pa.table({"y": (rng.random(rows) < scores).astype(int), "p": scores})
    path = folder / where / f"part-{seed}.{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if ending == "csv":
        pa.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return table["y"].to_numpy(), scores


@pytest.fixture
def lake(tmp_path):
    """Rows of three clients by year and site; what they are, by client."""
    rows = {}
    for seed, (year, site) in enumerate(
        [(2024, "01"), (2025, "01"), (2024, "b c"), (2025, "x%2Fy"), (2025, "x%2Fy")]
    ):
        made = fill(
            tmp_path, f"year={year}/site={site}", seed=seed, ending=["parquet", "csv"][seed % 2]
        )
        rows.setdefault(site.replace("%2F", "/"), []).append(made)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "year=2024" / ".part.crc").write_text("no data")
    return tmp_path, {
        site: tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        for site, parts in rows.items()
    }


def test_a_partition_tells_clients_apart(lake):
    folder, rows = lake
    table = fg.ScoreTable(folder, client="site", **TABLE)
    assert fg.evaluate(table).record == fg.evaluate(rows).record
    owners = {name for names, _ in table.batches() for name in names.to_pylist()}
    assert owners == {"01", "b c", "x/y"}  # as text: 01 is no number


def test_a_folder_is_the_data_of_one_client(lake):
    folder, rows = lake
    whole = tuple(np.concatenate(column) for column in zip(*rows.values(), strict=True))
    table = fg.ScoreTable(folder, **TABLE)
    assert fg.evaluate({"all": table}).record == fg.evaluate({"all": whole}).record
    plan = noisy_plan(bins=8)
    counted, oddities = count_leniently(plan, lambda: table)
    assert counted == count_leniently(plan, lambda: whole)[0]
    assert oddities.rows == 5000
    table.check()


def test_groups_and_labels_may_be_partitions(tmp_path):
    for label in (0, 1):
        for sex in ("f", "m"):
            fill(tmp_path, f"outcome={label}/sex={sex}", seed=label)
    table = fg.ScoreTable(tmp_path, label="outcome", score="p", group={"sex": "sex"})
    result = fg.evaluate({"all": table}, groups={"sex": ["f", "m"]})
    assert (result.positives, result.negatives) == (2000, 2000)
    assert result.slices[1].positives == 1000


def test_what_is_wrong_with_a_folder_is_said_with_its_file(tmp_path):
    def refused(**options):
        with pytest.raises(fg.InputError) as caught:
            fg.evaluate(fg.ScoreTable(tmp_path, **{"client": "site", **TABLE, **options}))
        return str(caught.value)

    assert "there are no files" in refused()
    fill(tmp_path, "site=a", seed=0)
    assert "part-0.parquet: there is no column 'q'" in refused(score="q")
    (tmp_path / "README.md").write_text("What this is.")
    assert "README.md: cannot tell the format" in refused()
    (tmp_path / "README.md").unlink()
    fill(tmp_path, "site=__HIVE_DEFAULT_PARTITION__", seed=1)
    assert "names no client" in refused()


def test_lenient_reading_of_a_folder_refuses_no_row(tmp_path):
    fill(tmp_path, "site=a", seed=0, rows=10, ending="csv")
    odd = "y,p\n1,0.5\nmaybe,0.123456\n0,high\n1\n,\n"
    (tmp_path / "site=a" / "odd.csv").write_text(odd)
    _, oddities = count_leniently(noisy_plan(bins=8), lambda: fg.ScoreTable(tmp_path, **TABLE))
    assert (oddities.rows, oddities.malformed, oddities.failure) == (14, 1, "")
