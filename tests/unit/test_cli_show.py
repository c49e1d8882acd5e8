"""Commands that print results: thresholds asked for, saved results, wrong requests."""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import commands
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import complaint
from consortium import COORDINATOR, NAMES, A
from exchange import EXACT, make_world
from sklearn.metrics import precision_score, recall_score
from typer.testing import CliRunner

import fedgauge as fg
from fedgauge.cli import app
from fedgauge.histograms.calibrator import Calibrator, Fitted, Steps
from fedgauge.keys import key_to_text
from fedgauge.site import create_site

run, worked = (partial(each, columns=80) for each in (commands.run, commands.worked))

RNG = np.random.default_rng(3)
LABELS = (RNG.random(2000) < 0.3).astype(int)
SCORES = np.clip(RNG.normal(0.35 + 0.3 * LABELS, 0.15), 0, 1)
STEPS = Calibrator("binning", Steps([0.5], [0.2, 0.7]))
SCORES_FILE = ["scores.parquet", "--client", "site", "--label", "y", "--score", "p"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sites = [f"s{i % 3}" for i in range(len(LABELS))]
    pq.write_table(pa.table({"y": LABELS, "p": SCORES, "site": sites}), "scores.parquet")
    return tmp_path


@pytest.fixture
def saved(folder):
    assert run("evaluate", *SCORES_FILE, "--json", "r.json").exit_code == 0
    return folder / "r.json"


def row(text, title):
    (line,) = [line for line in text.splitlines() if line.startswith(f"{title}  ")]
    return line.removeprefix(title).strip()


def test_metrics_at_thresholds_are_shown_as_asked_for():
    printed = run("evaluate", *SCORES_FILE, "--at", 0.5).stdout
    flagged = SCORES >= 0.5
    assert row(printed, "precision").startswith(f"{precision_score(LABELS, flagged):.4f}  ")
    assert row(printed, "recall").startswith(f"{recall_score(LABELS, flagged):.4f}  ")
    assert row(printed, "true positives") == str(int((flagged & (LABELS == 1)).sum()))
    assert "95% interval" in printed
    wanted = ["--at-fpr", 0.05, "--at-recall", 0.9, "--at-precision", 0.8, "--at", 0.25]
    printed = run("evaluate", *SCORES_FILE, *wanted).stdout
    for reason in ("fpr <= 0.05", "recall >= 0.9", "precision >= 0.8", "at 0.25"):
        assert reason in printed
    assert max(map(len, printed.split("\n\n", 1)[1].splitlines())) <= 80
    assert printed.count("specificity") == 2


def test_show_gives_what_evaluate_gave_with_counts_apart(saved):
    first = run("evaluate", *SCORES_FILE, "--at", 0.5).stdout
    again = run("show", saved, "--at", 0.5).stdout
    verdict, table = first.split("\n\n", 1)
    assert again.startswith(verdict)
    assert table.strip() in again
    for title in ("ROC AUC", "log loss", "Brier score", "KS distance", "PR-gain area"):
        assert re.search(rf"^{title}\s+\d\.\d{{4}}\s+\d\.\d{{4}} to \d\.\d{{4}}", again, re.M)
    printed = run("show", saved, "--at", 0.5).stdout
    assert re.search(r"^value and 95% interval", printed, re.M)
    assert re.search(r"^count *$", printed, re.M)
    assert re.fullmatch(r"[\d,]+", row(printed, "true positives"))
    between = run("show", saved, "--at", 0.50001).stdout
    assert re.search(r"^count, pooled data *$", between, re.M)
    noise = ["--privacy", "ddp", "--epsilon", 5, "--seed", 1, "--at", 0.5, "--level", 0.9]
    noisy = run("evaluate", *SCORES_FILE, *noise).stdout
    assert re.search(r"^count, pooled data at 90% *$", noisy, re.M)
    assert re.fullmatch(r"[\d,]+  [\d,]+ to [\d,]+", row(noisy, "true positives"))


def test_level_narrows_the_intervals_and_is_saved_with_the_result(saved, folder):
    auc = fg.Evaluation.from_json(saved).at_level(0.8).roc_auc
    printed = run("show", saved, "--level", 0.8).stdout
    assert f"({auc.low:.4f} to {auc.high:.4f} at 80%)" in printed
    assert "population, 80%" in printed
    run("evaluate", *SCORES_FILE, "--level", 0.9, "--json", "r.json")
    assert (
        json.loads((folder / "r.json").read_text())["slices"][0]["metrics"]["roc_auc"]["level"]
        == 0.9
    )
    assert "at 90%" in run("show", "r.json").stdout


def test_show_saves_plots_that_name_the_model(saved, folder, monkeypatch):
    """By the score's column, or by the file."""
    assert run("show", saved, "--plots", "plots", "--quiet").stdout == ""
    assert {path.name for path in (folder / "plots").iterdir()} >= {"roc.png", "decision.png"}
    names = []

    def look(figure, *_, **__):
        names.append(figure.axes[0].get_legend().get_texts()[0].get_text().split(" (")[0])

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", look)
    run("show", saved, "--plots", "p")
    run("evaluate", *SCORES_FILE, "--plots", "p")
    assert names == ["r"] * 4 + ["p"] * 4


def test_undefined_metrics_and_thresholds_between_edges_are_named_as_such(saved):
    printed = run("show", saved, "--at", "inf").stdout
    assert row(printed, "precision") == "undefined"
    assert row(printed, "recall").startswith("0.0000")
    coarse = [*SCORES_FILE, "--bins", 10]
    assert "lies inside a bin" in run("evaluate", *coarse, "--at", 0.55).stdout
    assert "lies inside a bin" not in run("evaluate", *coarse, "--at", 0.5).stdout
    table = pa.table({"y": LABELS, "p": SCORES * 10 - 5, "site": ["a"] * len(LABELS)})
    pq.write_table(table, "scores.parquet")
    run("evaluate", *SCORES_FILE, "--range", -5, 5, "--json", "r.json")
    printed = run("show", "r.json").stdout
    assert row(printed, "log loss") == "undefined"  # of no probabilities
    auc = fg.evaluate({"a": (LABELS, SCORES)}).roc_auc.value
    assert row(printed, "KS distance").startswith("0.")
    assert re.search(rf"^ROC AUC +{auc:.4f} ", printed, re.M)


@pytest.mark.usefixtures("saved")
def test_wrong_requests_are_told_in_one_line():
    outside = "--at 7 lies outside the axis of this result"
    for options, code, remedy in (
        ("nothing.json", 2, "cannot read"),
        ("r.json --at nan", 2, "must be a number"),
        ("r.json --at 7", 2, outside),
        ("r.json --at -0.1", 2, "Name a threshold within it"),
        ("r.json --at-fpr 2", 2, "between 0 and 1"),
        ("r.json --level 95", 2, "such as 0.95"),
        ("scores.parquet", 1, "not a fedgauge result"),
        ("r.json --calibrator r.json", 2, "this is a result, not a map"),
    ):
        assert remedy in complaint(run("show", *options.split()), code)


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("sites"), NAMES[:3], EXACT)
    world.start(world.run, EXACT)
    world.finish()
    return world


