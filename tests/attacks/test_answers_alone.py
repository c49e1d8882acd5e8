"""Label parties that answer alone, against whoever scored, other parties, and who carries files."""

import msgspec
import numpy as np
import pytest
from alone_world import FLIPS, GAUSSIAN, NOISE, TWO, make_alone
from platform_world import BOUGHT, SHOPS
from refusals import refused

import fedgauge as fg
from fedgauge.engines.exchange import Exchange, join
from fedgauge.errors import ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.vertical.answers import LabelAnswer, answer_alone
from fedgauge.vertical.files import assignment_digest

EVERY = {
    "noise": (NOISE, None),
    "flips": (FLIPS, None),
    "adaptive": (NOISE, "adaptive"),
    "laplace-global": (NOISE, "laplace-global"),
    "gaussian": (GAUSSIAN, "gaussian"),
}
SHOP, OTHER = TWO


@pytest.fixture
def world(tmp_path):
    return make_alone(tmp_path)


def write(world, labels):
    rows = "".join(f"u{i},{label}\n" for i, label in zip(world.rows_of(SHOP), labels, strict=True))
    (world.folder / f"{SHOP}.csv").write_text(f"user,bought\n{rows}")


def forged(world, made, places):
    """Bins of a hostile scorer, bound to a plan as those of an honest one are."""
    bins = made.bins[world.keys[SHOP]]
    bare = msgspec.structs.replace(bins, places=np.array(places, "<i4").tobytes(), commitments=())
    told = ((bins.party, bare.commitment),)
    world.give(SHOP, msgspec.structs.replace(bare, commitments=told))
    task = msgspec.structs.replace(made.plan.task, assignment=assignment_digest(told))
    return msgspec.structs.replace(made.plan, task=task)


