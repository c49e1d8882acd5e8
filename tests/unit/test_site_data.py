"""A site file declares its rows: which file, which columns, and the periods that they come in."""

from datetime import date
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plans import plan_for, report_plan
from sites import edit, make_site

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently, count_rows
from fedgauge.errors import InputError, SiteError
from fedgauge.site import Site
from fedgauge.site.periods import FilePattern

PLAN = plan_for(fg.DistributedDP(1.0), bins=8)
THURSDAY = date(2026, 11, 19)


def declare(folder, table):
    """A site whose file has these lines in its table of data."""
    site = make_site(folder, peers="")
    site.path.write_text(f"{site.path.read_text()}\n[data]\n{table}\n")
    return Site.from_toml(site.path)


def weekly(folder, more='periods = "disjoint"'):
    table = f'path = "scores/{{year}}-W{{week}}.csv"\nlabel = "y"\nscore = "p"\n{more}'
    return declare(folder, table)


@pytest.mark.parametrize(
    ("path", "day", "file", "period"),
    [
        ("{year}.csv", THURSDAY, "2025.csv", "2025"),
        ("{year}q{quarter}.csv", THURSDAY, "2026q3.csv", "2026-Q3"),
        ("{year}q{quarter}.csv", date(2026, 1, 1), "2025q4.csv", "2025-Q4"),
        ("{month}/{year}.csv", THURSDAY, "10/2026.csv", "2026-10"),
        ("{year}{month}{day}.csv", date(2026, 3, 1), "20260228.csv", "2026-02-28"),
        ("{year}-W{week}.csv", THURSDAY, "2026-W46.csv", "2026-W46"),
        ("{year}-W{week}.csv", date(2026, 11, 15), "2026-W45.csv", "2026-W45"),
        ("{year}-W{week}.csv", date(2026, 11, 16), "2026-W46.csv", "2026-W46"),
        # 2026 has 53 weeks by ISO 8601, of which the last ends in January.
        ("{year}-W{week}.csv", date(2027, 1, 3), "2026-W52.csv", "2026-W52"),
        ("{year}-W{week}.csv", date(2027, 1, 4), "2026-W53.csv", "2026-W53"),
        ("rows.csv", THURSDAY, "rows.csv", ""),
    ],
)
def test_the_last_period_that_is_over(path, day, file, period):
    assert FilePattern.read(path).on(day) == (file, period)


@pytest.mark.parametrize(
    "path",
    [
        "W{week}.csv",  # of any year
        "{month}.csv",
        "{year}-{day}.csv",
        "{year}-{month}-W{week}.csv",
        "{}.csv",
        "{year.__class__}.csv",
        "{year!r}",
        "{hour}.csv",
        "{year",
        "year}",
        "{{year}}.csv",
    ],
)
def test_a_path_that_names_no_one_period_is_refused(tmp_path, path):
    with pytest.raises(SiteError, match=r"\[data\]: path"):
        declare(tmp_path, f'path = "{path}"\nlabel = "y"')


def test_a_period_has_a_dataset_of_its_own_only_where_the_file_says_so(tmp_path):
    site = weekly(tmp_path / "a")
    assert site.on(THURSDAY).dataset == "stroke-2026-W46"
    assert site.on(THURSDAY).on(date(2026, 11, 9)).dataset == "stroke-2026-W45"
    assert site.on(THURSDAY).data.path == str(tmp_path / "a" / "scores" / "2026-W46.csv")
    growing = weekly(tmp_path / "b", more="")
    assert growing.on(THURSDAY).dataset == "stroke"
    assert growing.on(THURSDAY).data.path.endswith("2026-W46.csv")


def test_periods_of_one_file_for_all_are_refused(tmp_path):
    with pytest.raises(SiteError, match="the path is the same in all of them"):
        declare(tmp_path, 'path = "rows.csv"\nlabel = "y"\nscore = "p"\nperiods = "disjoint"')


def test_a_dataset_with_a_period_is_a_name(tmp_path):
    site = weekly(tmp_path)
    edit(site, 'dataset = "stroke"', f'dataset = "{"s" * 60}"')
    with pytest.raises(SiteError, match="dataset, with a period, must be"):
        Site.from_toml(site.path)


