"""Exports of five hospitals as they come, each with its own habits, and the same rows clean."""

import numpy as np
from workbooks import pack, parts, rows_of

SETTINGS = """\
[north]
path = "north.csv"
label = "died"
score = "risk"
separator = ";"

[south]
path = "south.csv"
label = "verstorben"
score = "Risikomaß"
separator = ";"
decimal = ","
encoding = "cp1252"
positive = "ja"

[east]
path = "east.csv"
label = "died"
score = "risk"

[west]
path = "west.xlsx"
label = "died"
score = "risk"

[centre]
path = "centre.csv"
label = "died"
score = "Risk"
drop_missing = true
"""


def clean_rows():
    """Labels and scores of each hospital, scores in steps of 0.01."""
    rng = np.random.default_rng(38)
    rows = {}
    for number, name in enumerate(("north", "south", "east", "west", "centre")):
        scores = np.round(rng.beta(1.5, 3, 200 + 40 * number), 2)
        rows[name] = (rng.random(len(scores)) < scores).astype(int), scores
    return rows


def write_messy(folder):
    """Write the files and their settings; returns the settings."""
    rows = {name: list(zip(*columns, strict=True)) for name, columns in clean_rows().items()}

    def write(name, *lines, encoding="utf-8"):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding=encoding)

    write("north.csv", "died;ward;risk", *(f"{y};a,b;{p}" for y, p in rows["north"]))
    words = ("nein", "ja")
    south = (f"{words[y]};{p:.2f}".replace(".", ",") for y, p in rows["south"])
    write("south.csv", "verstorben;Risikomaß", *south, encoding="cp1252")
    write("east.csv", "died,risk", *(f"{y},{100 * p:.0f}%" for y, p in rows["east"]))
    pack(folder / "west.xlsx", parts(rows_of(("died", "risk"), *rows["west"])))
    write("centre.csv", "Risk,died", "0.5,", ",1", *(f"{p},{y}" for y, p in rows["centre"]))
    path = folder / "clients.toml"
    path.write_text(SETTINGS)
    return path
