"""What notebooks show: the text of a result, with nothing of it taken for markup."""

from html.parser import HTMLParser

import pytest
from plans import plan_for, report_plan

import fedgauge as fg
from fedgauge import notebook

HOSTILE = "<script>alert('x')</script>&\"<b>"
ROWS = ([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.2, 0.9])


class Page(HTMLParser):
    """The tags of a page, whether they are closed in order, and its cells."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.cells, self._open = set(), [], []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self._open.append(tag)
        assert not [name for name, _ in attributes if name != "style"]
        assert "color" not in str(attributes)  # of the page, light or dark

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


TABLE = {"table", "caption", "tbody", "tr", "th", "td"}


def cells(html):
    page = Page(html)
    assert page.tags <= TABLE | {"span"}
    return page.cells


def test_text_and_tables_are_escaped():
    assert cells(notebook.text(HOSTILE)) == [HOSTILE]
    table = notebook.table([(HOSTILE, HOSTILE)], caption=HOSTILE)
    assert cells(table) == [HOSTILE] * 3


def test_evaluation():
    result = fg.evaluate({"a": ROWS, "b": ROWS})
    who, *shown = cells(result._repr_html_())
    assert who == str(result).splitlines()[0]
    assert dict(zip(shown[::2], shown[1::2], strict=True))["ROC AUC"] == str(result.roc_auc)
    assert " ".join([who, *shown]).split() == str(result).split()


def test_estimate():
    estimate = fg.Estimate(0.5, (0.4, 0.6), 0.3, 0.7, 0.95, caution=HOSTILE)
    assert "".join(cells(estimate._repr_html_())) == str(estimate)


def test_estimate_whose_words_look_like_markup(monkeypatch):
    monkeypatch.setattr(fg.Estimate, "__str__", lambda _: HOSTILE)
    assert cells(fg.Estimate(0.5, (0.4, 0.6))._repr_html_()) == [HOSTILE]


def test_threshold():
    at = fg.evaluate({"a": ROWS}).at_threshold(1.0)
    caption, *shown = cells(at._repr_html_())
    assert caption == "At threshold 1"
    rows = dict(zip(shown[::2], shown[1::2], strict=True))
    assert rows["precision"] == "undefined"
    assert rows["recall"] == str(at.recall)
    assert rows["tp"] == str(at.confusion_matrix.tp)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (plan_for(bins=16, task=fg.BinaryTask(HOSTILE)), ["secure aggregation", repr(HOSTILE)]),
        (plan_for(bins=16, outside="refuse", min_cell=12), ["12", "bool or 0/1"]),
        (plan_for(fg.DistributedDP(1.0), (4, 4)), ["4 x 4", "at least 3 clients"]),
        (plan_for(bins=16).with_not_after("2026-12-31"), ["2026-12-31T23:59:59Z"]),
        (report_plan(fg.LocalDP(1.0), (16,)), ["bytes per report"]),
    ],
)
def test_plan(plan, told):
    text = " ".join(cells(plan._repr_html_()))
    for words in (*told, plan.digest[:8], repr(plan.axis)):
        assert words in text


def test_repr_of_a_result_shows_the_auc_in_one_line():
    result = fg.evaluate({"a": ROWS, "b": ROWS})
    assert repr(result) == f"<Evaluation of 12 examples at 2 clients: ROC AUC {result.roc_auc}>"


def test_repr_of_a_result_without_an_auc():
    one_class = fg.evaluate({"a": ([0, 0], [0.1, 0.4])})
    assert repr(one_class) == "<Evaluation of 2 examples at 1 client: ROC AUC undefined>"
    hidden = fg.evaluate({"a": ROWS, "b": ROWS}, privacy=fg.DistributedDP(0.1), seed=1)
    with pytest.raises(fg.NoSignal):
        hidden.roc_auc  # noqa: B018
    assert repr(hidden).endswith("ROC AUC undefined>")
    assert cells(hidden._repr_html_())