def test_a_site_without_the_table_names_its_rows_by_hand(tmp_path):
    site = make_site(tmp_path, peers="")
    assert site.data is None
    assert site.on(THURSDAY).dataset == "stroke"
    with pytest.raises(InputError, match=r"does not say which rows .* in a table \[data\]"):
        site.declared_rows(PLAN)


def test_columns_that_a_plan_does_not_ask_for_are_left_out(tmp_path):
    table = (
        'path = "rows.csv"\nlabel = "y"\nscore = "p"\nsubject = "patient"\n'
        'groups = {sex = "gender", ward = "unit"}\nmodels = {new = ["p2"], old = ["p1"]}'
    )
    site = declare(tmp_path, table)
    rows = site.declared_rows(PLAN)
    assert (rows.score, rows.subject, rows.groups, rows.models) == ("p", None, {}, {})
    task = fg.BinaryTask(models=["old", "new"], groups={"sex": ["women"]})
    subjects = fg.DistributedDP(1.0, unit="subject", max_per_unit=3)
    plan = plan_for(subjects, bins=8, task=task)
    rows = site.declared_rows(plan)
    assert (rows.score, rows.subject, rows.groups) == ("", "patient", {"sex": "gender"})
    assert rows.by_task(task)[1] == {"old": ["p1"], "new": ["p2"]}


def test_a_table_that_lacks_what_the_plan_asks_for_is_named(tmp_path):
    site = declare(tmp_path, 'path = "rows.csv"\nlabel = "y"')
    with pytest.raises(InputError, match=r"\[data\] in .*site.toml does not fit the plan: .*score"):
        site.declared_rows(PLAN)


def test_a_file_of_a_period_stays_in_the_folder_of_all_periods(tmp_path):
    """Who may write exports there could otherwise have any file of the site counted."""
    site = weekly(tmp_path / "a").on(THURSDAY)
    folder, elsewhere = tmp_path / "a" / "scores", tmp_path / "payroll.csv"
    folder.mkdir()
    elsewhere.write_text("y,p\n1,0.5\n")
    (folder / "2026-W45.csv").write_text("y,p\n1,0.5\n")
    for target in (elsewhere, folder / "2026-W45.csv"):  # the second has a budget of its own
        (folder / "2026-W46.csv").symlink_to(target)
        with pytest.raises(SiteError, match=r"lies outside .*scores, or behind a link"):
            site.declared_rows(PLAN)
        (folder / "2026-W46.csv").unlink()
    (folder / "2026-W46.csv").write_text("y,p\n1,0.5\n")
    assert site.declared_rows(PLAN).path == str(folder / "2026-W46.csv")
    out = declare(tmp_path / "b", 'path = "scores/{year}/../../x.csv"\nlabel = "y"\nscore = "p"')
    with pytest.raises(SiteError, match="lies outside"):
        out.declared_rows(PLAN)


def test_rows_named_by_hand_leave_the_periods_alone(tmp_path):
    """They would be charged to a period whose rows they need not be, and anew in each."""
    site = weekly(tmp_path)
    plan = report_plan(fg.LocalDP(1.0), (8,))
    with pytest.raises(fg.PlanRefused, match=r"each period .* has a budget of its own"):
        site.judge_reports(plan)
    weekly(tmp_path / "other", more="").judge_reports(plan)


def counted(site, text, encoding="utf-8", plan=PLAN):
    """Positives, negatives and odd labels of a file, under noise; the same of an exact sum."""
    (site.folder / "rows.csv").write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    file = site.declared_rows(plan).file(plan)
    histogram, odd = count_leniently(plan, lambda: file)
    negatives, positives = histogram.counts.sum(axis=1).tolist()
    assert odd.failure == ""
    return positives, negatives, odd


