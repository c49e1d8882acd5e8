"""The demo: generated hospitals, one pooled answer, and how wrong the average is."""

import numpy as np
import pytest
from matplotlib.image import imread
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge import demo
from fedgauge.plots.figures import NAMES


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return demo.run(tmp_path_factory.mktemp("demo") / "new" / "folder")


@pytest.fixture(scope="module")
def hospitals():
    # The seeds that the demo uses.
    return [demo.generate(h, 7 + i) for i, h in enumerate(demo.HOSPITALS)]


def test_numbers_are_those_of_the_pooled_data_and_the_mean_of_hospitals_is_far_off(
    found, hospitals
):
    labels, scores = (np.concatenate(column) for column in zip(*hospitals, strict=True))
    assert found.exact_auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    low, high = found.result.average_precision.bounds
    assert low <= average_precision_score(labels, scores) <= high
    mean = np.mean([roc_auc_score(*data) for data in hospitals])
    assert found.mean_client_auc == pytest.approx(mean, abs=1e-12)
    assert found.mean_client_auc - found.exact_auc > 0.1
    low, high = found.result.roc_auc.bounds
    assert low <= found.exact_auc <= high
    assert high - low < 1e-3
    assert found.result.roc_auc.value == pytest.approx(found.exact_auc, abs=1e-4)
    assert 0 < found.roc_area_error < 5e-4
    assert 0 < found.pr_area_error < 1e-3
    assert found.result.clients == len(demo.HOSPITALS) == 5
    assert found.result.positives == labels.sum()
    assert found.result.examples == sum(h.patients for h in demo.HOSPITALS)


def test_files_are_complete_and_the_same_again(found):
    names = {path.name for path in found.files}
    assert names == {*NAMES, "result.json"}
    by_name = {path.name: path for path in found.files}
    loaded = fg.Evaluation.from_json(by_name["result.json"])
    assert loaded.record == found.result.record
    for name in NAMES:
        colours = imread(by_name[name])[..., :3] @ [1, 256, 65536]
        assert len(np.unique(colours)) > 20
    before = [path.read_bytes() for path in found.files]
    again = demo.run(found.files[0].parent)
    assert again.files == found.files
    assert [path.read_bytes() for path in again.files] == before
    assert again.mean_client_auc == found.mean_client_auc


def test_pictures_show_each_hospital_and_start_where_precision_is_known(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: figures.append(figure)
    )
    demo.run(tmp_path)
    for figure in figures[:2]:
        (axes,) = figure.axes
        shown = [text.get_text() for text in axes.get_legend().get_texts()]
        assert shown[:2] == ["each hospital alone", "exact, pooled data"]
        assert len(axes.lines) == len(demo.HOSPITALS) + 3  # pooled, exact, chance
    for line in figures[1].axes[0].lines[:-1]:
        recall, precision = line.get_data()
        assert recall.min() == 0.01
        assert precision[recall < 0.05].min() > 0.3


@pytest.mark.parametrize("hospital", demo.HOSPITALS, ids=lambda hospital: hospital.name)
def test_generated_hospitals_are_as_described(hospital):
    labels, scores = demo.generate(hospital, 1)
    assert len(labels) == len(scores) == hospital.patients
    assert set(np.unique(labels)) == {0, 1}
    # Six standard errors: a false alarm in about 500 million seeds.
    error = np.sqrt(hospital.positive_rate * (1 - hospital.positive_rate) / hospital.patients)
    assert abs(labels.mean() - hospital.positive_rate) < 6 * error
    assert 0 < scores.min() < scores.max() < 1
    log_odds = np.log(scores / (1 - scores))[labels == 0]
    assert abs(log_odds.mean() - (hospital.shift - 2.5)) < 6 / np.sqrt(len(log_odds))


def test_files_to_try_commands_on(tmp_path):
    written = demo.write_files(tmp_path / "new")
    names = {path.name for path in written}
    weeks = {f"{site}-week-{week}.csv" for site in "abc" for week in (1, 2)}
    sites = {f"{name}.csv" for site in "abc" for name in (site, f"site-{site}")}
    shops = {"platform.csv", *(f"shop-{number}.csv" for number in range(1, 5))}
    assert names == {
        *(*weeks, *sites, *shops, *(f"clinic-{site}.csv" for site in "abc")),
        *("phone-a.csv", "phone-b.csv", "scores.parquet"),
    }
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
    by_name = {path.name: path for path in written}
    grown = by_name["a-week-2.csv"].read_text()
    assert grown.startswith(by_name["a-week-1.csv"].read_text())
    assert grown.count("\n") - by_name["a-week-1.csv"].read_text().count("\n") == 100
    assert sum(path.stat().st_size for path in written) < 1_000_000
    pooled = fg.evaluate(
        fg.ScoreTable([by_name["scores.parquet"]], client="site", label="y", score="p")
    )
    clients = {s: fg.ScoreFile(by_name[f"site-{s}.csv"], label="y", score="p") for s in "abc"}
    assert pooled.record.slices == fg.evaluate(clients).record.slices


def test_files_are_the_same_again_and_left_alone(tmp_path):
    written = demo.write_files(tmp_path)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in written}
    (tmp_path / "b.csv").unlink()
    assert demo.write_files(tmp_path) == written
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in written}
    assert {path.name for path in written if before[path][1] != after[path][1]} == {"b.csv"}
    assert all(before[path][0] == after[path][0] for path in written)


def test_somebodys_own_files_and_folders_are_left_alone(tmp_path):
    for name in ("b.csv", "scores.parquet"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / name
        path.write_text("y,p\n1,0.5\n")
        with pytest.raises(fg.RecordError, match=rf"{name} exists and holds something else"):
            demo.write_files(path.parent)
        assert list(path.parent.iterdir()) == [path]
        assert path.read_text() == "y,p\n1,0.5\n"
        for below in (".", "deeper"):
            with pytest.raises(fg.RecordError, match=r"cannot make folder .*b\.csv"):
                demo.run(tmp_path / "b.csv" / "b.csv" / below)
