"""A label party that answers alone, by files: what leaves is private by itself, without a sum."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedgauge.data.columns import read_leniently
from fedgauge.data.keyed import ID, NO_BIN, PlacedRows
from fedgauge.data.labels import LenientLabelReader
from fedgauge.data.lenient import LenientRows
from fedgauge.data.oddities import Counted, Oddities, in_short
from fedgauge.engines.contribution import contribution, count_leniently
from fedgauge.engines.named import NamedLabels
from fedgauge.errors import FedgaugeError, InputError, PlanRefused, RecordError, SiteError
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.summary import summarise
from fedgauge.privacy import LocalDP
from fedgauge.privacy.flipping import Flags
from fedgauge.privacy.keystream import Keystream
from fedgauge.site import Site
from fedgauge.site.entries import Departure
from fedgauge.storage import durable
from fedgauge.storage.whole import read_bounded
from fedgauge.vertical.answer import SESSION_BYTES, Answer
from fedgauge.vertical.flips import Flips, count_by_bin
from fedgauge.vertical.pairs import noisy_pair
from fedgauge.vertical.party_file import MOST_BYTES
from fedgauge.vertical.ranked import terms_of

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
    counted: Counted


def answer_alone(
    site: Site,
    plan: EvaluationPlan,
    rows: NamedLabels,
    path: str | Path,
    *,
    flips: str | Path | None = None,
    ready: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = _LOG.warning,
    show: Callable[[Counted], None] = lambda _: None,
) -> Answered:
    """Write the file with which a label party answers a plan by itself.

    The plan is judged by the site file and the bins or ranks by the plan; then epsilon is charged,
    and only then labels are read. From then on nothing about them stops the answer: what was odd is
    told to the operator. The site keeps its answer: asked again, it gives the same bytes, and
    nothing is charged. A crash may cost budget, but never leaves an answer that nobody paid for.

    Labels to be flipped are read first, and flipped into a file of the site, or found there: they
    are charged by their digest, the first time that they are told.

    Parameters
    ----------
    site
        The party's trust anchor.
    plan
        A plan that label parties answer alone.
    rows
        Where its labels are, and the bins or ranks that it was told.
    path
        The file to write.
    flips
        Where flipped labels are kept; by default ``labels.flips`` beside the site file.
    ready
        Called once nothing but the budget can stop the answer, before anything is charged.
    tell
        Takes what was odd about the rows, in words, for the operator alone.
    show
        Takes what the rows came to, for the operator alone.
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
            durable.replace(kept, answer.to_bytes())
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
    """What answering with a file would come to, for the party's operator.

    `refusal` says why the site would not answer, `stood` whether it has answered before.
    """

    counted: Counted
    warnings: tuple[str, ...]
    refusal: str | None
    stood: bool


def preview(site: Site, plan: EvaluationPlan, rows: NamedLabels) -> Preview:
    """What would become of these rows, were this party to answer with them.

    Rows are read here, and nothing of them leaves: no noise is drawn, and neither an answer nor an
    entry in the ledger is made. Whoever decides by it whether to answer tells by that what no
    engine would.
    """
    refusal = _refusal(site, plan)
    _check_rows(plan, rows, site)
    labels, _, oddities = _read_placed(plan, PlacedRows(rows.source(), rows.places(plan, site)))
    counted = Counted(int(np.count_nonzero(labels)), oddities)
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
        with durable.locked(folder / ".lock"):
            yield
    except OSError as error:
        raise SiteError(f"cannot keep an answer in {folder}: {error.strerror}.") from None


def _make(
    site: Site, plan: EvaluationPlan, rows: NamedLabels, flips: Path
) -> tuple[Answer, Counted]:
    """A new answer, paid for."""
    session = os.urandom(SESSION_BYTES)
    if plan.privacy.flips_labels:
        numbers = _flipped(site, plan, rows, flips, session)
    else:
        site.reserve(session, plan)
        site.ledger.commit(session)
        count = _by_bins if plan.paired is None else _as_pair
        numbers = count(site, plan, rows)
    return Answer.signed(site.key, plan, session, numbers.values), numbers.counted


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
    return _Numbers(list(pair), Counted(int(np.count_nonzero(labels)), oddities))


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
    site.reserve_flips(session, plan, kept.digest)
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
    return _Numbers(counts.tolist(), Counted(int(np.count_nonzero(labels[asked])), odd))


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


def _read(kept: Path, plan: EvaluationPlan, site: Site) -> Answer:
    """The answer that a site keeps."""
    try:
        answer: Answer | None = Answer.from_bytes(read_bounded(kept, MOST_BYTES))
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
        durable.replace(target, data, mode=0o644)
    except OSError as error:
        raise RecordError(
            f"cannot write {target}: {error.strerror}. The answer is kept: ask for it again, with "
            "another --output, and nothing more is charged."
        ) from None
