"""Pages of the documentation can be followed from an empty folder, by copying their commands."""

import ast
import doctest
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
from fedgauge.secagg.graph import choose_graph
from fedgauge.site import consortium, create_site, ledger_file, policy
from fedgauge.vertical import files as label_files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def script(page):
    text = page if isinstance(page, str) else page.read_text()
    return "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL))


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
        "consortium.md",
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
        ("choose-epsilon.md", "epsilon 5 for one example (replace-one)"),
        (
            "consortium.md",
            "stroke, version 1, by registry. hospital-c/site.toml would",
        ),
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


# How many examples they have, at the least.
EXAMPLES = {
    "choose-epsilon.md": 1,
    "five-minutes.md": 1,
    "large-data.md": 1,
    "metrics.md": 40,
    "shrinkage.md": 1,
    "slices.md": 1,
    "trend.md": 1,
    "two-rounds.md": 1,
    "vertical.md": 9,
}


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_print_what_is_shown(page):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    blocks = [block for block in blocks if block.startswith(">>> ")]
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, None, 0)
    assert len(test.examples) >= EXAMPLES[page]
    told = []
    outcome = doctest.DocTestRunner().run(test, out=told.append)
    assert outcome.failed == 0, "".join(told)


@pytest.mark.slow  # Spark and Dask are not installed for tests; Ray starts processes
@pytest.mark.parametrize("place", range(3), ids=["pyspark", "dask", "ray"])
def test_recipes_for_clusters_run_as_written(place, tmp_path, request):
    pytest.importorskip(request.node.callspec.id, reason="it is not installed")
    text = (DOCS / "clusters.md").read_text()
    recipe = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[place]
    rng = np.random.default_rng(0)
    scores = rng.random(1_000_000)
    labels = (rng.random(1_000_000) < scores).astype(int)
    for part in range(4):
        table = pa.table({"y": labels[part::4], "p": scores[part::4]})
        pq.write_table(table, tmp_path / f"scores-{part}.parquet")
    (tmp_path / "recipe.py").write_text(recipe)
    done = subprocess.run(
        [sys.executable, "recipe.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(shown(DOCS / "clusters.md"))


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


def test_the_page_on_shrinkage_says_the_worst_that_was_measured():
    _, after = (DOCS / "results.md").read_text().split("**The worst: 256 bins under a binary tree")
    rows = re.findall(
        r"^\| (.+?) \| .* \| .* \| ([\d.]+) / ([\d.]+) \|$", after.split("\n\n")[1], re.M
    )
    worst = {shape: max(map(float, ratios)) for shape, *ratios in rows}
    assert max(worst, key=worst.get) == "ratio with a deep valley"
    text = " ".join((DOCS / "shrinkage.md").read_text().split())
    assert "256 bins in a binary tree**, where positives are at both ends" in text
    assert f"up to {max(worst.values()):g} times at epsilon 0.1" in text


def test_the_file_exchange_runs_as_written(tmp_path, shell):
    told = follow(DOCS / "exchange.md", tmp_path, shell)
    (first,) = (tmp_path / "evaluations").glob("*/result.json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-[0-9a-f]{8}", first.parent.name)
    assert fg.Evaluation.from_json(first).privacy.claim == "enforced"
    assert (first.parent / "report.html").stat().st_size > 10_000
    assert "Waiting for the coordinator" in told
    assert "enforced between the sites" in told
    result = fg.Evaluation.from_json(tmp_path / "shared" / "result.json")
    assert result.privacy.claim == "enforced"
    assert told.count("verified: signed by ") == 2  # of the agents, and by hand
    assert result.clients == 3
    assert abs(result.negatives + result.positives - 6000) < 500
    hashes = re.findall(r"^([0-9a-f]{64})  shared/", told, flags=re.MULTILINE)
    logged = (tmp_path / "left.csv").read_text()
    assert len(hashes) == 5
    assert all(each in logged for each in hashes)
    assert "Approved evaluation" in told
    assert len(list((tmp_path / "signed").glob("1-join.*.hospital-a.reply.fgx"))) == 1
    for week, rows in (("week-1", 6000), ("week-2", 6300)):
        exact = fg.Evaluation.from_json(tmp_path / week / "result.json")
        assert exact.privacy.epsilon is None
        assert exact.negatives + exact.positives == rows


def test_the_steps_of_an_evaluation_are_few():
    """Three to set up for the coordinator, two for a site; then one of the coordinator alone."""
    page = (DOCS / "exchange.md").read_text()
    few = script(page.split("## 3. Five rounds")[0].replace("```sh\nmkdir elsewhere", "```text\n"))
    commands = re.findall(r"fedgauge ((?:site|consortium|exchange) \w+|plan|demo|verify)\b", few)
    shown = {"demo", "verify", "consortium show"}  # files for the page, and what they hold
    typed = [each for each in commands if each not in shown]
    at_sites = ["site init", "consortium accept"]
    assert typed == [
        *("site init", "site init"),  # of the coordinator, of sites
        *("consortium create", "consortium accept"),
        *("plan", "site run", "exchange run"),
    ]
    told = {
        row.split(" | ")[0].strip("| "): row.split(" | ")[1:]
        for row in page.splitlines()
        if row.startswith("|")
    }
    setup, each = told["coordinator"]
    assert re.findall(r"`([\w ]+)`", setup) == ["site init", "consortium create", "plan"]
    assert re.findall(r"`([\w ]+)`", each) == ["exchange run"]
    setup, each = told["site"]
    assert re.findall(r"`([\w ]+)`", setup) == at_sites
    assert each.startswith("nothing")


def test_the_site_folder_and_the_sites_that_must_stay_are_as_told(tmp_path):
    text = (DOCS / "exchange.md").read_text()
    folder = text.split("### The site's folder\n")[1].split("**Backups.**")[0]
    made = create_site(tmp_path / "site", name="hospital-a", dataset="rows")
    files = {path.name for path in made.folder.iterdir() if path.suffix != ".lock"}
    assert files == {"site.toml", "hospital-a.card", "site.key", "ledger.sqlite", "site.key.head"}
    assert files <= {*re.findall(r"`([\w.-]+)`", folder)}
    assert b"secret" in (made.folder / "site.key").read_bytes()  # not encrypted, as told
    assert (made.policy.max_epsilon, made.policy.budget_epsilon) == (1, 3)
    (told,) = re.findall(r"must confirm and reveal: (.*?)\. So among three", " ".join(text.split()))
    kept = [f"{choose_graph(n, fg.Cohort(n, 1)).threshold} of {n}" for n in (3, 4, 5)]
    assert told.split(", ") == kept


def test_local_reports_run_as_written(tmp_path, shell):
    commands = [line for line in script(DOCS / "local.md").splitlines() if line]
    assert len(commands) == 22
    told = []
    for command in commands:
        done = shell(command, tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        told.append(done.stdout)
    assert "Enough to know the recall at 0.5 within 0.01? no" in told[3]
    first, again, shown = told[7:10]
    assert "Took in 20,000 reports; 20,000 in all\n" in first
    assert "Took in 0 reports; 20,000 in all; refused so far: duplicate: 20,000" in again
    assert first.splitlines()[1:] == again.splitlines()[1:]
    assert "true positives" in shown
    searched, bins, second = told[-4], told[-3], told[-1]
    assert "there is no result yet" in searched
    assert "The first round is closed" in bins
    found, rest = (
        int(re.search(r"Took in ([\d,]+)", said)[1].replace(",", "")) for said in (searched, second)
    )
    assert found + rest == 10_000
    # Epsilon 5 and 9,000 reports leave an error of about 0.01.
    assert abs(auc_of(second) - auc_of(first)) < 0.06


def auc_of(said):
    return float(re.search(r"ROC AUC +([\d.]+)", said)[1])


def below(*titles):
    """The commands of the page on labels apart below some headings, in order."""
    sections = re.split(r"^## ", (DOCS / "vertical.md").read_text(), flags=re.MULTILINE)
    chosen = [text for text in sections if text.startswith(titles)]
    assert len(chosen) == len(titles)
    return "".join(re.findall(r"```sh\n(.*?)```", "".join(chosen), flags=re.DOTALL))


def test_labels_apart_run_as_written(tmp_path, shell):
    printed = shown(DOCS / "vertical.md")
    told = []
    for command in below("In one process", "Which mechanism").splitlines():
        done = shell(command, tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        told.append(done.stdout)
    _, full, alone, planned, for_two = told
    assert "scores at one party, labels at 4 others; 12,000 examples" in full
    assert "simulation" in alone
    rows = [line.split() for line in planned.splitlines()]
    assert [line for line in printed.splitlines() if line.split() not in rows] == []
    assert "it takes epsilon 0.54 with these examples, or about 17,000 examples" in planned
    assert "Enough to know the AUC within 0.02? no" in for_two


def test_parties_with_labels_can_follow_their_page(tmp_path, shell):
    """A platform and four shops; two of them alone; then four with scores at the shops."""
    commands = below(
        "Between the parties", "One or two parties", "Parties that score their own examples"
    )
    done = shell(commands, tmp_path, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    told = done.stdout
    assert told.count("No other column was read, so it holds no label.") == 8
    assert "4 parties" in told
    assert "hostile coordinator" in told
    assert "verified: signed by platform, confirmed by 4 of 4 sites" in told
    assert told.count("scores at one party, labels at 4 others; 12,000 examples") == 2
    assert "label-DP, one label flipped: epsilon 1" in told
    assert "Round 2 of 5, share: 0 of 4 answered" in told.split("Saved scored-4.roster")[1]
    result = fg.Evaluation.from_json(tmp_path / "shared" / "result.json")
    assert result.privacy.claim == "enforced"
    assert result.clients == 4
    files = {path.name for path in (tmp_path / "assigned").iterdir()}
    assert files == {"plan.toml", *(f"shop-{number}.bins" for number in range(1, 5))}
    alone = fg.Evaluation.from_json(tmp_path / "two.json")
    assert (alone.clients, alone.signature.state) == (2, "unsigned")
    assert told.count("each answer was private before it was sent") == 2
    assert "mechanism:  adaptive" in told
    spent = fg.Site.from_toml(tmp_path / "shop-1" / "site.toml").ledger.balances()
    assert spent[0].spent.epsilon == 4.0  # the sum, then noise, a pair and flips alone


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
    said = dict(re.findall(r"^\| (.*?) \| (.*(?:MiB|GiB).*) \|$", text, flags=re.MULTILINE))
    sizes = {
        name: [
            int(n) << (30 if unit == "G" else 20) for n, unit in re.findall(r"(\d+) (M|G)iB", words)
        ]
        for name, words in said.items()
    }
    assert sizes == {
        "`*.csv`, `*.tsv`, `*.parquet`": [rewriting._LONGEST],
        "`plan.toml`, `second.json`": [limits.MOST_BYTES],
        "`result.json`": [fedgauge.storage.MOST_RESULT, exchange._MOST_RESULT],
        "`map.json`, `site.toml`": [calibrator.MOST_BYTES],
        "`*.fgc`": [consortium.Consortium.most],
        "`*.fgx`": [protocol.MOST_BYTES, exchange._MOST_EVIDENCE],
        "`*.fgr`": [messages.MOST_BYTES],
        "`*.roster`, `*.bins`, answers and flips of label parties": [label_files.MOST_BYTES],
        "a site's own session (`sessions/`)": [fedgauge.storage.MOST_STATE],
        "the head of a ledger and its witness": [ledger_file._MOST_BYTES],
    }
    assert policy._MOST_BYTES == calibrator.MOST_BYTES
    assert f"{tables._MOST_COLUMNS:,} columns" in text


def texts_of_the_package():
    """Every text of the package, with 0 for each number and each thing that is filled in."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "0"
                    for part in node.values
                )


def test_messages_on_the_page_about_flower_are_those_of_the_software():
    """All but six, which are Flower's and Python's own."""
    text = "\n".join(re.sub(r"\d+", "0", message) for message in texts_of_the_package())
    table = (DOCS / "flower.md").read_text().split("## When something fails")[1]
    quoted = re.findall(r"^\| (?:node: )?`(.*?)`", table, flags=re.MULTILINE)
    assert len(quoted) > 14
    assert [each for each in quoted if re.sub(r"\d+", "0", each) not in text] == [
        "Failed to activate SuperNode",
        "All SuperNodes must be registered via the CLI",
        "Server disconnected without sending a response",
        "CERTIFICATE_VERIFY_FAILED",
        "SuperNode Runtime HTTP API failed to start",
        "uv sync failed",
    ]


def test_every_attack_names_its_test():
    """And every file of attacks is named, so that no promise is without one."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in (DOCS / "attacks.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| promise |")
    ]
    named = set()
    for promise, attack, outcome, tests in rows:
        assert promise
        assert attack
        assert outcome in ("held", "mended"), promise
        files = re.findall(r"`([a-z]+/test_\w+\.py)`", tests)
        assert ", ".join(f"`{file}`" for file in files) == tests
        assert all("def test_" in (ROOT / "tests" / file).read_text() for file in files)
        named.update(files)
    assert len(rows) > 60
    assert {
        f"attacks/{path.name}" for path in (ROOT / "tests" / "attacks").glob("test_*.py")
    } <= named


def test_tests_that_pages_name_are_there():
    for page in DOCS.glob("*.md"):
        for path in re.findall(r"`(tests/\w+/test_\w+\.py)`", page.read_text()):
            assert (ROOT / path).is_file(), (page.name, path)