@pytest.fixture
def result_file(signed, folder):
    return Path(shutil.copy(signed.run / "result.json", folder / "result.json"))


def edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))


@pytest.mark.parametrize("name", [COORDINATOR, A])
def test_verify_by_a_site_file(signed, result_file, name):
    told = worked("verify", result_file, "--site", signed.site_file(name))
    assert told.stdout.splitlines() == [
        "verified: signed by consortium, confirmed by 3 of 3 sites",
        f"sites    {', '.join(NAMES[:3])}",
        f"key      {key_to_text(signed.keys[COORDINATOR])}",
        f"plan     {EXACT.digest}",
        "numbers  read by Aligned(interpolation='pchip', shrink=True) at level 0.95; the signature "
        "is under the counts",
    ]
    assert run("verify", result_file, "--site", signed.site_file(name), "-q").stdout == ""


def test_another_estimator_is_named(signed, result_file, tmp_path):
    """It is not signed: who reads the counts in another way gets other numbers."""
    result, other = fg.Evaluation.from_json(result_file), tmp_path / "other.json"
    result.with_estimator(fg.Quantile(2)).to_json(other)
    site = ["--site", signed.site_file(A)]
    assert "read by" not in run("show", result_file, *site).stdout
    assert "\nread by            Quantile(quantiles=2" in run("show", other).stdout
    assert "read by Quantile(quantiles=2" in run("verify", other, *site).stdout


