"""Names of files and what is in them are a stranger's text: on a screen they stay text. For each
command: every file that somebody else may have written, with hostile text in each of its fields,
and under each hostile name."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import click
import commands
import pytest
import typer
from alone_world import NOISE, TWO, make_alone
from consortium import COORDINATOR, Consortium
from outside import FORGED, HOSTILE, NAMES, dangers, hostile_copies
from plans import exact_plan, report_plan
from rows import draw_client
from shown import REPORTS

import fedgauge as fg
from fedgauge import cli
from fedgauge.keys import SigningKey
from fedgauge.local.messages import encode_rows
from fedgauge.secagg import Stage
from fedgauge.site import Card

SITES = ("site-1", "site-2", "site-3", "site-4", "site-5")
RESULTS = Path(__file__).parents[1] / "fixtures" / "results"
_BY_SITE = "--site sites/site-1/site.toml"
_BY_BOSS = f"--site sites/{COORDINATOR}/site.toml"
_COLUMNS = "--label y --score p"
_OF_SHOP = f"--label bought --id user --site shops/{TWO[0]}/site.toml"
# What each command reads: files of strangers by their paths; its own site file a site trusts.
# A command that is not here fails a test below.
READS = {
    "evaluate": f"rows.csv {_COLUMNS} --plan plan.toml --calibrator map.json",
    "plan": "--clients 5 --privacy sa --calibrator map.json",
    "explain": "plan.toml",
    "demo": "--out plan.toml",  # is no result, and not overwritten
    "show": f"r.json --calibrator map.json {_BY_SITE}",
    "report": f"r.json other.json -o page.html {_BY_SITE}",
    "verify": f"r.json {_BY_SITE}",
    "diff": "r.json other.json",
    "trend": "looks -o trend.csv",
    "calibrate": "r.json -o made.json",
    "apply": "map.json rows.csv --score p -o mapped.csv",
    "doctor": f"--run run {_BY_SITE}",
    "encode": f"reports.toml rows.csv {_COLUMNS} -o made.fgr",
    "intake": "reports.toml rows.fgr",
    "find-bins": f"rounds.toml -o second.toml --state state {_BY_SITE}",
    "site init": "",
    "site dataset": "",
    "site witness": "",
    "site show": "",
    "site log": "",
    "site trust": "",
    "site approver": "",
    "site approve": f"plan.toml --times 1 --until 2099-01-01 --key officer.key {_BY_SITE}",
    "site run": f"run --once {_BY_SITE}",
    "site rekey": "",
    "consortium create": f"made.fgc site-6.card {_BY_BOSS}",
    "consortium update": f"all.fgc site-6.card {_BY_BOSS}",
    "consortium accept": f"all.fgc --fingerprint x {_BY_SITE}",
    "consortium show": "all.fgc",
    "ledger show": "",
    "ledger pending": "",
    "ledger release": "",
    "ledger set-limit": "",
    "exchange start": f"plan.toml new {_BY_BOSS}",
    "exchange restart": f"run new {_BY_BOSS}",
    "exchange run": f"plan.toml runs --once {_BY_BOSS}",
    "exchange review": f"run {_BY_SITE}",
    "exchange approve": f"run --key officer.key --evaluation 00 {_BY_SITE}",
    "exchange check": f"run rows.csv {_COLUMNS} {_BY_SITE}",
    "exchange join": f"run rows.csv {_COLUMNS} {_BY_SITE}",
    "exchange share": f"run {_BY_SITE}",
    "exchange submit": f"run {_BY_SITE}",
    "exchange confirm": f"run {_BY_SITE}",
    "exchange reveal": f"run {_BY_SITE}",
    "exchange advance": f"run {_BY_BOSS}",
    "exchange status": f"run {_BY_SITE}",
    "exchange evidence": f"evidence.fgx {_BY_SITE}",
    "exchange abandon": f"run {_BY_SITE}",
    "vertical evaluate": "ids.csv labels.csv --id user --score p --label bought",
    "vertical plan": "",
    "vertical roster": f"labels.csv -o made.roster {_OF_SHOP}",
    "vertical assign": (
        "ids.csv shop.roster --id user --score p --epsilon 8 --positive yes -o assigned "
        f"--site shops/{COORDINATOR}/site.toml"
    ),
    "vertical check": f"labels.toml shop.bins labels.csv {_OF_SHOP}",
    "vertical answer": f"labels.toml shop.bins labels.csv -o made.answer {_OF_SHOP}",
    "vertical result": f"labels.toml shop.answer --site shops/{COORDINATOR}/site.toml",
}
# A result may hold fields that its reader does not know: its signature covers them.
_HOSTILE = json.dumps(HOSTILE).encode()
_ADDED = _HOSTILE + b": 1"
# Cautions of its numbers are not read: they are made anew from the counts.
_CAUTION = b'"caution": ' + _HOSTILE
# What nobody but the operator writes.
_OWN = ("sites", "shops", "state")


def leaves(command, words=()):
    if not isinstance(command, click.Group):
        return [(" ".join(words), command)]
    context = click.Context(command)
    named = ((name, command.get_command(context, name)) for name in command.list_commands(context))
    return [leaf for name, each in named for leaf in leaves(each, (*words, name))]


COMMANDS = dict(leaves(typer.main.get_command(cli.app)))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with one file of each kind, made by somebody else, and an exchange that runs."""
    folder = tmp_path_factory.mktemp("world")
    _write_tables(folder)
    result = fg.evaluate({"a": draw_client(300, 1), "b": draw_client(300, 2)})
    result.to_json(folder / "other.json")
    result.calibrator("beta").to_json(folder / "map.json")
    shutil.copy(RESULTS / "polya-tree.json", folder / "r.json")
    (folder / "looks").mkdir()
    for week in (1, 2):
        look = fg.evaluate({"a": draw_client(300, 30 + week), "b": draw_client(300, 2)})
        look.to_json(folder / "looks" / f"week-{week}.json")
    exact_plan().save(folder / "plan.toml")
    reports = report_plan(fg.LocalDP(4.0), None, 16)
    reports.save(folder / "reports.toml")
    (folder / "rows.fgr").write_bytes(b"".join(encode_rows(reports, draw_client(30, 3))))
    shops = make_alone(folder / "shops")
    shops.told(NOISE).plan.save(folder / "labels.toml")
    shops.answers(fg.EvaluationPlan.load(folder / "labels.toml"), TWO[0], folder / "shop.answer")
    shutil.copy(shops.folder / f"{TWO[0]}.bins", folder / "shop.bins")
    (folder / "shop.roster").write_bytes(next(iter(shops.rosters().values())).to_bytes())
    sites = Consortium.make(folder / "sites", SITES)
    cards = [folder / "sites" / name / f"{name}.card" for name in SITES]
    boss = sites.site_file(COORDINATOR)
    commands.worked("consortium", "create", folder / "all.fgc", *cards, "--site", boss)
    (folder / "site-6.card").write_bytes(Card.sign("site-6", SigningKey.generate()).to_bytes())
    sites.start(folder / "run", exact_plan())
    clients = {name: draw_client(60, seed=each) for each, name in enumerate(SITES)}
    sites.play(folder / "run", clients, until=Stage.ADVERTISE)
    shutil.copy(next((folder / "run").glob("*.fgx")), folder / "evidence.fgx")
    return folder


