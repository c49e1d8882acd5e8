"""Commands for labels apart from scores."""

import typer

from fedgauge.cli import answers
from fedgauge.cli.rosters import assign, roster

app = typer.Typer(
    help="Labels and scores apart: one party scores the examples, others have the labels.\n\n"
    "Label parties: roster. Whoever scores: assign. Then `fedgauge exchange`, as between sites.\n\n"
    "One or two label parties, and those that trust no sum: answer. Whoever scored: result.",
    no_args_is_help=True,
)
app.command()(roster)
app.command()(assign)
answers.register(app)
