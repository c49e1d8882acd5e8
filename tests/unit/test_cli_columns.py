"""Options that name columns: what is read of them, and what is refused."""

import pytest

import fedgauge as fg
from fedgauge.cli.columns import read_columns, read_lists, read_pairs


def test_pairs_keep_their_order_and_lose_blanks():
    assert list(read_pairs("--class-scores", "owl=p3, cat = p1").items()) == [
        ("owl", "p3"),
        ("cat", "p1"),
    ]


def test_the_first_sign_ends_a_name():
    assert read_pairs("--label", "a=b=c") == {"a": "b=c"}
    assert read_lists("--group", ["age=<50,>=50"]) == {"age": ("<50", ">=50")}


@pytest.mark.parametrize("text", ["", "p1", "cat=", "=p1", "cat=p1,", "cat=p1,,dog=p2"])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(fg.InputError, match="--class-scores takes pairs of a name and a column"):
        read_pairs("--class-scores", text)


@pytest.mark.parametrize("text", ["", "sex", "sex=", "=women", "sex=women,", "sex=,men"])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(fg.InputError, match="--group takes a name and what belongs to it"):
        read_lists("--group", [text])


def test_a_name_twice_is_refused():
    with pytest.raises(fg.InputError, match="--class-scores names 'cat' twice"):
        read_pairs("--class-scores", "cat=p1,cat=p2")
    with pytest.raises(fg.InputError, match="--group names 'sex' twice"):
        read_lists("--group", ["sex=women", "sex=men"])


def test_values_where_a_column_is_wanted_are_refused():
    with pytest.raises(fg.InputError, match="--group sex= takes one column, got 2"):
        read_columns("--group", ["sex=women,men"])


@pytest.mark.parametrize(
    ("option", "text", "remedy"),
    [
        ("--model-score", "p_new", "such as new=p1"),
        ("--group", "sex", "such as sex=women,men"),
        ("--group", "sex=women,", "Leave out blanks after commas, or put all of it in quotes"),
    ],
)
def test_what_is_no_list_is_told_what_is(option, text, remedy):
    with pytest.raises(fg.InputError, match=remedy):
        read_lists(option, [text])


def test_under_a_plan_a_group_is_told_its_column():
    with pytest.raises(fg.InputError, match="such as sex=COLUMN"):
        read_columns("--group", ["sex"])
