"""Pages of the documentation can be followed from an empty folder, by copying their commands."""

import doctest
import re
from pathlib import Path

import pytest

import fedgauge as fg
import fedgauge.storage
from fedgauge import protocol
from fedgauge.data import files as tables
from fedgauge.data import rewriting
from fedgauge.engines import exchange
from fedgauge.histograms import calibrator
from fedgauge.local import messages
from fedgauge.plan import limits
from fedgauge.site import policy
from fedgauge.vertical import files as label_files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def script(page):
    """The commands of a page, in order."""
    return "\n".join(re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL))


def shown(page):
    """What a page says that a command prints."""
    (text,) = re.findall(r"```text\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return text


def follow(page, folder, shell):
    """What became of a page's commands in a folder in which nothing is but what they make."""
    assert not any(folder.iterdir())
    done = shell(script(page), folder, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_page_with_commands_is_followed():
    """Here, or in the test that is named after it."""
    pages = {page.name for page in DOCS.glob("*.md") if script(page)}
    assert pages == {
        "calibration.md",
        "choose-epsilon.md",
        "exchange.md",
        "five-minutes.md",
        "install.md",
        "large-data.md",
        "local.md",
        "officer.md",
        "read-the-report.md",
        "site-file.md",
        "slices.md",
        "two-rounds.md",
        "vertical.md",
    }


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("choose-epsilon.md", "local DP, epsilon 5"),
        ("five-minutes.md", shown(DOCS / "five-minutes.md")),
        ("install.md", "3 clients, 6,000 examples"),
        ("large-data.md", "3 clients, 6,000 examples"),
        ("officer.md", "What leaves each site"),
        ("read-the-report.md", "Open report.html in a browser"),
        ("site-file.md", "no coordinator, so nobody may start an evaluation here"),
        ("slices.md", "group women: 3 clients"),
        ("two-rounds.md", "What leaves each site first"),
    ],
)
def test_a_page_runs_as_written(page, told, tmp_path, shell):
    assert told in follow(DOCS / page, tmp_path, shell)


@pytest.mark.parametrize(
    "page",
    ["choose-epsilon.md", "five-minutes.md", "large-data.md", "shrinkage.md", "two-rounds.md"],
)
def test_examples_print_what_is_shown(page):
    outcome = doctest.testfile(str(DOCS / page), module_relative=False)
    assert outcome.attempted
    assert outcome.failed == 0


def test_calibration_runs_as_written(tmp_path, shell, monkeypatch, capsys):
    """Its commands, then its Python, and it helps on rows that the map was not fitted to."""
    told = follow(DOCS / "calibration.md", tmp_path, shell)
    assert "in-sample: on the rows it was fitted to" in told
    assert "Saved calibrated.csv: 2,000 rows, column 'p_calibrated'" in told
    assert "What scores go through first" in told
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "calibration.md").read_text()
    space = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, space)
    assert space["after"].log_loss.value < space["other"].log_loss.value - 0.05
    assert capsys.readouterr().out.startswith("log loss 0.")


def test_the_file_exchange_runs_as_written(tmp_path, shell):
    told = follow(DOCS / "exchange.md", tmp_path, shell)
    assert "Waiting for the coordinator" in told
    assert "enforced between the sites" in told
    result = fg.Evaluation.from_json(tmp_path / "shared" / "result.json")
    assert result.privacy.claim == "enforced"
    assert told.count("verified: signed by ") == 2
    assert result.clients == 3
    assert abs(result.negatives + result.positives - 6000) < 500
    hashes = re.findall(r"^([0-9a-f]{64})  shared/", told, flags=re.MULTILINE)
    logged = (tmp_path / "left.csv").read_text()
    assert len(hashes) == 5
    assert all(each in logged for each in hashes)
    assert "Approved evaluation" in told
    assert len(list((tmp_path / "second").glob("1-join.*.hospital-a.reply.fgx"))) == 1
    for week, rows in (("week-1", 6000), ("week-2", 6300)):
        exact = fg.Evaluation.from_json(tmp_path / week / "result.json")
        assert exact.privacy.epsilon is None
        assert exact.negatives + exact.positives == rows


def test_the_installation_is_of_this_version_and_names_its_extras():
    text = (DOCS / "install.md").read_text()
    assert set(re.findall(r"fedgauge-([\d.]+)-py3", text)) == {fg.__version__}
    named = {name for some in re.findall(r"\[([a-z,]+)\]'", text) for name in some.split(",")}
    extras = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]\n")[1]
    declared = re.findall(r"^(\w+) = \[", extras.split("\n[project")[0], flags=re.MULTILINE)
    assert named == set(declared)


def test_make_says_where_the_command_is():
    """What it says is in README, too: `make demo` leaves the command off the path."""
    makefile = (ROOT / "Makefile").read_text()
    assert "VENV := .venv\nBIN := $(VENV)/bin\n" in makefile
    told = makefile.split("\ndemo:")[1].split("\n\n")[0]
    assert "$(BIN)/fedgauge;" in told
    assert "'. $(BIN)/activate'" in told
    assert "\n. .venv/bin/activate\n" in (ROOT / "README.md").read_text()


def test_the_page_of_formats_states_the_largest_sizes_that_are_read():
    text = (DOCS / "formats.md").read_text()
    said = dict(re.findall(r"^\| (`.*?) \| (.*(?:MiB|GiB).*) \|$", text, flags=re.MULTILINE))
    sizes = {
        name: [
            int(n) << (30 if unit == "G" else 20) for n, unit in re.findall(r"(\d+) (M|G)iB", words)
        ]
        for name, words in said.items()
    }
    assert sizes == {
        "`*.csv`, `*.tsv`, `*.parquet`": [rewriting._LONGEST],
        "`plan.toml`": [limits.MOST_BYTES],
        "`result.json`": [fedgauge.storage.MOST_RESULT, exchange._MOST_RESULT],
        "`map.json`, `site.toml`": [calibrator.MOST_BYTES],
        "`*.fgx`": [protocol.MOST_BYTES, exchange._MOST_EVIDENCE],
        "`*.fgr`": [messages.MOST_BYTES],
        "`*.roster`, `*.bins`, answers and flips of label parties": [label_files.MOST_BYTES],
    }
    assert policy._MOST_BYTES == calibrator.MOST_BYTES
    assert f"{tables._MOST_COLUMNS:,} columns" in text
