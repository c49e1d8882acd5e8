"""A label party that answers alone: its answer, by files, and a result from several answers."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge import storage
from fedgauge.data.columns import read_leniently
from fedgauge.data.row_checks import (
    ID,
    NO_BIN,
    LenientRows,
    Oddities,
    PlacedRows,
    RowSummary,
    in_short,
)
from fedgauge.engines.contribution import contribution, count_leniently, release, summarise
from fedgauge.errors import (
    ExchangeError,
    FedgaugeError,
    InputError,
    NoSignal,
    PlanError,
    PlanRefused,
    RecordError,
    SiteError,
    located,
)
from fedgauge.estimation.counts import Released
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.estimation.sanity import chance_of_each, doubt, is_possible
from fedgauge.histograms.channels import LenientLabelReader
from fedgauge.keys import SigningKey, verify
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.label_rounds import BYTES_PER_NUMBER
from fedgauge.privacy import DistributedDP, LocalDP
from fedgauge.privacy.keystream import Keystream
from fedgauge.privacy.local import Flags, debias
from fedgauge.results.evaluation import Evaluation
from fedgauge.site import Site
from fedgauge.site.ledger_entries import Departure
from fedgauge.storage import read_bounded
from fedgauge.vertical.auc import (
    MECHANISMS,
    LabelAuc,
    PairAnswer,
    auc_estimate,
    is_pair_possible,
    noisy_pair,
)
from fedgauge.vertical.files import (
    MOST_BYTES,
    RankTotals,
    Totals,
    covered,
    decoded,
    read_file,
    terms_of,
)
from fedgauge.vertical.flips import Flips, count_by_bin
from fedgauge.vertical.label_party import NamedLabels

FORMAT: Final = "fedgauge-answer/1"
_SIGNED_AS: Final = b"fedgauge answer\0"
SESSION_BYTES: Final = 32
_MOST: Final = (1 << (8 * BYTES_PER_NUMBER - 1)) - 1


class LabelAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A label party's numbers, private by themselves: noisy, or of labels as flipped.

    All answers to a plan have the same size, whatever is in them.

    Examples
    --------
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> plan = EvaluationPlan.for_pairs("adaptive", 5000, privacy)
    >>> answer = LabelAnswer.signed(SigningKey.generate(), plan, bytes(32), [12, -345])
    >>> LabelAnswer.from_bytes(answer.to_bytes()).numbers
    [12, -345]
    """

    format: str  # ``"fedgauge-answer/1"``
    party: bytes  # the party's public key
    plan: str  # its digest, which names the bins or ranks that were told
    session: bytes  # random bytes, by which the party's ledger knows the answer
    values: bytes  # the numbers, each in 16 little-endian bytes
    signature: bytes  # the party's

    @classmethod
    def signed(
        cls, key: SigningKey, plan: EvaluationPlan, session: bytes, numbers: Sequence[int]
    ) -> Self:
        """The answer to a plan."""
        # A wider number is far out in the noise of an epsilon that tells nothing: cut, it still
        # tells nothing, and takes as many bytes as any other.
        cut = (min(max(int(number), -_MOST), _MOST) for number in numbers)
        values = b"".join(
            number.to_bytes(BYTES_PER_NUMBER, "little", signed=True) for number in cut
        )
        unsigned = cls(FORMAT, key.public, plan.digest, session, values, b"")
        return msgspec.structs.replace(unsigned, signature=key.sign(covered(unsigned, _SIGNED_AS)))

    def to_bytes(self) -> bytes:
        """The answer as a file."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read an answer; refused unless it is whole, in its one form, and its party signed it."""
        answer = decoded(cls, data, FORMAT)
        if answer is None:
            raise InputError(
                f"this is not an answer as this fedgauge writes them ({FORMAT}), or not all of it."
            )
        if not verify(answer.party, covered(answer, _SIGNED_AS), answer.signature):
            raise InputError(
                "the answer was changed after its party signed it, or another one signed it. Ask "
                "the party to send it again."
            )
        if len(answer.values) % BYTES_PER_NUMBER or len(answer.session) != SESSION_BYTES:
            raise InputError("the answer is cut off.")
        return answer

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file of an answer."""
        with located(str(path)):
            return cls.from_bytes(read_file(path))

    def __len__(self) -> int:
        """How many numbers there are."""
        return len(self.values) // BYTES_PER_NUMBER

    @property
    def numbers(self) -> list[int]:
        """The numbers."""
        return [
            int.from_bytes(self.values[start : start + BYTES_PER_NUMBER], "little", signed=True)
            for start in range(0, len(self.values), BYTES_PER_NUMBER)
        ]


_LOG: Final = logging.getLogger("fedgauge")
_FOLDER: Final = "answers"
_FLIPS: Final = "labels.flips"


class Answered(NamedTuple):
    """Where an answer is, and whether it is the one that was made before."""

    path: Path
    stood: bool


class _Numbers(NamedTuple):
    """What an answer is made of, and what the rows came to."""

    values: list[int]
    counted: RowSummary


def answer_alone(
    site: Site,
    plan: EvaluationPlan,
    rows: NamedLabels,
    path: str | Path,
    *,
    flips: str | Path | None = None,
    ready: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = _LOG.warning,
    show: Callable[[RowSummary], None] = lambda _: None,
) -> Answered:
    """Write the file with which a label party answers a plan by itself.

    The plan is judged by the site file and the bins or ranks by the plan; then epsilon is charged,
    and only then labels are read. From then on nothing about them stops the answer: what was odd is
    told to the operator (`tell`, and `show` for what rows came to). Asked again, the site gives the
    same bytes, and nothing is charged. A crash may cost budget, but never leaves an answer that
    nobody paid for. `ready` is called before the charge, once nothing but the budget can stop it.

    Labels to be flipped are read first, and flipped into a file of the site, or found there
    (`flips`, by default ``labels.flips``): they are charged by their digest, the first time that
    they are told.
    """
    target = Path(path).absolute()
    _check_target(target)
    site.judge_answer(plan)
    _check_rows(plan, rows, site)
    ready()
    kept = _kept_path(site, plan)
    with _kept_in(kept.parent):
        stood = kept.exists()
        made = None
        if not stood:
            answer, made = _make(site, plan, rows, Path(flips or site.folder / _FLIPS))
            storage.replace(kept, answer.to_bytes())
        answer = _read(kept, plan, site)
        data = answer.to_bytes()
        # Before others can fetch it; again where a crash came in between.
        site.ledger.record_sent(answer.session, Departure.of("answer", data))
    _write(target, data)
    if made is not None:
        show(made)
        for sentence in rows.warnings(made, plan):
            tell(sentence)
    return Answered(target, stood)


class Preview(NamedTuple):
    """What answering with a file would come to, for the party's operator."""

    counted: RowSummary
    warnings: tuple[str, ...]
    refusal: str | None  # why the site would not answer
    stood: bool  # whether it has answered before