@pytest.mark.parametrize("kind", EVERY)
def test_files_and_words_are_alike_whatever_the_labels(world, kind, caplog, capsys):
    """No label, all positive, one flipped: files of one size, and nothing said to others."""
    rows = len(world.rows_of(SHOP))
    sizes, kept = set(), set()
    for number, positives in enumerate((0, 1, rows // 2, rows)):
        write(world, ["yes"] * positives + ["no"] * (rows - positives))
        made, path = world.told(*EVERY[kind]), world.folder / f"{number}.answer"
        world.answers(made.plan, SHOP, path, flips=world.folder / f"{number}.flips")
        sizes.add(path.stat().st_size)
        kept.add(len((world.folder / f"{number}.flips").read_bytes()) if kind == "flips" else 0)
    assert len(sizes) == len(kept) == 1
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


def test_another_positive_label_is_refused_whatever_the_labels(tmp_path):
    """Flips of one question, asked another: answered only where labels are alike under both."""
    told = set()
    for one in ("no", "refunded"):
        world = make_alone(tmp_path / one, labels=("yes", "refunded"))
        write(world, [one] + ["no"] * (len(world.rows_of(SHOP)) - 1))
        plan = world.told(FLIPS).plan
        world.answers(plan, SHOP)
        task = msgspec.structs.replace(plan.task, positive="refunded")
        with pytest.raises(fg.SiteError) as caught:
            world.answers(msgspec.structs.replace(plan, task=task), SHOP, tmp_path / f"{one}.2")
        told.add(str(caught.value).replace(str(world.folder), ""))
        assert world.spent(SHOP) == FLIPS.epsilon
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["adaptive", "laplace-global", "gaussian"])
def test_ranks_that_nobody_has_are_refused_before_anything_is_spent(world, kind):
    made = world.told(*EVERY[kind])
    number = made.bins[world.keys[SHOP]].number
    honest = np.frombuffer(made.bins[world.keys[SHOP]].places, "<i4")
    for far in (number, 1 << 30, -2):
        plan = forged(world, made, [far, *honest[1:]])
        refused(ProtocolError, "a bin lies outside 0 to", world.answers, plan, SHOP)
    for wrong in (honest[1:], [*honest, 0]):
        plan = forged(world, made, wrong)
        refused(ProtocolError, "bins for", world.answers, plan, SHOP)
    assert world.spent(SHOP) == 0.0


def test_a_scorer_that_sets_one_example_apart_learns_no_more(tmp_path):
    """All other ranks are 0, or one bin holds one example: noise is as wide as that takes."""
    seen = []
    for name in ("once", "again", "a third time"):
        world = make_alone(tmp_path / name)
        made = world.told(mechanism="laplace-local")
        number = made.bins[world.keys[SHOP]].number
        rows = len(world.rows_of(SHOP))
        answer = world.answers(forged(world, made, [number - 1, *[0] * (rows - 1)]), SHOP)
        seen.append(answer.numbers)
    # Half of epsilon 8 for each: discrete Laplace of scale (number - 1) / 4. That all draws are
    # exactly the noise-free sum, or one is beyond 30 scales, has a chance below one in 10^9.
    assert {ranks for _, ranks in seen} - {0, number - 1}
    assert all(abs(ranks) < 9 * number for _, ranks in seen)
    assert all(abs(positives) < rows + 20 for positives, _ in seen)


def test_sums_answers_ranks_and_flips_of_the_same_labels_are_one_budget(tmp_path):
    """Whoever scored asks in every way there is, and again: all of it adds up, flips once."""
    world = make_alone(tmp_path, SHOPS, budget_epsilon=20.0)
    site, asked = world.site(SHOP), 0

    def ask(privacy, mechanism, **wanted):
        nonlocal asked
        asked += 1
        plan = world.told(privacy, mechanism, **wanted).plan
        world.answers(plan, SHOP, tmp_path / f"{asked}.answer")

    alone = {"cohort": fg.Cohort(1, 0)}
    world.start(world.run, world.assign().plan)  # a sum: 8
    join(Exchange(world.run, site), site, world.labels(SHOP))
    ask(NOISE, None, **alone)  # 16
    ask(FLIPS, None)  # 19
    for privacy, mechanism, wanted in ((NOISE, None, alone), (NOISE, "adaptive", {})):
        with pytest.raises(fg.BudgetExceeded, match="spent or reserved epsilon 19"):
            ask(privacy, mechanism, **wanted)
    ask(FLIPS, None)  # told before
    (site.folder / "labels.flips").unlink()
    refused(fg.BudgetExceeded, "spent or reserved epsilon 19", ask, FLIPS, None)


def test_bins_of_another_party_or_evaluation_are_refused(world):
    made = world.told()
    world.give(SHOP, made.bins[world.keys[OTHER]])
    refused(ProtocolError, "for another party", world.answers, made.plan, SHOP)
    world.told()
    refused(ProtocolError, "of another evaluation", world.answers, made.plan, SHOP)
    assert world.spent(SHOP) == 0.0


@pytest.mark.parametrize("kind", EVERY)
def test_an_answer_that_was_edited_is_refused(world, kind):
    data = world.answers(world.told(*EVERY[kind]).plan, SHOP).to_bytes()
    for place in range(0, len(data), 7):
        edited = bytearray(data)
        edited[place] ^= 1
        with pytest.raises(fg.InputError):
            LabelAnswer.from_bytes(bytes(edited))
    for cut in (data[:-1], data + b"\0", b"", b"\xff" * 40):
        with pytest.raises(fg.InputError):
            LabelAnswer.from_bytes(cut)


def test_an_answer_signed_anew_by_somebody_else_is_of_no_party(world):
    made = world.told()
    answers = [world.answers(made.plan, name) for name in TWO]
    stranger = SigningKey.generate()
    fake = LabelAnswer.signed(stranger, made.plan, bytes(32), answers[0].numbers)
    with pytest.raises(fg.InputError, match="is no party of this plan"):
        world.conclude(made.plan, [fake, answers[1]])
    claimed = msgspec.structs.replace(fake, party=answers[0].party)
    with pytest.raises(fg.InputError, match="changed after its party signed it"):
        LabelAnswer.from_bytes(claimed.to_bytes())


@pytest.mark.parametrize("kind", EVERY)
def test_answers_to_another_plan_or_twice_or_that_no_labels_give_are_refused(world, kind):
    old = world.told(*EVERY[kind])
    stale = world.answers(old.plan, SHOP)
    made = world.told(*EVERY[kind])
    fresh = [world.answers(made.plan, name, world.folder / f"{name}.2") for name in TWO]
    with pytest.raises(fg.InputError, match="the answer of shop-a is to another plan"):
        world.conclude(made.plan, [stale, fresh[1]])
    refused(fg.InputError, "shop-a answered twice", world.conclude, made.plan, [fresh[0], *fresh])
    key, honest, other = world.site(SHOP).key, fresh[0].numbers, fresh[1]
    for numbers in (honest[1:], [*honest, 0], []):
        fake = LabelAnswer.signed(key, made.plan, bytes(32), numbers)
        refused(fg.InputError, "another length", world.conclude, made.plan, [fake, other])
    if made.plan.paired is None:  # noise of a pair has no end
        beyond = (1 << 60, -(1 << 60)) if kind == "noise" else (len(SHOP) * 1000, -1)
        for number in beyond:
            fake = LabelAnswer.signed(key, made.plan, bytes(32), [number, *honest[1:]])
            with pytest.raises(fg.InputError, match="counts that no labels have"):
                world.conclude(made.plan, [fake, other])


def test_a_kept_answer_that_was_changed_is_not_sent(world):
    made = world.told()
    world.answers(made.plan, SHOP)
    (kept,) = (world.folder / SHOP / "answers").glob("*.answer")
    data = kept.read_bytes()
    kept.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(fg.SiteError, match="damaged or changed"):
        world.answers(made.plan, SHOP, world.folder / "2.answer")
    assert not (world.folder / "2.answer").exists()
    other = world.told()
    path = world.folder / SHOP / "answers" / f"{other.plan.digest[:32]}.answer"
    path.write_bytes(data)  # whole, and signed, but to another plan
    with pytest.raises(fg.SiteError, match="damaged or changed"):
        world.answers(other.plan, SHOP, world.folder / "2.answer")


def test_noise_beyond_accounting_or_less_than_promised_is_refused(world):
    tiny = fg.DistributedDP(
        1e-6, delta=1e-12, noise="discrete-gaussian", unit="label", neighbours="flip"
    )
    made = world.told(tiny, "gaussian")
    refused(fg.PlanRefused, "beyond what can be accounted for", world.answers, made.plan, SHOP)
    assert world.spent(SHOP) == 0.0
    made = world.told()
    (sent,) = made.plan.rounds
    weak = msgspec.structs.replace(sent, noise=tuple(2 * each for each in sent.noise))
    plan = msgspec.structs.replace(made.plan, rounds=(weak,))
    with pytest.raises(fg.PlanRefused, match="costs more"):
        answer_alone(world.site(SHOP), plan, world.labels(SHOP), world.file(SHOP))


@pytest.mark.parametrize("kind", EVERY)
def test_examples_that_the_party_never_listed_are_refused(world, kind):
    made = world.told(*EVERY[kind])
    bins = made.bins[world.keys[SHOP]]
    made.bins[bins.party] = msgspec.structs.replace(bins, ids=("stranger", *bins.ids[1:]))
    plan = forged(world, made, np.frombuffer(bins.places, "<i4"))
    refused(ProtocolError, "not those of a roster that this site made", world.answers, plan, SHOP)
    assert world.spent(SHOP) == 0.0


PAIRS = {
    "adaptive": NOISE,
    "orthogonal": NOISE,
    "laplace-global": NOISE,
    "laplace-local": NOISE,
    "gaussian": GAUSSIAN,
}
FAR = 10**9
ONE = fg.DistributedDP(1.0, unit="label", neighbours="flip")
POSITIVES = int(np.count_nonzero(BOUGHT[:: len(SHOPS)]))  # of the first shop, among 1,000 examples
LIES = {
    "every rank at the top": lambda _, ranks: (POSITIVES, ranks + FAR),
    "every rank at the bottom": lambda _, ranks: (POSITIVES, ranks - FAR),
    "wider than any word": lambda *_: (POSITIVES, -(1 << 126)),
    "more positives than examples": lambda *_: (1400, 0),
    "fewer positives than none": lambda *_: (-200, 0),
    "few positives with the ranks of many": lambda _, ranks: (20, ranks + 300_000),
}


def lie(world, made, numbers):
    """The answer that a hostile shop signs, in place of its own."""
    return LabelAnswer.signed(world.site(SHOP).key, made.plan, bytes(32), numbers)


def answers_of(world, made):
    """What both honestly answer, of which nothing is said."""
    honest = [world.answers(made.plan, name) for name in TWO]
    assert world.conclude(made.plan, honest).caution is None
    return honest


def blamed(world, made, numbers, honest):
    """The result when a shop lies, whose caution names it and nobody else."""
    result = world.conclude(made.plan, [lie(world, made, numbers), honest[1]])
    assert f"{SHOP} sent impossible numbers" in result.caution
    assert OTHER not in result.caution
    return result


@pytest.mark.parametrize("told", LIES.values(), ids=LIES)
@pytest.mark.parametrize("kind", PAIRS)
def test_a_pair_that_no_labels_have_is_a_caution_with_its_partys_name(world, kind, told):
    """The AUC was 1.000 (0.998 to 1.000), or 0.000, and nothing was said."""
    made = world.told(PAIRS[kind], kind)
    honest = answers_of(world, made)
    result = blamed(world, made, told(*honest[0].numbers), honest)
    assert result.caution in str(result)
    result.to_json(world.folder / "r.json")
    assert fg.LabelAuc.from_json(world.folder / "r.json").caution == result.caution


def test_a_pair_whose_result_says_nothing_still_names_its_party(world):
    """Fewer positives than others have is taken for noise that hides them."""
    made = world.told(mechanism="adaptive")
    other = world.answers(made.plan, OTHER)
    for positives in (-5000, 5000):
        with pytest.raises(fg.NoSignal, match=f"{SHOP} sent impossible numbers"):
            world.conclude(made.plan, [lie(world, made, (positives, 0)), other])


@pytest.mark.parametrize(
    ("bins", "number"),
    [(slice(31, 32), -100), (slice(0, 3), 400), (slice(0, 32), -15)],
    ids=["fewer than none", "more than examples", "a few fewer in each bin"],
)
@pytest.mark.parametrize("tree", [(32,), (8, 4)], ids=["flat", "tree"])
def test_counts_that_other_parties_rows_cover_are_a_caution_with_their_partys_name(
    world, tree, bins, number
):
    """The sum is such as rows have: whoever knows what each of them sent knows better."""
    for name, label in zip(TWO, ("no", "yes"), strict=True):
        rows = "".join(f"u{i},{label}\n" for i in world.rows_of(name))
        (world.folder / f"{name}.csv").write_text(f"user,bought\n{rows}")
    made = world.told(ONE, tree=tree)
    honest = answers_of(world, made)
    leaves = np.array(honest[0].numbers[-32:])
    leaves[bins] += number
    numbers = np.concatenate([leaves.reshape(n, -1).sum(axis=1) for n in made.plan.final.nodes])
    result = blamed(world, made, numbers, honest)
    result.to_json(world.folder / "r.json")
    assert fg.Evaluation.from_json(world.folder / "r.json").caution == result.caution


@pytest.mark.parametrize("way", [1, -1], ids=["raised", "lowered"])
@pytest.mark.parametrize("kind", ["flips", "flat", "tree"])
def test_a_little_too_much_in_each_of_many_bins_is_a_caution_with_its_partys_name(world, kind, way):
    """No bin was odd by itself: a tenth of the labels took an AUC from 0.86 to 0.46."""
    privacy = fg.LocalDP(1.0, unit="label") if kind == "flips" else ONE
    wanted = {"tree": (16, 4) if kind == "tree" else (128,)}
    made = world.told(privacy, **wanted)
    honest = answers_of(world, made)
    totals = np.array(dict(made.totals.by_party)[world.keys[SHOP]])[::way]
    if kind == "flips":  # as many as before, and none of them flipped
        told = np.diff(np.minimum(np.cumsum(totals[::-1]), sum(honest[0].numbers)), prepend=0)
        numbers = told[::-way]
    else:
        high = np.arange(len(totals)) >= len(totals) // 2
        leaves = np.where(high, totals + 6, -6)[::way]
        numbers = np.concatenate([leaves.reshape(n, -1).sum(axis=1) for n in made.plan.final.nodes])
    blamed(world, made, numbers, honest)


def test_levels_of_a_tree_that_tell_of_other_labels_are_a_caution(world):
    """None of the bins has a positive, and half of what is in all of them is."""
    made = world.told(tree=(8, 4))
    honest = answers_of(world, made)
    totals = np.array(dict(made.totals.by_party)[world.keys[SHOP]])
    blamed(world, made, [*totals.reshape(8, -1).sum(axis=1) // 2, *[0] * 32], honest)


def test_labels_that_are_none_of_them_flipped_are_a_caution_with_their_partys_name(world):
    """Of 1,000 labels flipped with a chance of 1 in 21, 14 or fewer are: once in 10^8."""
    made = world.told(FLIPS)
    honest = answers_of(world, made)
    totals = dict(made.totals.by_party)[world.keys[SHOP]]
    for numbers in ([0] * len(totals), totals):
        blamed(world, made, numbers, honest)


def test_parties_named_in_an_edited_result_are_names(world):
    made = world.told(mechanism="adaptive")
    numbers = [world.answers(made.plan, name) for name in TWO]
    auc = world.conclude(made.plan, [lie(world, made, (POSITIVES, FAR)), numbers[1]])
    binned = world.told()
    for name in TWO:
        world.file(name).unlink()
    answers = [world.answers(binned.plan, name) for name in TWO]
    wrong = [-999, *answers[0].numbers[1:]]
    counts = world.conclude(binned.plan, [lie(world, binned, wrong), answers[1]])
    for result in (auc, counts):
        path = world.folder / "r.json"
        result.to_json(path)
        text = path.read_text()
        for name in ("\\u001b[2J VERIFIED", "\\u202eshop", "", "x" * 1000):
            path.write_text(text.replace('"shop-a"', f'"{name}"'))
            assert path.read_text() != text
            with pytest.raises(fg.RecordError):
                type(result).from_json(path)
