"""Sentences with a word and its tag a line: columns, words as they are, faults by line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_runtime.data import load_split, read_examples
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.vocabulary import nfc
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.rows.spec import ArraySpec

TEXT = "The D\ndog N\nbarks V\n\nIt N\nsleeps V\n"


def write(folder: Path, text: str = TEXT, name: str = "some.txt") -> Path:
    (folder / name).write_text(text, "utf-8", newline="")
    return folder / name


def load(path, split="train", **options):
    return load_split("tagged_text", split, 0, {"path": str(path), "valid": 0, **options})


def sentences(data):
    """Return [[(word, tag), ...], ...]."""
    about, tokens, label = data.about.vocabularies, data.field("tokens"), data.field("label")
    assert tokens.counts.tolist() == label.counts.tolist()
    pairs = [
        (about["tokens"][word], about["label"][tag])
        for word, tag in zip(tokens.values, label.values, strict=True)
    ]
    ends = np.cumsum(tokens.counts).tolist()
    return [pairs[a:b] for a, b in zip([0, *ends], ends, strict=False)]


WANTED = [[("The", "D"), ("dog", "N"), ("barks", "V")], [("It", "N"), ("sleeps", "V")]]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (TEXT, {}),
        (TEXT.replace(" ", "\t"), {}),
        (TEXT.replace(" ", "    "), {}),
        ("\n\n" + TEXT.replace("\n\n", "\n \t\n\n").rstrip(), {}),  # no last line end
        ("\ufeff" + TEXT.replace("\n", "\r\n"), {}),
        (TEXT.replace(" ", " X "), {}),
        (TEXT.replace(" ", " X "), {"token_column": -3, "tag_column": 3}),
        (TEXT, {"tag_column": 2}),
        ("# a comment\n" + TEXT, {"skip": "# "}),
        ("1 2-\n" + TEXT, {"skip": r"\d+ \d"}),
    ],
)
def test_words_and_tags_are_read(tmp_path, text, options):
    data = load(write(tmp_path, text), **options)
    assert sorted(sentences(data)) == sorted(WANTED)
    assert data.about.vocabularies["label"] == ("D", "N", "V")
    assert data.about.vocabularies["tokens"] == ("<unk>", "It", "The", "barks", "dog", "sleeps")


WORDS = ["8\xa01\\/2", "\u2028", "\x85", "\xe9", "\u05d0", "\U0001f600", "\xa0", "#"]


def test_words_are_kept_as_they_are(tmp_path):
    data = load(write(tmp_path, "".join(f"{word} T\n" for word in WORDS)))
    assert [word for word, _ in sentences(data)[0]] == WORDS
    spaced = load(write(tmp_path, "New York\tNP\nsleeps\tV\n"))
    assert sentences(spaced) == [[("New York", "NP"), ("sleeps", "V")]]


TEXTS = st.text(st.characters(exclude_characters="\r\n\t ", exclude_categories=["Cs"]), min_size=1)


@given(given=st.lists(st.lists(st.tuples(TEXTS, TEXTS), min_size=1), min_size=1, max_size=5))
def test_what_is_written_is_read(tmp_path_factory, given):
    text = "\n".join("".join(f"{w}\t{t}\n" for w, t in sentence) for sentence in given)
    folder = tmp_path_factory.mktemp("text")
    if text.startswith("\ufeff"):  # a mark of UTF-8, and no part of the first word
        text = "\ufeff" + text
    data = load(write(folder, text))
    # Words are told apart by their NFC form.
    assert sorted(sentences(data)) == sorted([(nfc(w), t) for w, t in s] for s in given)


@pytest.mark.parametrize(
    ("text", "options", "place", "said"),
    [
        (TEXT + "alone\n", {}, ":7", "has 1 columns, but line 1 has 2; a line is a word and its"),
        (TEXT + "a b c\n", {}, ":7", "has 3 columns, but line 1 has 2"),
        ("\nalone\n", {}, ":2", "has its word and its tag in one column: 'alone'"),
        (TEXT, {"tag_column": 3}, ":1", "has 2 columns, none of them number 3: 'The D'"),
        (TEXT, {"token_column": -3}, ":1", "has 2 columns, none of them number -3"),
        ("a\tT\n\tT\n", {}, ":2", "has nothing in column 1"),
        ("a\tT\nb\t\n", {}, ":2", "has nothing in column -1"),
        ("# text = It\n" + TEXT, {}, ":2", "has 2 columns, but line 1 has 4"),
        ("\n \n\t\n", {}, "", "holds no sentence"),
        ("", {}, "", "holds no sentence"),
        (TEXT, {"tags": ["D", "N"]}, ":3", "tag 'V' is none of data.tags; name all tags"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, options, place, said):
    file = write(tmp_path, text)
    with pytest.raises(DataError, match=said) as error:
        load(file, **options)
    assert f"{file}{place}: " in str(error.value)


def test_what_is_no_text_is_named_by_line(tmp_path):
    (tmp_path / "some.txt").write_bytes(b"a T\n\xff T\n")
    with pytest.raises(DataError, match=r"some.txt:2: holds b'.xff T.n': not UTF-8"):
        load(tmp_path / "some.txt")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token_column": 0}, "token_column is 0; columns are counted from 1, or from the end"),
        ({"skip": "("}, r"skip is '\(', no regular expression"),
        ({"min_count": 0}, "min_count is 0; it must be at least 1"),
        ({"tags": ["D", "D"]}, "holds one twice"),
        ({"train": 3}, "holds 2 examples, too few for train 3 . valid 0"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, said):
    with pytest.raises(DataError, match=said):
        load(write(tmp_path), **options)
    with pytest.raises(MissingDataError, match="no data file"):
        load(tmp_path / "nowhere.txt")


# ---------------------------------------------------------------- vocabularies and splits


def test_what_only_the_sentences_to_validate_on_hold_is_unknown(tmp_path):
    train = write(tmp_path)
    valid = write(tmp_path, "it N\nbarks V\nloudly V\n", "valid.txt")
    options = {"valid_path": str(valid), "valid": None}
    data = load(train, "valid", **options)
    assert sentences(data) == [[("<unk>", "N"), ("barks", "V"), ("<unk>", "V")]]
    assert data.about.notes == (
        "valid: 2 of 3 words are unknown",
        "valid: always answering 'N' has accuracy 0.3333",
    )
    known = load(train, "valid", lower=True, **options)
    assert sentences(known)[0][0] == ("it", "N")
    rare = write(tmp_path, "a A\na A\nb B\n", "rare.txt")
    data = load(rare, min_count=2)
    assert sentences(data) == [[("a", "A"), ("a", "A"), ("<unk>", "B")]]
    assert data.about.notes == ("train: 1 words have an id; 1 of 3 words are unknown",)


def test_a_tag_that_training_does_not_hold_is_named_unless_all_are_told(tmp_path):
    train = write(tmp_path)
    valid = write(tmp_path, "It N\nnot ADV\n", "valid.txt")
    with pytest.raises(
        DataError, match=rf"{valid}:2: tag 'ADV' occurs in no line of {train}.*tags"
    ):
        load(train, "valid", valid_path=str(valid), valid=None)
    tags = ["V", "N", "D", "ADV"]
    data = load(train, "valid", valid_path=str(valid), valid=None, tags=tags)
    assert data.field("label").values.tolist() == [1, 3]
    assert load(train, tags=tags).about.vocabularies["label"] == tuple(tags)


def test_tags_of_one_file_are_those_of_all_its_sentences(tmp_path):
    text = "\n".join(f"word T{number}\n" for number in range(20))
    for split in ("train", "valid"):
        data = load(write(tmp_path, text), split, valid=10)
        assert len(data) == 10
        assert len(data.about.vocabularies["label"]) == 20


def test_an_embedding_may_begin_with_the_vectors_of_words(tmp_path):
    (tmp_path / "glove.txt").write_text("dog 1.5 2.5\ncat 0.1 0.2\nthe 3.5 4.5\n")
    options = {"vectors": str(tmp_path / "glove.txt")}
    data = load(write(tmp_path), **options)
    table, words = data.about.vectors["tokens"], data.about.vocabularies["tokens"]
    assert table[words.index("dog")].tolist() == [1.5, 2.5]
    assert table[words.index("The")].tolist() == [3.5, 4.5]
    assert data.about.notes[-1].endswith("glove.txt: vectors of 2 of 5 words")


# -------------------------------------------------------------------------- to predict


@pytest.mark.parametrize("text", [TEXT, "The\ndog\nbarks\n\nIt\nsleeps\n"])
def test_words_to_tag_stand_in_the_same_column_or_alone(tmp_path, text):
    form = ExampleForm({"tokens": ArraySpec((), "int32")})
    words = {"tokens": ["<unk>", "it", "the", "dog"], "label": ["N"]}
    options = {"lower": True, "path": "elsewhere"}
    data = read_examples("tagged_text", options, write(tmp_path, text), form, words)
    assert data.field("tokens").values.tolist() == [2, 3, 0, 1, 0]
    assert data.field("tokens").counts.tolist() == [3, 2]
    assert list(data.fields) == ["tokens"]
    assert data.about.told == {"words": [["The", "dog", "barks"], ["It", "sleeps"]]}
    assert data.about.notes == ("2 of 5 words are unknown",)