def preview(site: Site, plan: EvaluationPlan, rows: NamedLabels) -> Preview:
    """What would become of these rows, were this party to answer with them.

    No noise is drawn, and neither an answer nor an entry in the ledger is made. Whoever decides by
    it whether to answer tells by that what no engine would.
    """
    refusal = _refusal(site, plan)
    _check_rows(plan, rows, site)
    labels, _, oddities = _read_placed(plan, PlacedRows(rows.source(), rows.places(plan, site)))
    counted = RowSummary(int(np.count_nonzero(labels)), oddities)
    stood = _kept_path(site, plan).exists()
    return Preview(counted, tuple(rows.warnings(counted, plan)), refusal, stood)


def _refusal(site: Site, plan: EvaluationPlan) -> str | None:
    """Why the site file or the ledger says no; of flips the ledger is asked when they are made."""
    try:
        site.judge_answer(plan)
        if not plan.privacy.flips_labels:
            site.reserve(os.urandom(SESSION_BYTES), plan, check_only=True)
    except FedgaugeError as error:
        return str(error)
    return None


def _kept_path(site: Site, plan: EvaluationPlan) -> Path:
    return site.folder / _FOLDER / f"{plan.digest[:32]}.answer"


def _check_target(target: Path) -> None:
    if target.exists():
        raise InputError(
            f"{target} exists. If it is this site's answer, send it again: it stays the same. "
            "Else name another place with --output."
        )
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise RecordError(f"cannot write {target}: there is no such folder, or it is read-only.")