def test_a_map_is_named_and_no_signature_is_under_it(signed, result_file, tmp_path):
    result = fg.Evaluation.from_json(result_file).with_calibrator(STEPS)
    result.to_json(tmp_path / "mapped.json")
    site = ["--site", signed.site_file(A)]
    told = run("show", tmp_path / "mapped.json", *site).stdout
    through = "binning (2 steps), which no signature covers"
    assert f"\nmapped by          {through}\n" in told
    assert "\nsignature          verified: " in told
    told = run("verify", tmp_path / "mapped.json", *site).stdout
    mapped = f"at level 0.95, of scores mapped by {through}; the signature is under the"
    assert mapped in " ".join(told.split())
    quietly = run("verify", tmp_path / "mapped.json", *site, "-q")
    assert (quietly.exit_code, quietly.stdout) == (0, "")
    assert through in " ".join(quietly.stderr.split())


def test_show_judges_a_map_and_says_when_it_flatters_itself(saved, folder):
    STEPS.to_json("map.json")
    labels, scores = LABELS, STEPS.transform(SCORES)
    told = run("show", saved, "--calibrator", "map.json", "--at", 0.7, "--at", 0.95).stdout
    assert "\nmapped by          binning (2 steps)\n" in told
    found = float(row(told, "Brier score").split()[0])
    assert found == pytest.approx(np.mean((scores - labels) ** 2), abs=6e-5)
    flagged = scores >= 0.7
    assert row(told, "recall").startswith(f"{recall_score(labels, flagged):.4f}  ")
    assert row(told, "share flagged").endswith("0.0000  0.0000 to 0.0019")  # none from 0.95 up
    worked("show", saved, "--calibrator", "map.json", "--plots", "pictures")
    assert len(list((folder / "pictures").iterdir())) == 4
    digest = fg.Evaluation.from_json(saved).released.digest
    Calibrator("binning", STEPS.form, Fitted(2000, 600, "", source=digest)).to_json("map.json")
    told = " ".join(run("show", saved, "--calibrator", "map.json").stdout.split())
    assert "in-sample: it was fitted on these same counts" in told


def test_verify_by_a_key_and_by_a_site_file_that_does_not_name_all(signed, result_file, folder):
    key, other = key_to_text(signed.keys[COORDINATOR]), key_to_text(signed.keys[A])
    told = worked("verify", result_file, "--key", other, "--key", key)
    assert told.stdout.startswith(f"verified: signed by {key}, confirmed by 3 of 3 sites\n")
    mine = create_site(folder / "mine", name="mine", dataset="none")
    trust = '\n[[{}]]\nname = "{}"\nkey = "{}"\n'
    known = [("coordinators", "boss", COORDINATOR), ("peers", "first", A)]
    blocks = [trust.format(kind, name, key_to_text(signed.keys[of])) for kind, name, of in known]
    mine.path.write_text(mine.path.read_text() + "".join(blocks))
    told = run("verify", result_file, "--site", mine.path).stdout
    assert "signed by boss" in told
    assert "sites    first, 2 that site.toml does not name\n" in told


UNKNOWN = key_to_text(bytes(range(32)))


