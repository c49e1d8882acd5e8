"""Options that name the rows of a site by somebody else's plan, and what they come to."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fedgauge.cli.columns import read_columns, read_lists, read_pairs
from fedgauge.cli.options import Dialect
from fedgauge.engines.named import NamedLabels, NamedRows, Rows
from fedgauge.errors import InputError

FILE = "CSV, TSV (also .gz) or Parquet of labels and scores, or of labels and ids."
_LABEL = "Column of the true label; of several labels a row, of each: fever=y1,cough=y2."
Label = Annotated[str, typer.Option(help=_LABEL)]
LabelAgain = Annotated[str | None, typer.Option("--label", help=f"{_LABEL} As at join.")]
Score = Annotated[str | None, typer.Option(help="Column of the score; higher is more positive.")]
ClassScores = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the plan has several classes, or labels a row: columns of their scores, "
        "instead of --score: cat=p1,dog=p2."
    ),
]
ModelScores = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the plan has several models: column of the score of each, instead of --score: "
        "new=p2. Of several classes, columns in the plan's order: new=p1,p2,p3. Repeat it."
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the plan has groups: their column, unless it has the plan's name: sex=gender. "
        "Repeat it."
    ),
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="Labels apart from scores: column of the id, instead of --score."),
]
BinsFile = Annotated[
    Path | None,
    typer.Option("--bins", help="Labels apart from scores: the bins that this site was sent."),
]
Subject = Annotated[
    str | None, typer.Option(help="Column of the subject's id, where the plan protects them.")
]


class Columns(NamedTuple):
    """What was named of a file: each as its option has it."""

    label: str | None
    score: str | None
    class_scores: str | None
    model_scores: list[str] | None
    groups: list[str] | None
    key: str | None = None
    bins: Path | None = None
    subject: str | None = None

    def rows(self, file: Path, dialect: Dialect) -> Rows:
        """Rows of labels and scores or, with bins, of labels apart from scores."""
        path = str(file.absolute())  # commands of later rounds may run elsewhere
        if self.bins is not None:
            return self._labels(path, str(self.bins.absolute()), dialect)
        if self.key is not None and not self.score:
            raise InputError("--id needs the bins that this site was sent: --bins FILE.")
        return self.scored(path, dialect)

    def _check_one_key(self) -> None:
        given = [option for option, value in self._keys.items() if value]
        if len(given) > 1:
            raise InputError(
                f"{' and '.join(given)} are one too many: --id goes with bins by id, --score with "
                "rows that have one, or with bins by score, and the others with plans for several."
            )

    @property
    def is_whole(self) -> bool:
        """Whether they name a label, and something that goes with it."""
        return self.label is not None and any(self._keys.values())

    @property
    def _keys(self) -> dict[str, object]:
        """What of a row goes with its label, by option."""
        return {
            "--id": self.key,
            "--score": self.score,
            "--class-scores": self.class_scores,
            "--model-score": self.model_scores,
        }

    def scored(self, path: str, dialect: Dialect) -> NamedRows:
        """Rows of labels and scores; what a plan asks for beyond them is told once it is read."""
        self._check_one_key()
        label = self.label or ""
        return NamedRows(
            path,
            read_pairs("--label", label) if "=" in label else label,
            self.score or "",
            self.subject,
            classes=read_pairs("--class-scores", self.class_scores) if self.class_scores else {},
            models=read_lists("--model-score", self.model_scores or []),
            groups=read_columns("--group", self.groups or []),
            **dialect,
        )

    def _labels(self, path: str, bins: str, dialect: Dialect) -> NamedLabels:
        self._check_one_key()
        if self.subject is not None:
            raise InputError("with --bins each label is protected by itself. Leave out --subject.")
        if self.class_scores or self.model_scores or self.groups:
            raise InputError(
                "with --bins labels are of two classes, one model and no groups. Leave out "
                "--class-scores, --model-score and --group."
            )
        column = self.key or self.score
        if column is None:
            raise InputError(
                "--bins needs the column that names examples: --id COLUMN, or --score COLUMN where "
                "this site scored them itself."
            )
        label = self.label or ""
        return NamedLabels(path, label, column, bins, scored=self.key is None, **dialect)
