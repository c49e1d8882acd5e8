"""The saved result: its JSON, the way back, and files that are not one."""

import errno
import json
import os
import stat

import numpy as np
import pytest
from refusals import refused

import fedgauge as fg
from fedgauge.results.record import Record, thresholds_to_plain
from fedgauge.storage import write_whole

AXES = {
    "uniform": fg.Axis.uniform(64),
    "wide": fg.Axis.uniform(10, -1.0, 2.0, outside="clip"),
    "logit": fg.Axis.logit(32),
    "edges": fg.Axis.from_edges([0.0, 0.1, 0.5, 1.0]),
    "values": fg.Axis.from_values(np.arange(9) / 8),
}
ESTIMATORS = [fg.Aligned(), fg.Aligned("linear"), fg.Quantile(16), fg.Quantile(16, pr="combine")]
NESTED = b"[" * 6000 + b"]" * 6000
MODELS = {"exact": {}, "noisy": {"privacy": fg.DistributedDP(1.0), "seed": 3}}
CLIPPING = fg.Axis.uniform(64, outside="clip")
COHORT_OF_ONE = {"min_survivors": 1, "max_colluding": 0}


def make_result(axis=AXES["uniform"], **options):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, (3, 200))
    scores = np.clip(np.round(rng.normal(3 + 2 * labels, 1.5)), 0, 8) / 8
    clients = {f"site-{i}": (labels[i], scores[i]) for i in range(3)}
    return fg.evaluate(clients, axis=axis, **options)


def refuse_constant(name):
    raise AssertionError(f"{name} is not JSON")


def plain(result):
    return json.loads(result.record.to_json(), parse_constant=refuse_constant)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "result.json"
    make_result().to_json(path)
    return path