@pytest.mark.parametrize(
    ("edits", "options", "code", "meaning", "remedy"),
    [
        ({"clients": 4}, [], 1, "is BROKEN: it was changed after", "Get the file again"),
        ({"proof": 3}, [], 1, "is BROKEN: its proof cannot", "Get the file again"),
        ({"proof": None}, [], 1, "is not signed: anybody can", "from its coordinator"),
        ({}, [], 1, "is signed by ed25519:", "(--site), or the coordinator's key (--key)"),
        ({}, ["--key", UNKNOWN], 1, "none of the keys that you know", "Ask the coordinator"),
        ({}, ["--key", "ed25519:short"], 2, "a public key is", "`fedgauge site show`"),
        ({}, ["--site", "no.toml"], 2, "there is no site file", "Name yours with --site"),
        ({"format": "x"}, [], 1, "has format 'x'", "reads"),
    ],
)
def test_what_is_not_verified(result_file, edits, options, code, meaning, remedy):
    edit(result_file, **edits)
    told = complaint(run("verify", result_file, *options), code)
    assert meaning in told
    assert remedy in told


@pytest.mark.usefixtures("saved")
def test_verify_names_the_file():
    named = "Name the JSON file"
    for name, meaning, code in (
        ("missing.json", f"cannot read missing.json: there is no such file. {named}", 2),
        (".", f"cannot read .: it is a folder. {named}", 2),
        ("scores.parquet", "scores.parquet: this is not a fedgauge result", 1),
        ("r.json", "r.json is simulated: no sites took part", 1),
    ):
        assert meaning in complaint(run("verify", name), code)


def test_show_says_who_signed(signed, result_file, saved):
    def line(path, *options):
        (told,) = re.findall(r"^signature +(.*)$", run("show", path, *options).stdout, re.M)
        return told

    key = key_to_text(signed.keys[COORDINATOR])
    site = ["--site", signed.site_file(A)]
    assert line(saved) == "unsigned: simulated"
    assert (
        line(result_file)
        == f"signed by an unknown key: {key}, not checked; confirmed by 3 of 3 sites"
    )
    for options in (site, [*site, "--level", 0.8]):
        verified = "verified: signed by consortium, confirmed by 3 of 3 sites"
        assert line(result_file, *options) == verified
    stranger = line(result_file, "--key", UNKNOWN)
    assert stranger.startswith(f"signed by an unknown key: {key}, not one that was named")
    edit(result_file, clients=4)
    assert line(result_file, *site) == "BROKEN: it was changed after it was signed"


def test_plots_say_who_signed(signed, result_file, saved, monkeypatch):
    feet = []

    def look(figure, *_, **__):
        (foot,) = [text for text in figure.texts if text.get_text()]
        feet.append((foot.get_text(), foot.get_color()))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", look)
    calm, alarm = "#666666", "#b00020"
    run("show", saved, "--plots", "p")
    run("show", result_file, "--plots", "p", "--site", signed.site_file(A))
    run("show", result_file, "--plots", "p")
    edit(result_file, clients=4)
    run("show", result_file, "--plots", "p")
    edit(result_file, proof=None)
    run("show", result_file, "--plots", "p")
    key = key_to_text(signed.keys[COORDINATOR])
    assert (
        feet[::4]
        == feet[1::4]
        == feet[3::4]
        == [
            ("simulated", calm),
            ("verified: signed by consortium", calm),
            (f"signed by {key[:16]}..., key not checked", calm),
            ("BROKEN: it was changed after it was signed", alarm),
            ("unsigned", calm),
        ]
    )


def test_a_precision_out_of_reach_names_the_highest():
    noise = pa.table({"y": LABELS, "p": RNG.random(len(LABELS)), "site": ["a"] * len(LABELS)})
    pq.write_table(noise, "scores.parquet")
    result = run("evaluate", *SCORES_FILE, "--bins", 4, "--at-precision", 0.99)
    assert result.exit_code == 2
    assert "the highest at a bin edge is 0.3" in result.stderr


def shown(*arguments):
    result = CliRunner().invoke(app, ["show", *map(str, arguments)], env={"COLUMNS": "80"})
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def scored(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.2).astype(int)
    odds = 1.5 * rng.normal(1.5 * labels) - 1.125
    return labels, 1 / (1 + np.exp(-odds - np.log(0.25)))


@pytest.fixture(scope="module")
def result():
    return fg.evaluate({"a": scored(seed=1), "b": scored(seed=2)})