@pytest.mark.parametrize("planned", [None, 1, "yes"])
@pytest.mark.parametrize(
    ("spelled", "labels", "positives", "odd"),
    [
        ('positive = "ja"', ["ja", "nein", " ja ", "nein"], 2, 0),
        ('positive = "C50"', ["C50", "C51", "D05", "C50"], 2, 0),
        ('positive = "2"', [1, 2, 2, 1], 2, 0),  # 1, the plan's positive label, is the negative one
        ('positive = "0"', [0, 1, 1, 1], 1, 0),
        ('positive = "ja"\nnegative = "nein"', ["ja", "nein", "Ja", "ja"], 2, 1),
        ('positive = "2"\nnegative = "1"', [1, "2.0", 0, 2], 2, 1),
        ('positive = "no"\nnegative = "yes"', ["yes", "no", "yes", "yes"], 1, 0),
    ],
)
def test_a_positive_label_that_is_spelled_otherwise(
    tmp_path, planned, spelled, labels, positives, odd
):
    site = declare(tmp_path, f'path = "rows.csv"\nlabel = "y"\nscore = "p"\n{spelled}')
    plan = plan_for(fg.DistributedDP(1.0), bins=8, task=fg.BinaryTask(positive=planned))
    text = "y,p\n" + "".join(f"{label},0.{n + 2}\n" for n, label in enumerate(labels))
    found, others, seen = counted(site, text, plan=plan)
    assert (found, others, seen.other_labels) == (positives, len(labels) - positives, odd)
    count = partial(count_rows, plan, site.declared_rows(plan).file(plan))
    if odd:
        with pytest.raises(InputError, match="labels are"):
            count()
    else:
        assert count().counts.sum(axis=1).tolist() == [others, found]


def test_labels_in_numbers_are_translated_too(tmp_path):
    site = declare(tmp_path, 'path = "rows.parquet"\nlabel = "y"\nscore = "p"\npositive = "2"')
    table = pa.table({"y": [1, 2, None, 2], "p": [0.1, 0.2, 0.3, 0.4]})
    pq.write_table(table, tmp_path / "rows.parquet")
    histogram, odd = count_leniently(PLAN, lambda: site.declared_rows(PLAN).file(PLAN))
    assert histogram.counts.sum(axis=1).tolist() == [2, 2]
    assert (odd.missing_labels, odd.other_labels) == (1, 0)


def test_classes_are_not_translated(tmp_path):
    site = declare(
        tmp_path, 'path = "x.csv"\nlabel = "y"\npositive = "ja"\nclasses = {a = "p", b = "q"}'
    )
    plan = plan_for(fg.DistributedDP(1.0), bins=8, task=fg.MulticlassTask(labels=["a", "b"]))
    assert site.declared_rows(plan).positive is None


@pytest.mark.parametrize(
    "encoding", ["utf-8", "cp1252", "latin-1", "iso-8859-15", "cp1250", "utf-16"]
)
def test_a_file_of_another_encoding(tmp_path, encoding):
    site = declare(
        tmp_path,
        f'path = "rows.csv"\nlabel = "größe"\nscore = "p"\npositive = "ä"\nencoding = "{encoding}"',
    )
    assert counted(site, "größe,p\nä,0.2\nö,0.3\nä,0.9\n", encoding)[:2] == (2, 1)
    exact = count_rows(PLAN, site.declared_rows(PLAN).file(PLAN))
    assert exact.counts.sum(axis=1).tolist() == [1, 2]


def test_a_byte_that_no_text_has_spoils_its_row_alone(tmp_path):
    """Under noise a row must not silence its site."""
    table = 'path = "rows.csv"\nlabel = "y"\nscore = "p"\nencoding = "cp1252"'
    site = declare(tmp_path, table)
    positives, negatives, odd = counted(site, b"y,p\n1,0.2\n\x81,0.3\n0,0.4\n1,0.9\n")
    assert (positives, negatives, odd.other_labels) == (2, 2, 1)
    with pytest.raises(InputError, match="is not CP1252 text"):
        count_rows(PLAN, site.declared_rows(PLAN).file(PLAN))


@pytest.mark.parametrize("encoding", ["punycode", "idna", "base64", "no such", ""])
def test_encodings_of_no_text_are_refused(tmp_path, encoding):
    table = f'path = "rows.csv"\nlabel = "y"\nscore = "p"\nencoding = "{encoding}"'
    site = declare(tmp_path, table)
    (tmp_path / "rows.csv").write_text("y,p\n1,0.5\n")
    with pytest.raises(InputError, match="encoding must be"):
        site.declared_rows(PLAN).file(PLAN)