def alter(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def test_values_are_those_of_the_result():
    result = make_result()
    (part,) = plain(result)["slices"]
    auc = part["metrics"]["roc_auc"]
    assert (auc["value"], tuple(auc["bounds"])) == (result.roc_auc.value, result.roc_auc.bounds)
    assert (auc["low"], auc["high"]) == (result.roc_auc.low, result.roc_auc.high)
    assert (auc["level"], auc["caution"]) == (0.95, None)
    assert auc["parts"] == dict(result.roc_auc.parts)
    for name, metric in part["metrics"].items():
        assert metric["value"] == getattr(result, name).value
    assert [sum(row) for row in part["counts"]] == [result.negatives, result.positives]
    assert part["variances"] is None
    assert (part["model"], part["group"], part["label"]) == (None, None, None)
    assert part["curves"]["roc"]["fpr"] == result.roc_curve().fpr.tolist()
    assert part["curves"]["pr"]["precision"] == result.pr_curve().precision.tolist()
    result = fg.evaluate({"a": ([0, 1, 1], [0.1, 0.4, 0.2])}, axis=fg.Axis.uniform(4))
    (part,) = plain(result)["slices"]
    assert part["metrics"]["average_precision"]["caution"] == result.average_precision.caution
    assert "fewer than 20" in result.average_precision.caution


def test_thresholds_survive_json_and_an_infinite_one_is_text():
    (part,) = plain(make_result())["slices"]
    first, *others = part["curves"]["roc"]["thresholds"]
    assert first == "inf"
    assert all(isinstance(threshold, float) for threshold in others)
    assert "inf" not in part["curves"]["pr"]["thresholds"]
    thresholds = np.array([np.inf, 0.3, 5e-324, 0.0])
    back = np.array(json.loads(json.dumps(thresholds_to_plain(thresholds))), dtype=np.float64)
    np.testing.assert_array_equal(back, thresholds)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_leaves_out_what_compares_classes_and_all_curves(tmp_path, label):
    result = fg.evaluate({"a": ([label] * 2, [0.1, 0.2])}, axis=fg.Axis.uniform(4))
    (part,) = plain(result)["slices"]
    of_calibration = {"expected_calibration_error", "calibration_in_the_large"}
    assert set(part["metrics"]) == {"log_loss", "brier_score"} | of_calibration
    assert part["curves"] == {"roc": None, "pr": None}
    result.to_json(tmp_path / "r.json")
    assert str(fg.Evaluation.from_json(tmp_path / "r.json")) == str(result)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("axis", AXES.values(), ids=AXES.keys())
def test_round_trip_keeps_every_number_and_curve(tmp_path, axis, estimator):
    result = make_result(axis, estimator=estimator)
    result.to_json(str(tmp_path / "r.json"))
    back = fg.Evaluation.from_json(str(tmp_path / "r.json"))
    assert back.record == result.record
    assert back.record.to_json() == result.record.to_json()
    assert back.roc_auc == result.roc_auc
    assert back.average_precision == result.average_precision
    assert str(back) == str(result)
    assert (back.plan, back.plan.digest) == (result.plan, result.plan.digest)
    assert (back.privacy, back.clients, back.estimator) == (result.privacy, 3, estimator)
    at = np.linspace(0, 1, 101)
    for curve in ("roc_curve", "pr_curve"):
        ours, theirs = (getattr(each, curve)() for each in (back, result))
        for column, expected in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(column, expected)
        np.testing.assert_array_equal(ours(at), theirs(at))


def test_unknown_fields_are_ignored(saved):
    def add(data):
        part = data["slices"][0]
        auc, curves = part["metrics"]["roc_auc"], part["curves"]
        for each in (data, part, auc, curves, curves["roc"], data["privacy"]):
            each.update(later={"x": [1]})

    alter(saved, add)
    assert fg.Evaluation.from_json(saved).record == make_result().record


@pytest.mark.parametrize("part", ["plan", "estimator"])
def test_what_was_measured_has_no_unknown_part(saved, part):
    alter(saved, lambda data: data[part].update(later={"x": [1]}))
    refused(fg.RecordError, "later", fg.Evaluation.from_json, saved)


@pytest.mark.parametrize("name", ["fedgauge-evaluation/2", "fedgauge-evaluation/10", "other/1"])
def test_other_formats_are_refused(saved, name):
    alter(saved, lambda data: data.update(format=name))
    with pytest.raises(fg.RecordError) as caught:
        fg.Evaluation.from_json(saved)
    assert name in str(caught.value)
    assert "'fedgauge-evaluation/1'" in str(caught.value)


def test_content_that_is_no_result_or_another_format(saved):
    whole = saved.read_bytes()
    other = (b"hello", b"null", b"[]", b"{}", b'"text"', b"\xff\xfe\x00", b"\0" * 20, b"PAR1")
    later = (b'{"later":"\xff",' + whole[1:], b'{"later":' + NESTED + b"," + whole[1:])
    for content in (*other, *later, b"", whole[: len(whole) // 2], whole[:-2]):
        saved.write_bytes(content)
        with pytest.raises(fg.RecordError, match=r"result\.json: this is not a fedgauge result"):
            fg.Evaluation.from_json(saved)
    with pytest.raises(fg.RecordError, match="evaluation/2"):
        Record.from_json(b'{"format": "fedgauge-evaluation/2", "all": "different"}')


def counts_of(data):
    return data["slices"][0]["counts"]


BROKEN = [
    pytest.param(lambda data: counts_of(data)[0].pop(), id="one bin less"),
    pytest.param(lambda data: counts_of(data)[1].append(0), id="one bin more"),
    pytest.param(lambda data: counts_of(data).pop(), id="one row less"),
    pytest.param(lambda data: counts_of(data).append([0] * 64), id="one row more"),
    pytest.param(lambda data: data["slices"][0].update(counts=[[], []]), id="no bins"),
    pytest.param(lambda data: data["slices"][0].update(counts=[1, 2]), id="flat"),
    pytest.param(lambda data: counts_of(data)[0].__setitem__(3, -1), id="negative"),
    pytest.param(lambda data: counts_of(data)[0].__setitem__(3, 1.5), id="not whole"),
    pytest.param(lambda data: counts_of(data)[0].__setitem__(3, "7"), id="text"),
    pytest.param(lambda data: counts_of(data)[0].__setitem__(3, 2**63), id="over 63 bits"),
    pytest.param(lambda data: counts_of(data)[0].__setitem__(3, 2**80), id="over 64 bits"),
    pytest.param(lambda data: data["slices"][0].update(counts=[[2**62] * 64] * 2), id="large sum"),
    pytest.param(lambda data: data["slices"][0].update(counts=[[0] * 64] * 2), id="no examples"),
    pytest.param(lambda data: data.update(clients=0), id="no clients"),
    pytest.param(lambda data: data.update(clients=-3), id="negative clients"),
    pytest.param(lambda data: data.update(reports=0), id="no reports"),
    pytest.param(lambda data: data.update(reports=5), id="reports of a sum"),
    pytest.param(lambda data: data.update(slices=[]), id="no slices"),
    pytest.param(lambda data: data["slices"].append(data["slices"][0]), id="two slices"),
    pytest.param(lambda data: data["plan"]["axis"].update(bins=32), id="other bins"),
    pytest.param(lambda data: data["plan"]["axis"].update(high=2.0), id="other axis"),
    pytest.param(lambda data: data["plan"].update(tree=[3]), id="other tree"),
    pytest.param(lambda data: data["privacy"].update(claim="proven"), id="unknown claim"),
    pytest.param(
        lambda data: data.update(estimator={"kind": "quantile", "quantiles": 1}), id="estimator"
    ),
    pytest.param(lambda data: data.pop("plan"), id="no plan"),
    pytest.param(lambda data: data.pop("format"), id="no format"),
]


@pytest.mark.parametrize("change", BROKEN)
def test_altered_result_is_refused(saved, change):
    alter(saved, change)
    refused(fg.RecordError, "not a fedgauge result", fg.Evaluation.from_json, saved)


def test_files_and_folders_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(fg.RecordError, match=r"cannot read .*absent\.json: there is no such file"):
        fg.Evaluation.from_json(tmp_path / "absent.json")
    refused(fg.RecordError, "cannot read", fg.Evaluation.from_json, tmp_path)
    result = make_result()
    refused(fg.RecordError, "cannot write", result.to_json, tmp_path)
    (tmp_path / "file").touch()
    for folder in ("absent", "file"):
        with pytest.raises(fg.RecordError, match=r"cannot write .*r\.json: make its folder first"):
            result.to_json(tmp_path / folder / "r.json")


@pytest.mark.parametrize(
    ("step", "error", "told"),
    [
        *(
            (step, OSError(errno.ENOSPC, "No space left on device"), fg.RecordError)
            for step in ("replace", "fdopen", "chmod")
        ),
        ("replace", KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch, step, error, told):
    def fails(*_, **__):
        raise error

    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        with pytest.raises(told) as caught:
            write_whole(path, b"new")
    if told is fg.RecordError:
        assert "cannot write" in str(caught.value)
        assert "r.json: No space left" in str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_replaces_the_old_file_with_ordinary_rights(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(b"old and longer")
    before = os.umask(0o027)
    try:
        write_whole(path, b"new")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def sums_of(data):
    return data["slices"][0]["score_sums"]


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS.keys())
def test_score_sums_survive_json(tmp_path, options):
    result = make_result(CLIPPING, score_sums=True, **options)
    result.to_json(tmp_path / "r.json")
    back = fg.Evaluation.from_json(tmp_path / "r.json")
    assert back.record == result.record
    assert back.record.to_json() == result.record.to_json()
    assert back.released.sums.dtype == result.released.sums.dtype == np.int64
    np.testing.assert_array_equal(back.released.sums, result.released.sums)
    assert sums_of(plain(result)) == result.released.sums.tolist()
    assert np.any(result.released.sums < 0) == bool(options)


def test_another_estimator_keeps_the_sums_and_none_are_no_field():
    result = make_result(CLIPPING, score_sums=True)
    again = result.with_estimator(fg.Quantile(16))
    np.testing.assert_array_equal(again.released.sums, result.released.sums)
    assert again.record.slices[0].score_sums == result.record.slices[0].score_sums
    assert "score_sums" not in plain(make_result())["slices"][0]
    assert make_result().released.sums is None


BROKEN_SUMS = [
    pytest.param(lambda data: sums_of(data)[0].pop(), id="one bin less"),
    pytest.param(lambda data: sums_of(data).pop(), id="one row less"),
    pytest.param(lambda data: sums_of(data).append([0] * 64), id="one row more"),
    pytest.param(lambda data: data["slices"][0].pop("score_sums"), id="none"),
    pytest.param(lambda data: data["slices"][0].update(score_sums=[1, 2]), id="flat"),
    pytest.param(lambda data: sums_of(data)[0].__setitem__(3, "7"), id="text"),
    pytest.param(lambda data: sums_of(data)[0].__setitem__(3, None), id="null"),
    pytest.param(lambda data: sums_of(data)[0].__setitem__(3, 1e300), id="huge"),
    pytest.param(lambda data: sums_of(data)[0].__setitem__(3, 2**64), id="over 64 bits"),
    pytest.param(
        lambda data: data["plan"]["rounds"][0].pop("sums"), id="not in the plan"
    ),
]  # fmt: skip
EXACT_BROKEN_SUMS = [
    pytest.param(lambda data: sums_of(data)[0].__setitem__(3, -1), id="negative"),
    pytest.param(lambda data: sums_of(data)[0].__setitem__(3, 1.5), id="not whole"),
    pytest.param(
        lambda data: sums_of(data)[0].__setitem__(3, 256 * counts_of(data)[0][3] + 1), id="too high"
    ),
]


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("change", BROKEN_SUMS)
def test_altered_sums_are_refused(tmp_path, change, options):
    make_result(CLIPPING, score_sums=True, **options).to_json(tmp_path / "r.json")
    alter(tmp_path / "r.json", change)
    refused(fg.RecordError, "not a fedgauge result", fg.Evaluation.from_json, tmp_path / "r.json")


@pytest.mark.parametrize("change", EXACT_BROKEN_SUMS)
def test_altered_exact_sums_are_refused(tmp_path, change):
    make_result(CLIPPING, score_sums=True).to_json(tmp_path / "r.json")
    alter(tmp_path / "r.json", change)
    refused(fg.RecordError, "score sums do not fit", fg.Evaluation.from_json, tmp_path / "r.json")


@pytest.fixture
def local(tmp_path):
    path = tmp_path / "local.json"
    make_result(AXES["wide"], privacy=fg.LocalDP(4.0), seed=1).to_json(path)
    return path


@pytest.mark.parametrize("of_plan", [COHORT_OF_ONE, None], ids=str)
def test_local_reports_have_no_cohort(local, of_plan):
    assert fg.Evaluation.from_json(local).privacy.cohort is None
    alter(local, lambda data: data["plan"].update(cohort=of_plan))
    alter(local, lambda data: data["privacy"].update(cohort=COHORT_OF_ONE))
    with pytest.raises(fg.RecordError):
        fg.Evaluation.from_json(local)
    for spoil in (
        lambda data: data.update(privacy=3),
        lambda data: data["slices"][0]["counts"][0].__setitem__(0, 10**400),  # beyond all floats
    ):
        make_result(AXES["wide"], privacy=fg.LocalDP(4.0), seed=1).to_json(local)
        alter(local, spoil)
        refused(fg.RecordError, "this is not a fedgauge result", fg.Evaluation.from_json, local)


@pytest.mark.parametrize(
    ("privacy", "edit"),
    [
        (fg.SecureAggregation(), {"epsilon": 0.5}),
        (fg.SecureAggregation(), {"unit": "example"}),
        (fg.SecureAggregation(), {"model": "distributed-dp"}),
        (fg.DistributedDP(1.0), {"epsilon": 0.999}),
        (fg.DistributedDP(1.0), {"epsilon": None}),
        (fg.DistributedDP(1.0), {"delta": 1e-12}),
        (fg.DistributedDP(1.0, delta=1e-6, noise="skellam"), {"delta": 1.00001e-6}),
        (fg.DistributedDP(1.0), {"neighbours": "replace-one"}),
        (fg.DistributedDP(1.0), {"claim": "enforced"}),
        (fg.DistributedDP(1.0, delta=1e-6, noise="skellam"), {"claim": "enforced"}),
        (fg.LocalDP(4.0), {"epsilon": 1.0}),
        (fg.LocalDP(4.0), {"public_inputs": []}),
    ],
    ids=str,
)
def test_a_statement_follows_from_the_plan(tmp_path, privacy, edit):
    path = tmp_path / "result.json"
    make_result(AXES["wide"], privacy=privacy, seed=1 if privacy.adds_noise else None).to_json(path)
    fg.Evaluation.from_json(path)
    alter(path, lambda data: data["privacy"].update(edit))
    (name,) = edit
    # A protocol adds to delta, so a claim that one ran shows there.
    named = "delta" if name == "claim" else name
    with pytest.raises(fg.RecordError, match=rf"does not follow from its plan \(.*{named}"):
        fg.Evaluation.from_json(path)


def test_metrics_and_the_cohort_follow_from_counts_and_plan(saved):
    before = fg.Evaluation.from_json(saved)
    alter(saved, lambda data: data["slices"][0]["metrics"]["roc_auc"].update(value=0.999))
    alter(saved, lambda data: data["slices"][0].update(curves={}))
    after = fg.Evaluation.from_json(saved)
    assert after.roc_auc == before.roc_auc
    assert after.record == before.record
    for cohort in (None, {"min_survivors": 9, "max_colluding": 1}):
        alter(saved, lambda data, cohort=cohort: data["privacy"].update(cohort=cohort))
        with pytest.raises(fg.RecordError, match=r"does not follow from its plan \(cohort\)"):
            fg.Evaluation.from_json(saved)
