"""A short test of an installed fedgauge that needs nothing but its dependencies.

``make build`` runs it on the built wheel, ``make oldest`` on the oldest dependencies that
``pyproject.toml`` allows. ``python tools/smoke.py [FIXTURES]`` with the folder of saved results
also compares their numbers with those they had when they were saved.
"""

import gzip
import importlib.metadata
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

import fedgauge as fg
from fedgauge.cli import app

SITES = ("a", "b", "c")
COLUMNS = ("--label", "y", "--score", "p")
ROUNDING = 1e-7  # between versions of NumPy and SciPy; inverses of flat curves move most


def draw(site, rows=2000):
    """Rows of one site, the same on every machine."""
    rng = np.random.default_rng(ord(site))
    labels = (rng.random(rows) < 0.3).astype(int)
    return labels, np.round(np.clip(rng.normal(0.35 + 0.2 * labels, 0.2), 0, 1), 6)


CLIENTS = {site: draw(site) for site in SITES}


def exact_auc():
    """The AUC of the pooled rows, by ranks."""
    labels, scores = (np.concatenate(rows) for rows in zip(*CLIENTS.values(), strict=True))
    negative, positive = scores[labels == 0][:, None], scores[labels == 1]
    return np.mean((positive > negative) + 0.5 * (positive == negative))


def write_csv(path, site):
    """The rows of a site as a file."""
    lines = [f"{y},{p}" for y, p in zip(*CLIENTS[site], strict=True)]
    path.write_text("\n".join(["y,p", *lines]))