@pytest.fixture
def saved_reliability(result, tmp_path):
    result.to_json(tmp_path / "r.json")
    return tmp_path / "r.json"


def rows_below(text, header):
    lines = text[text.index(header) :].splitlines()[1:]
    rows = []
    for line in lines:
        numbers = re.findall(r"-?[\d,]*\.?\d+", line)
        if not re.fullmatch(r"[-\d,. to]+", line):
            break
        rows.append([float(number.replace(",", "")) for number in numbers])
    return rows


def test_reliability_and_decision_tables(saved_reliability, result):
    text, curve = shown(saved_reliability, "--calibration"), result.calibration_curve()
    rows = rows_below(text, "scores  examples  mean score")
    expected = np.array(
        [curve.lower, curve.upper, curve.count, curve.predicted, curve.observed, curve.low]
    ).T
    np.testing.assert_allclose(np.array(rows)[:, :6], expected, atol=6e-5)
    assert "15 groups of equal width, left-closed, of the bins counted." in text
    p_value = result.hosmer_lemeshow().p_value
    assert f"Hosmer-Lemeshow p = {p_value:.2g}, Spiegelhalter p = " in text
    text, curve = shown(saved_reliability, "--calibration"), result.decision_curve()
    rows = np.array(rows_below(text, "threshold  net benefit"))
    assert 10 <= len(rows) <= 12
    at = np.abs(curve.thresholds[:, np.newaxis] - rows[:, 0]).argmin(axis=0)
    expected = np.array(
        [
            *(curve.thresholds, curve.net_benefit, curve.low, curve.high, curve.treat_all),
            *(curve.advantage, curve.advantage_low, curve.advantage_high),
        ]
    )[:, at].T
    np.testing.assert_allclose(rows, expected, atol=6e-5)
    low = f"{curve.useful[0].low:.3g}"
    assert f"Better than both at 95%, each threshold by itself: {low} to 0." in text
    assert "Treating nobody is worth 0" in text


def test_tables_of_calibration_are_shown_where_asked_for(saved_reliability):
    text = shown(saved_reliability)
    assert "net benefit" not in text
    assert "mean score" not in text
    plain = f"{fg.Evaluation.from_json(saved_reliability).calibration_curve().ece:.4f}"
    assert plain in text.partition("expected calibration error")[2].partition("maximum")[0]
    assert "Errors of calibration are of 15 groups of equal width, left-closed." in text
    assert "Other packages print the plain number" in text
    assert "net benefit" not in shown(saved_reliability, "--calibration", "--quiet")
    assert "population, 80%" in shown(saved_reliability, "--calibration", "--level", 0.8)


def test_no_probabilities_and_a_model_that_is_useful_nowhere_are_said_to_be(tmp_path):
    path, axis = tmp_path / "r.json", fg.Axis.uniform(10, -5, 5)
    fg.evaluate({"a": ([0, 1] * 20, np.linspace(-2, 3, 40))}, axis=axis).to_json(path)
    lines = shown(path, "--calibration").splitlines()
    (line,) = [line for line in lines if "this axis runs" in line]
    assert line.startswith("calibration        undefined: measures of calibration need prob")
    rng = np.random.default_rng(0)
    fg.evaluate({"a": (rng.integers(0, 2, 500), rng.random(500))}).to_json(path)
    assert "each threshold by itself: no threshold." in shown(path, "--calibration")


@pytest.mark.parametrize("privacy", [None, fg.DistributedDP(1.0), fg.LocalDP(4.0)], ids=str)
def test_tables_fit_80_columns(privacy, tmp_path):
    clients = {f"c{i}": scored(seed=i) for i in range(4)}
    options = {} if privacy is None else {"privacy": privacy, "seed": 1}
    fg.evaluate(clients, **options).to_json(tmp_path / "r.json")
    text = shown(tmp_path / "r.json", "--calibration")
    tables = text[text.index("mean score") :].splitlines()
    assert max(map(len, tables)) <= 80
    assert ("about examples" in text) == (privacy is not None)
