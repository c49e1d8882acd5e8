"""Files of many sites as they come, by one file of settings, beside the same rows clean."""

import json

import numpy as np
import pytest
from messy import SETTINGS, clean_rows, write_messy
from sklearn.metrics import average_precision_score, precision_score, recall_score, roc_auc_score
from typer.testing import CliRunner

import fedgauge as fg
from fedgauge.cli import app

STEPS = ",".join(f"{step / 100:g}" for step in range(101))


@pytest.fixture
def settings(tmp_path):
    return write_messy(tmp_path)


def run(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def told(settings, text, *arguments):
    """The one line in which the settings are refused."""
    settings.write_text(text)
    result = run("--clients", settings, *arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def test_five_messy_files_in_one_command_equal_scikit_learn_on_clean_rows(settings):
    saved = settings.with_name("r.json")
    options = ("--values", STEPS, "--json", saved)
    result = run("--clients", settings, *options)
    assert result.exit_code == 0, result.output
    assert "centre.csv: 2 rows without a label or a score were left out" in result.stderr
    clean = clean_rows()
    labels, scores = (np.concatenate(each) for each in zip(*clean.values(), strict=True))
    found = fg.Evaluation.from_json(saved)
    assert found.clients == 5
    assert found.examples == len(labels)
    assert float(found.roc_auc) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert float(found.average_precision) == pytest.approx(
        average_precision_score(labels, scores), abs=1e-12
    )
    at = found.at_threshold(0.5)
    assert float(at.recall) == pytest.approx(recall_score(labels, scores >= 0.5), abs=1e-12)
    assert float(at.precision) == pytest.approx(precision_score(labels, scores >= 0.5), abs=1e-12)
    steps = fg.Axis.from_values([step / 100 for step in range(101)])
    assert found.record.slices == fg.evaluate(clean, axis=steps).record.slices
    assert "2" not in {str(value) for value in json.loads(saved.read_text())["privacy"].values()}


def test_a_plan_says_what_is_measured_and_settings_where(settings):
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(8, outside="clip"), fg.Cohort(5, 1))
    plan.save(settings.with_name("plan.toml"))
    result = run("--clients", settings, "--plan", settings.with_name("plan.toml"))
    assert result.exit_code == 0, result.output
    assert "5 clients, 1,400 examples" in result.output


def test_groups_models_and_classes_have_columns_of_their_own(tmp_path):
    (tmp_path / "a.csv").write_text("y,new,old,sex\n0,0.1,0.2,w\n1,0.8,0.6,m\n")
    (tmp_path / "b.csv").write_text("y;n;o;gender\n1;70%;0.2; m\n0;0.8;0.6;w\n")
    path = tmp_path / "clients.toml"
    path.write_text(
        '[a]\npath = "a.csv"\nlabel = "y"\nmodels = {new = ["new"], old = ["old"]}\n'
        '[b]\npath = "b.csv"\nlabel = "y"\nmodels = {new = ["n"], old = ["o"]}\nseparator = ";"\n'
        'groups = {sex = "gender"}\n'
    )
    saved = tmp_path / "r.json"
    result = run("--clients", path, "--group", "sex=w,m", "--json", saved)
    assert result.exit_code == 0, result.output
    part = fg.Evaluation.from_json(saved).select(model="new", group="m")
    assert (part.negatives, part.positives) == (0, 2)
    result = run("--clients", path, "--group", "sex=x,z")
    assert result.exit_code == 2
    assert "Column 'sex' has 'm', 'w'" in result.stderr.replace("' m', ", "")
    path.write_text(
        '[a]\npath = "a.csv"\nlabel = "sex"\nclasses = {w = "new", m = "old"}\n'
        '[b]\npath = "b.csv"\nlabel = "gender"\nclasses = {m = "o", w = "n"}\nseparator = ";"\n'
    )
    result = run("--clients", path)
    assert result.exit_code == 0, result.output
    assert "2 clients, 4 examples" in result.output


def test_each_client_has_its_own_word_for_the_positive_class(tmp_path):
    (tmp_path / "a.csv").write_text("y,p\nja,0.9\nnein ,0.1\n ja,0.8\n")
    (tmp_path / "b.csv").write_text("y,p\n1,0.9\n0,0.1\n")
    path = tmp_path / "clients.toml"
    tables = '[a]\npath = "a.csv"\nlabel = "y"\nscore = "p"\npositive = "ja"\n'
    path.write_text(tables + '[b]\npath = "b.csv"\nlabel = "y"\nscore = "p"\n')
    result = run("--clients", path)
    assert "2 clients, 5 examples, 60.0% positive" in result.output
    assert "no row" not in result.stderr
    path.write_text(tables.replace('"ja"', '"Ja"'))
    told = run("--clients", path).stderr
    assert "client 'a': no row at its beginning has the label 'Ja', but 'ja', 'nein'." in told


def test_settings_that_do_not_fit(settings):
    north = SETTINGS.split("\n\n")[0]
    assert "names no client" in told(settings, "")
    assert "Each client has a table, such as path" in told(settings, "a = [")
    assert "unknown field `file`" in told(settings, '[a]\nfile = "north.csv"\nlabel = "y"\n')
    assert "Did you mean 'risk'" in told(settings, north.replace('"risk"', '"RISK"'))
    assert "leave out --score" in told(settings, north, "--score", "p")
    assert "Leave out" in told(settings, north, settings.with_name("north.csv"))
    twice = f"{north}\n{north.replace('[north]', '[again]')}\n"
    assert "given twice" in told(settings, twice)
    assert "there is no such file" in told(settings, north.replace("north.csv", "gone.csv"))
    both = told(settings, SETTINGS.split("\n\n")[1], "--positive", "ja")
    assert "leave out --positive" in both
    assert run("--clients", settings.with_name("none.toml")).exit_code == 2
