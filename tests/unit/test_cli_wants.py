"""`plan --want`: how a wish is written, what is asked for, and the answer in words."""

import pytest
from commands import run

import fedgauge as fg
from fedgauge.cli.wants import Want, answer, read_want, takes
from fedgauge.planner import Needs

HINTS = ("plan", "--clients", 8, "--examples", 4_000, "--positive-rate", 0.5)
ECE = "expected_calibration_error"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0.001", Want(0.001, "roc_area_error", None)),
        ("1e-3", Want(0.001, "roc_area_error", None)),
        ("roc=0.001", Want(0.001, "roc_area_error", None)),
        ("recall@0.5=0.02", Want(0.02, "recall", 0.5)),
        ("recall@-2=0.02", Want(0.02, "recall", -2.0)),
        (" Recall @ 0.5 = 0.02 ", Want(0.02, "recall", 0.5)),
        ("balanced-accuracy@.3=.01", Want(0.01, "balanced_accuracy", 0.3)),
        ("NPV@0.5=0.02", Want(0.02, "npv", 0.5)),
        ("ece=0.01", Want(0.01, ECE, None)),
        (f"{ECE}=0.01", Want(0.01, ECE, None)),
    ],
)
def test_wishes(text, want):
    assert read_want(text) == want


@pytest.mark.parametrize("text", ["", "=", "=0.1", "recall", "recall@0.5", "recall@=0.1", "x=y"])
def test_what_is_no_wish(text):
    with pytest.raises(fg.PlanError, match="--want is written like "):
        read_want(text)


@pytest.fixture
def needs(monkeypatch):
    """What was asked of `planner.needs`, and a made-up answer."""
    asked = []

    def answer(*args, **kwargs):
        asked.append((args, kwargs))
        return Needs(epsilon=0.3456, examples=123_456, expected=0.05)

    monkeypatch.setattr("fedgauge.planner.needs", answer)
    return asked


def told_by(*options):
    done = run(*HINTS, *options)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("model", [["--epsilon", 1], ["--privacy", "ldp", "--epsilon", 5]])
def test_a_metric_at_a_threshold(needs, model, tmp_path):
    path = tmp_path / "p.toml"
    told = told_by(*model, "--want", "recall@0.29=0.02", "-o", path)
    assert (
        "Enough to know the recall at 0.29 within 0.02? no, within 0.05: it takes epsilon 0.35 "
        "with these examples, or about 120,000 examples with this epsilon." in told
    )
    assert 0.29 in fg.EvaluationPlan.load(path).axis.edges
    (((within,), asked),) = needs
    assert (within, asked["metric"], asked["at"]) == (0.02, "recall", 0.29)
    assert asked["privacy"].epsilon == float(model[-1])


def test_calibration(needs):
    told = told_by("--privacy", "sa", "--min-cell", 5, "--want", "ece=0.1")
    assert "to know the expected calibration error within 0.1? yes, within 0.05: it takes" in told
    (((within,), asked),) = needs
    assert (within, asked["metric"], asked["at"]) == (0.1, ECE, None)
    assert asked["min_cell"] == 5


def test_a_real_answer_without_noise():
    told = told_by("--privacy", "sa", "--want", "recall@0.5=0.02")
    needed = fg.planner.needs(
        0.02,
        metric="recall",
        at=0.5,
        privacy=fg.SecureAggregation(),
        clients=8,
        examples=4_000,
        positive_rate=0.5,
    )
    assert f"it takes about {int(float(f'{needed.examples:.2g}')):,} examples.\n" in told


@pytest.mark.parametrize(
    ("epsilon", "examples", "noisy", "words"),
    [
        (None, 1_234, False, "it takes about 1,200 examples."),
        (None, None, False, "no number of examples is enough with such bins."),
        (None, None, True, "no epsilon and no number of examples is enough with such bins."),
        (0.5, None, True, "it takes epsilon 0.5 with these examples; more of them are not enough."),
        (
            None,
            1_234,
            True,
            "no epsilon that protects anybody is enough with these examples; it takes about 1,200 "
            "examples with this epsilon.",
        ),
    ],
)
def test_answers_in_words(epsilon, examples, noisy, words):
    assert takes(Needs(epsilon, examples, 0.1), noisy=noisy) == words


@pytest.mark.parametrize("expected", [0.0095, 0.0105])
def test_about_what_is_wanted(expected):
    told = answer(Want(0.01, ECE, None), Needs(1.0, 4_000, expected), noisy=True)
    assert told == "Enough to know the expected calibration error within 0.01? just about."


def test_a_rough_answer_says_so():
    needed = Needs(1.0, 4_000, 0.1, "intervals differ 5-fold")
    told = answer(Want(0.01, ECE, None), needed, noisy=True)
    assert told.endswith("with this epsilon. A rough answer: intervals differ 5-fold.")