def _check_rows(plan: EvaluationPlan, rows: NamedLabels, site: Site) -> None:
    """Refuse, before anything is spent, what cannot be answered."""
    rows.check(plan, site)
    if plan.privacy.flips_labels and rows.scored:
        raise InputError(
            "flipped labels are found again by id, and these rows are named by their scores. Where "
            "parties score their examples themselves, answer with noise."
        )
    if plan.paired is not None:
        try:
            terms_of(plan, rows.places(plan, site))
        except (ArithmeticError, ValueError):
            raise PlanRefused("the plan's noise is beyond what can be accounted for.") from None


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """One answer at a time: two that are made at once would both be paid for."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with storage.locked(folder / ".lock"):
            yield
    except OSError as error:
        raise SiteError(f"cannot keep an answer in {folder}: {error.strerror}.") from None


def _make(
    site: Site, plan: EvaluationPlan, rows: NamedLabels, flips: Path
) -> tuple[LabelAnswer, RowSummary]:
    session = os.urandom(SESSION_BYTES)
    if plan.privacy.flips_labels:
        numbers = _flipped(site, plan, rows, flips, session)
    else:
        site.reserve(session, plan)
        site.ledger.commit(session)
        count = _by_bins if plan.paired is None else _as_pair
        numbers = count(site, plan, rows)
    return LabelAnswer.signed(site.key, plan, session, numbers.values), numbers.counted


def _by_bins(site: Site, plan: EvaluationPlan, rows: NamedLabels) -> _Numbers:
    """Positives by bin, with the noise of a cohort of one: all of it."""
    histogram, oddities = count_leniently(plan, lambda: rows.data(plan, site))
    numbers = contribution(plan, histogram, Keystream())
    return _Numbers(numbers.tolist(), summarise(plan.task, histogram.counts, oddities))


def _as_pair(site: Site, plan: EvaluationPlan, rows: NamedLabels) -> _Numbers:
    """The number of positives and the sum of their ranks, each with all of its noise."""
    places = rows.places(plan, site)
    labels, ranks, oddities = _read_placed(plan, PlacedRows(rows.source(), places))
    pair = noisy_pair(labels, ranks, terms_of(plan, places), Keystream())
    return _Numbers(list(pair), RowSummary(int(np.count_nonzero(labels)), oddities))


def _read_placed(
    plan: EvaluationPlan, rows: PlacedRows
) -> tuple[Flags, NDArray[np.int64], Oddities]:
    """Labels and ranks whatever rows hold; none where they cannot be read to their end."""
    reader, lenient = LenientLabelReader(plan.task.positive), LenientRows(rows)
    labels: list[Flags] = [np.zeros(0, dtype=bool)]
    ranks: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    try:
        for batch in lenient:
            labels.append(reader(batch.labels).astype(bool))
            ranks.append(batch.y_score.astype(np.int64))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return labels[0], ranks[0], Oddities(failure=in_short(error))
    told = np.concatenate(labels)
    odd = Oddities(len(told), missing_labels=reader.missing, other_labels=reader.unusable)
    return told, np.concatenate(ranks), replace(odd, **lenient.left_out)


def _flipped(
    site: Site, plan: EvaluationPlan, rows: NamedLabels, flips: Path, session: bytes
) -> _Numbers:
    """Positives by bin among labels as flipped, once for all evaluations."""
    assert isinstance(plan.privacy, LocalDP)  # noqa: S101  (it flips labels)
    ids, labels, oddities = _read_named(plan, rows)
    kept = Flips.kept(flips, ids, labels, epsilon=plan.privacy.epsilon, positive=plan.task.positive)
    site.reserve(session, plan, flips=kept.digest)
    site.ledger.commit(session)
    places = rows.places(plan, site)
    found = pc.fill_null(pc.index_in(ids, value_set=places.keys), -1).to_numpy()
    # The last stands for ids that are not listed.
    bins = np.append(places.bins, np.int32(NO_BIN))[found]
    asked = bins != NO_BIN
    counts = count_by_bin(kept.told[asked], bins[asked], plan.axis.bins)
    odd = replace(
        oddities,
        rows=int(np.count_nonzero(asked)),
        unlisted=int(np.count_nonzero(~asked)),
        unlabelled=int(np.count_nonzero(places.bins != NO_BIN) - np.count_nonzero(asked)),
    )
    return _Numbers(counts.tolist(), RowSummary(int(np.count_nonzero(labels[asked])), odd))


def _read_named(plan: EvaluationPlan, rows: NamedLabels) -> tuple[pa.Array, Flags, Oddities]:
    """All labels of a file by id, the first of each id, whatever a row holds.

    Labels flipped are flipped together: of a file that cannot be read to its end there are none,
    and nothing is charged.
    """
    reader, malformed = LenientLabelReader(plan.task.positive), [0]
    keys: list[pa.Array] = []
    labels: list[Flags] = [np.zeros(0, dtype=bool)]

    def skip() -> None:
        malformed[0] += 1

    try:
        for ids, column in rows.source().leniently(skip):
            keys.append(ids)
            labels.append(reader(read_leniently("labels", column)).astype(bool))
    except FedgaugeError:
        raise
    except Exception as error:
        raise InputError(f"{rows.path}: {in_short(error)}") from None
    ids, told = pa.chunked_array(keys, ID).combine_chunks(), np.concatenate(labels)
    named = ids.is_valid().to_numpy(zero_copy_only=False)
    codes = pc.index_in(ids, value_set=ids.unique()).to_numpy()
    first = np.unique(codes, return_index=True)[1]
    first = first[named[first]]
    return (
        ids.take(pa.array(first)),
        told[first],
        Oddities(
            missing_labels=reader.missing,
            other_labels=reader.unusable,
            malformed=malformed[0] + int(np.count_nonzero(~named)),
            repeated=int(np.count_nonzero(named)) - len(first),
        ),
    )


def _read(kept: Path, plan: EvaluationPlan, site: Site) -> LabelAnswer:
    try:
        answer: LabelAnswer | None = LabelAnswer.from_bytes(read_bounded(kept, MOST_BYTES))
    except InputError:
        answer = None
    except OSError as error:
        raise SiteError(f"cannot read {kept}: {error.strerror}.") from None
    if answer is None or (answer.party, answer.plan) != (site.key.public, plan.digest):
        raise SiteError(
            f"{kept} is not the answer that this site made: it was damaged or changed. Restore it "
            "from a copy, or move it away: another answer costs epsilon again."
        )
    return answer


def _write(target: Path, data: bytes) -> None:
    try:
        storage.replace(target, data, mode=0o644)
    except OSError as error:
        raise RecordError(
            f"cannot write {target}: {error.strerror}. The answer is kept: ask for it again, with "
            "another --output, and nothing more is charged."
        ) from None


_ASK: Final = "Ask that party for the file it wrote for this plan."


def conclude_alone(
    site: Site,
    plan: EvaluationPlan,
    answers: Iterable[LabelAnswer],
    *,
    without_missing: bool = False,
    estimator: Estimator = Aligned(),
) -> Evaluation | LabelAuc:
    """The result of what label parties answered alone, each at most once.

    It claims ``"enforced"``: every answer was private before it left its party. No party confirms
    the result, so it is not signed: it rests on the word of whoever scored, whose `site` keeps what
    goes with the bins or ranks. `without_missing` goes on without parties that did not answer; not
    for pairs, whose ranks are among all.
    """
    if not plan.is_alone:
        raise PlanError(
            "under this plan parties do not answer alone: their sum is opened by `fedgauge "
            "exchange advance`."
        )
    kind = Totals if plan.paired is None else RankTotals
    totals: Totals | RankTotals = kind.kept(site, plan)
    given = _by_party(site, plan, answers, totals.parties)
    missing = [site.called(party) for party in totals.parties if party not in given]
    if isinstance(totals, RankTotals):
        if missing:
            raise ExchangeError(
                f"{', '.join(missing)} did not answer yet, and ranks depend on the examples of "
                "all parties. Wait for the file, or assign again without."
            )
        return _auc(site, plan, totals, [PairAnswer(*given[party]) for party in totals.parties])
    if not given or (missing and not without_missing):
        raise ExchangeError(
            f"{', '.join(missing)} did not answer yet. Wait for the file, or go on without: "
            "--without-missing."
            if given
            else "there is no answer, so there is nothing to evaluate."
        )
    released = replace(
        _released(site, plan, totals, given), doubted=_doubted(site, plan, totals, given)
    )
    statement = plan.statement("enforced", totals.hints)
    return Evaluation(plan, statement, released, estimator=estimator)


def _by_party(
    site: Site, plan: EvaluationPlan, answers: Iterable[LabelAnswer], parties: Sequence[bytes]
) -> dict[bytes, list[int]]:
    """The numbers of each party; refused where one is not of this plan, or comes twice."""
    given: dict[bytes, list[int]] = {}
    for answer in answers:
        name = site.called(answer.party)
        if answer.party not in parties:
            raise InputError(
                f"{name} is no party of this plan: it got no bins. Leave its answer out, or "
                "assign again with its roster."
            )
        if answer.plan != plan.digest:
            raise InputError(f"the answer of {name} is to another plan. {_ASK}")
        if answer.party in given:
            raise InputError(f"{name} answered twice. Keep one of both: each has noise of its own.")
        if len(answer) != plan.numbers:  # before so many are made of some bytes
            raise InputError(f"the answer of {name} has another length than the plan asks for.")
        given[answer.party] = answer.numbers
    return given


def _released(
    site: Site, plan: EvaluationPlan, totals: Totals, given: Mapping[bytes, Sequence[int]]
) -> Released:
    known = dict(totals.by_party)
    for party, numbers in given.items():
        if plan.privacy.flips_labels:
            fits = all(0 <= told <= most for told, most in zip(numbers, known[party], strict=True))
        else:
            fits = all(abs(number) <= plan.most_per_count for number in numbers)
        if not fits:
            raise InputError(
                f"the answer of {site.called(party)} has counts that no labels have. {_ASK}"
            )
    return _completed(plan, totals, given)


def _completed(
    plan: EvaluationPlan, totals: Totals, given: Mapping[bytes, Sequence[int]]
) -> Released:
    """Negatives and positives by bin, over these parties."""
    total = np.sum([np.array(numbers, dtype=np.int64) for numbers in given.values()], axis=0)
    if not plan.privacy.flips_labels:
        return totals.complete(release(plan, total, len(given)), given)
    known = dict(totals.by_party)
    examples = np.sum([known[party] for party in given], axis=0)
    positives = debias(total, examples, plan.flipped.chance)
    return totals.complete(Released(plan.axis, positives[np.newaxis], len(given)), given)


def _doubted(
    site: Site, plan: EvaluationPlan, totals: Totals, given: Mapping[bytes, Sequence[int]]
) -> tuple[str, ...]:
    """Names of parties whose counts labels of their examples do not give."""
    chance, ends = chance_of_each(len(given)), np.cumsum(plan.final.nodes)[:-1].tolist()
    return tuple(
        site.called(party)
        for party, numbers in given.items()
        if not is_possible(
            plan,
            _completed(plan, totals, {party: numbers}),
            chance,
            np.split(np.array(numbers, dtype=np.int64), ends),
        )
    )


def _auc(
    site: Site, plan: EvaluationPlan, totals: RankTotals, pairs: Sequence[PairAnswer]
) -> LabelAuc:
    assert plan.paired is not None and isinstance(plan.privacy, DistributedDP)  # noqa: S101, PT018
    name, known = plan.paired.mechanism, totals.known
    mechanism, chance = MECHANISMS[name], chance_of_each(len(pairs))
    terms = mechanism.terms(known, plan.privacy)
    doubted = tuple(
        site.called(party)
        for party, pair, ranks, each in zip(totals.parties, pairs, totals.ranks, terms, strict=True)
        if not is_pair_possible(pair, ranks, each, chance)
    )
    try:
        auc = auc_estimate(pairs, mechanism, known, plan.privacy)
    except NoSignal as error:
        if not doubted:
            raise
        raise NoSignal(f"{doubt(doubted)} As it is there is no result: {error}") from None
    statement = plan.statement("enforced", totals.hints)
    return LabelAuc(auc, statement, name, len(pairs), totals.examples, doubted=doubted)