def _write_tables(folder):
    labels, scores = draw_client(200, 5)
    rows = list(zip(labels.tolist(), scores.tolist(), strict=True))
    text = {
        "rows": ["y,p", *(f"{y},{p}" for y, p in rows)],
        "ids": ["user,p", *(f"u{place},{p}" for place, (_, p) in enumerate(rows))],
        "labels": ["user,bought", *(f"u{place},{y}" for place, (y, _) in enumerate(rows))],
    }
    for name, lines in text.items():
        (folder / f"{name}.csv").write_text("\n".join([*lines, ""]))


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    copy = tmp_path / "world"
    shutil.copytree(world, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command as the shell does; its exit code and all that it printed is harmless."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["fedgauge", *map(str, words)])
        monkeypatch.setattr(cli, "end_at_once", sys.exit)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            with pytest.raises(SystemExit) as ended:
                cli.main()
        said = capsys.readouterr()
        for text in said:
            assert dangers(text) == [], (words, text)
            assert not any(line.lstrip().startswith(FORGED) for line in text.splitlines()), text
        assert ended.value.code in ((0, 1, 2, 3) if words[1:2] == ("run",) else (0, 1, 2))
        assert not ended.value.code or "fedgauge: " in said.err
        return ended.value.code, said.out, said.err

    return run


def _of_strangers(words):
    return [word for word in words if Path(word).exists() and word.split("/")[0] not in _OWN]


def test_every_command_says_what_it_reads():
    assert sorted(READS) == sorted(COMMANDS)
    silent = [name for name, words in READS.items() if not words]
    assert all(name.split()[0] in ("site", "ledger") or name == "vertical plan" for name in silent)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", [name for name, words in READS.items() if words])
def test_text_in_files_of_strangers_stays_text(call, command):
    words = READS[command].split()
    for path in map(Path, _of_strangers(words)):
        inside = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else ()
        for file in inside or [path]:
            data = file.read_bytes()
            for copy in hostile_copies(file):
                file.write_bytes(copy)
                code, _, _ = call(*command.split(), *words)
                # Rows may hold anything, and a folder what others put into it.
                free = inside or file.suffix in (".csv", ".fgr")
                assert code or free or _ADDED in copy or _CAUTION in copy, copy
            file.write_bytes(data)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", COMMANDS)
def test_names_of_files_stay_text(call, command):
    """Under hostile names: each file that the command reads, and files that are not there."""
    words = READS[command].split() or _required(COMMANDS[command])
    for name in NAMES.values():
        for path in map(Path, _of_strangers(words)):
            odd = Path(name + path.suffix)
            if path.is_dir():
                shutil.copytree(path, odd)
                for each in list(odd.iterdir()):
                    os.rename(each, odd / f"{each.stem}.{name}{each.suffix}")
            else:
                shutil.copy(path, odd)
            call(*command.split(), *(str(odd) if word == str(path) else word for word in words))
        code, _, _ = call(*command.split(), *([f"{name}?"] * len(words)))
        assert code


def _required(command):
    return ["x" for each in command.params if each.required]


@pytest.mark.parametrize("kind", ["enforced", "local-oue", "no-signal", "groups", "models", "AUC"])
def test_text_in_results_of_every_kind_stays_text(tmp_path, call, kind):
    path = tmp_path / "r.json"
    if kind == "AUC":
        labels = {name: draw_client(40, place) for place, name in enumerate("ab")}
        made = fg.evaluate_vertical(None, labels, only="roc_auc", mechanism="adaptive", seed=1)
        plain = json.loads(made.record.to_json())
        plain["roc_auc"]["caution"] = "few examples"
        path.write_text(json.dumps(plain))
    elif kind in REPORTS:
        REPORTS[kind]().to_json(path)
    else:
        shutil.copy(RESULTS / f"{kind}.json", path)
    for copy in hostile_copies(path):
        path.write_bytes(copy)
        for command in ("show", "verify"):
            code, out, _ = call(command, path)
            # What is not refused says nothing: but for a caution, it is not even shown.
            assert code or FORGED not in out or b'"caution": ' + _HOSTILE in copy


@pytest.mark.usefixtures("here")
def test_commands_to_be_copied_hold_a_name_as_one_word(call):
    """Whoever named the shared folder does not choose what the officer's shell runs."""
    run = "run; touch owned"
    shutil.copytree("run", run)
    site = "sites/site-1/site.toml"
    call("site", "approver", "officer", "officer.key", "--site", site)
    code, out, _ = call("exchange", "review", run, "--site", site)
    assert code == 0
    (told,) = (line for line in out.splitlines() if "fedgauge exchange approve" in line)
    assert shlex.split(told)[3] == run


def test_a_folder_of_junk_alone_is_no_trend(tmp_path, call):
    for place, name in enumerate(NAMES.values()):
        (tmp_path / f"{name}{place}.json").write_text('{"format": "' + "x" * place + '"}')
    code, out, err = call("trend", tmp_path)
    assert (code, out) == (2, "")
    assert "holds no result" in err


@pytest.mark.usefixtures("here")
def test_looks_of_hostile_names_are_shown_with_what_is_odd_written_out(call):
    for place, name in enumerate(NAMES.values()):
        look = fg.evaluate({"a": draw_client(300, 10 + place), "b": draw_client(300, 2)})
        look.to_json(f"looks/week-{place + 3} {name}.json")
    code, out, _ = call("trend", "looks", "-o", "trend.csv")
    assert code == 0
    assert "[U+" in out
    assert "week-8 r[U+202E]gnp." in Path("trend.csv").read_text()
    for made in ("trend.csv", "trend.html", "trend.json"):
        assert call("trend", "looks", "-o", made)[0] == 0
        assert dangers(Path(made).read_text()) == []


def test_an_argument_is_told_as_text(call):
    for name in NAMES.values():
        for words in (
            (name,),
            ("show", name, name),
            ("show", f"--{name}"),
            ("trend", "--rate", name),
        ):
            assert call(*words)[0] == 2


@pytest.mark.usefixtures("here")
def test_a_stream_that_lacks_letters_is_no_traceback():
    shutil.copy("r.json", "\u540d.json")
    script = "from fedgauge.cli import main; main()"
    command = [sys.executable, "-c", script, "diff", "\u540d.json", "other.json"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0
    assert b"\\u540d less other" in done.stdout