def run(*arguments):
    """A command in this process; what it printed."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, f"{arguments}: {done.output}{done.exception!r}"
    return done.output


def check_package(_):
    """Version, type marker and the command itself."""
    assert importlib.metadata.version("fedgauge") == fg.__version__
    assert Path(fg.__file__).with_name("py.typed").exists()
    command = Path(sys.executable).with_name("fedgauge")
    for arguments, code in [(["--version"], 0), (["--help"], 0), (["evaluate"], 2)]:
        done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if arguments == ["--version"]:
            assert done.stdout == f"fedgauge {fg.__version__}\n"
    for name in ("evaluate", "show", "plan", "explain", "demo", "encode", "intake"):
        assert "Usage" in run(name, "--help")


def check_privacy_models(_):
    """All models find the AUC, each to what it can; planning and trees included."""
    truth = exact_auc()
    result = fg.evaluate(CLIENTS)
    assert result.roc_auc.bounds[0] <= truth <= result.roc_auc.bounds[1]
    noisy = {
        "polya": (fg.DistributedDP(3.0), "auto"),
        "replace-one": (fg.DistributedDP(3.0, neighbours="replace-one"), (8, 8)),
        "oue": (fg.LocalDP(5.0), "auto"),
        "hadamard": (fg.LocalDP(5.0, oracle="hadamard"), (16,)),
    }
    if importlib.util.find_spec("dp_accounting"):
        for noise in ("skellam", "discrete-gaussian"):
            noisy[noise] = (fg.DistributedDP(1.0, delta=1e-6, noise=noise), (4, 8))
    for name, (model, tree) in noisy.items():
        result = fg.evaluate(CLIENTS, privacy=model, tree=tree, seed=1)
        assert abs(result.roc_auc.value - truth) < 0.1, name
    proposed = fg.planner.propose(privacy=fg.DistributedDP(1.0), clients=3, examples=6000)
    result = fg.evaluate(CLIENTS, proposed, seed=1)
    assert abs(result.roc_auc.value - truth) < 0.1


def check_files(folder):
    """CSV, TSV, gzip and Parquet, with scores of every width, give what arrays give."""
    expected = fg.evaluate(CLIENTS).roc_auc
    files = [folder / name for name in ("a.csv", "b.tsv", "c.csv.gz")]
    for path, site in zip(files, SITES, strict=True):
        write_csv(path, site)
    files[1].write_text(files[1].read_text().replace(",", "\t"))
    files[2].write_bytes(gzip.compress(files[2].read_bytes()))
    clients = {path.name: fg.ScoreFile(path, label="y", score="p") for path in files}
    assert fg.evaluate(clients).roc_auc == expected

    y, p = (np.concatenate(rows) for rows in zip(*CLIENTS.values(), strict=True))
    pq.write_table(
        pa.table({"site": np.repeat(SITES, 2000), "y": y, "p": p}), folder / "all.parquet"
    )
    table = fg.ScoreTable([folder / "all.parquet"], client="site", label="y", score="p")
    assert fg.evaluate(table).roc_auc == expected
    for kind in ("f2", "f4"):
        y, p = CLIENTS["a"]
        pq.write_table(pa.table({"y": y.astype(bool), "p": p.astype(kind)}), folder / "a.parquet")
        fg.evaluate({"a": fg.ScoreFile(folder / "a.parquet", label="y", score="p")})
        fg.evaluate({"a": (y.astype(kind), pa.array(p))})

    told = run("evaluate", *files, *COLUMNS, "--at", "0.5", "--json", folder / "r.json")
    assert f"{expected.value:.4f}" in told
    assert fg.Evaluation.from_json(folder / "r.json").roc_auc == expected


def check_results(folder):
    """A result and a plan read back give the same numbers; a changed plan is checked."""
    for name, privacy in {"exact": fg.SecureAggregation(), "noisy": fg.DistributedDP(2.0)}.items():
        result = fg.evaluate(CLIENTS, privacy=privacy, tree=(8, 8), score_sums=True, seed=1)
        result.to_json(folder / f"{name}.json")
        again = fg.Evaluation.from_json(folder / f"{name}.json")
        assert str(again) == str(result)
        assert again.at_threshold(0.4).as_dict() == result.at_threshold(0.4).as_dict()
        assert again.threshold_for(fpr=0.1).recall == result.threshold_for(fpr=0.1).recall
        assert again.average_precision == result.average_precision
        result.plan.save(folder / f"{name}.toml")
        assert fg.EvaluationPlan.load(folder / f"{name}.toml").digest == result.plan.digest
        assert "What leaves each site" in run("explain", folder / f"{name}.toml")
        assert "ROC AUC" in run("show", folder / f"{name}.json")
    try:
        msgspec.structs.replace(fg.DistributedDP(1.0), epsilon=-1.0)
    except fg.PlanError:
        return
    raise AssertionError("a changed model must be checked again")


def check_exchange(folder):
    """A secure sum between three sites and a coordinator, by files."""
    paths = {name: folder / name / "site.toml" for name in ("head", *SITES)}
    for name, path in paths.items():
        run("site", "init", "--name", name, "--dataset", "smoke", path.parent, "--quiet")
    for site in SITES:
        for peer in SITES:
            if peer != site:
                trust(paths[site], peer, paths[peer])
        trust(paths[site], "head", paths["head"], "--coordinator")
        trust(paths["head"], site, paths[site])
        write_csv(folder / f"{site}.csv", site)
    plan, shared = folder / "plan.toml", folder / "shared"
    run("plan", "--clients", 3, "--examples", 6000, "--epsilon", 1, "-o", plan)
    run("exchange", "start", plan, shared, "--site", paths["head"])
    for verb in ("join", "share", "submit", "confirm", "reveal"):
        for site in SITES:
            data = (folder / f"{site}.csv", *COLUMNS) if verb == "join" else ()
            run("exchange", verb, shared, *data, "--site", paths[site])
        run("exchange", "advance", shared, "--site", paths["head"])
    result = fg.Evaluation.from_json(shared / "result.json")
    assert result.privacy.claim == "enforced"
    assert abs(result.roc_auc.value - exact_auc()) < 0.1
    assert "smoke" in run("ledger", "show", "--site", paths["a"])


def trust(path, name, of, *options):
    """Let one site trust another."""
    told = run("site", "show", "--site", of)
    (key,) = (line.split()[2] for line in told.splitlines() if line.startswith("Public key"))
    run("site", "trust", "--site", path, *options, name, key)


def check_reports(folder):
    """Local reports as bytes; each counts once, however often it is taken in."""
    plan = folder / "plan.toml"
    fg.planner.propose(privacy=fg.LocalDP(5.0), clients=3, examples=6000).save(plan)
    (folder / "inbox").mkdir()
    for site in SITES:
        write_csv(folder / f"{site}.csv", site)
        run(
            "encode", plan, folder / f"{site}.csv", *COLUMNS, "-o", folder / "inbox" / f"{site}.fgr"
        )
    for _ in range(2):
        saved = folder / "result.json"
        run("intake", plan, folder / "inbox", "--state", folder / "state", "--json", saved)
        assert fg.Evaluation.from_json(saved).reports == 6000


def check_plots(folder):
    """The demo, and every display."""
    assert "AUC, fedgauge" in run("demo", "--out", folder / "demo")
    assert len(list((folder / "demo").glob("*.png"))) == 4
    result = fg.evaluate(CLIENTS)
    for name in ("RocCurve", "PrecisionRecall", "DetCurve", "PrGain", "Gain"):
        display = getattr(fg, f"{name}Display").from_evaluation(result, name=name)
        display.plot().figure_.savefig(folder / f"{name}.png")


def check_page(folder):
    """The report has its style and script, which are files of the package, and the numbers."""
    path = folder / "report.html"
    result = fg.evaluate(CLIENTS, axis=fg.Axis.uniform(64))
    result.to_html(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "--ink:" in text
    assert "addEventListener" in text
    assert f"{result.roc_auc.value:.4f}" in text


def check_saved_results(fixtures):
    """Kept results have the numbers they had."""
    spec = importlib.util.spec_from_file_location("cases", fixtures / "cases.py")
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    for path in sorted((fixtures / "results").glob("*.numbers.json")):
        saved = path.with_name(path.name.replace(".numbers", ""))
        numbers = cases.numbers(fg.Evaluation.from_json(saved))
        compare(json.loads(json.dumps(numbers)), json.loads(path.read_text()), path.stem)


def compare(got, expected, place):
    """Numbers to rounding, all else exactly."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), place
        for key, value in expected.items():
            compare(got[key], value, f"{place} {key}")
    elif isinstance(expected, list):
        assert len(got) == len(expected), place
        for one, other in zip(got, expected, strict=True):
            compare(one, other, place)
    elif isinstance(expected, float) and math.isfinite(expected):
        assert math.isclose(got, expected, rel_tol=ROUNDING, abs_tol=ROUNDING), place
    else:
        assert got == expected or got != got, place


CHECKS = {
    "package and command": check_package,
    "three privacy models": check_privacy_models,
    "file formats": check_files,
    "results and plans, saved and read": check_results,
    "a secure sum between sites": check_exchange,
    "local reports": check_reports,
    "demo and displays": check_plots,
    "report page": check_page,
}


def main(arguments):
    """Every check in a folder of its own."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, check) in enumerate(CHECKS.items()):
            place = Path(folder, str(number))
            place.mkdir()
            check(place)
            print(f"  ok  {title}")
    for fixtures in arguments:
        check_saved_results(Path(fixtures))
        print("  ok  kept results")
    print(f"fedgauge {fg.__version__} works ({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main(sys.argv[1:])
