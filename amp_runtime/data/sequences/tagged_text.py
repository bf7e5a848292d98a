"""Sentences whose words have a tag each, from text with a word a line, an empty one between.

EU      NNP  B-ORG        columns are parted by tabs, or by spaces
rejects VBZ  O
German  JJ   B-MISC
call    NN   O
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.choosing import chosen_examples
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.paths import find_data_file
from amp_runtime.data.sequences.tagged_lines import FORM, Columns, Sentences, read_sentences
from amp_runtime.data.vectors import read_vectors
from amp_runtime.data.vocabulary import Vocabulary, words_of
from amp_runtime.errors import DataError, nearest
from amp_runtime.rows.spec import Int32


def source(
    split: str,
    seed: int,
    *,
    path: str,
    valid_path: str | None = None,
    train: int | None = None,
    valid: int | None = None,
    token_column: int = 1,
    tag_column: int = -1,
    skip: str | None = None,
    tags: tuple[str, ...] | None = None,
    lower: bool = False,
    min_count: int = 1,
    vectors: str | None = None,
    split_seed: int = 0,
) -> Dataset:
    """Return `train` or `valid` sentences.

    Fields, with one row for each word:
        tokens  int32, the id of the word.
        label   int32, the number of its tag.

    The vocabulary is that of the sentences to train on, whichever split is asked for; id 0
    is every other word. Tags are all of the file to train on.

    Args:
        split: `train` or `valid`.
        seed: the run's; the vectors of words that `vectors` does not hold depend on it.
        path: the text, in UTF-8, gzip or not; see `find_data_path` for relative paths.
        valid_path: another, to validate on; None: some sentences of `path`.
        train: how many sentences to train on; None: all that are left.
        valid: how many to validate on; None: all of their own file, or a fifth of one.
        token_column, tag_column: counted from 1, or from the end: -1 is the last. A line that
            holds a tab is parted at tabs, another one at plain spaces.
        skip: a regular expression: lines whose beginning it matches are left out, as in
            "# " for comments.
        tags: all tags, in this order; none: those of the file, so that one which only the
            sentences to validate on have is an error.
        lower: whether words are told apart by their lower-case form.
        min_count: words that occur less often in the sentences to train on are unknown. With
            1, none of these holds an unknown word, so that its id is never trained.
        vectors: a text file in GloVe form (`vectors.py`) of pre-trained word vectors, which
            a model's embedding of `tokens` begins with.
        split_seed: of drawing sentences, for validation first, so that those stay the same.
    Raises:
        MissingDataError: no such file.
        DataError: an option out of range, or a file is wrong, with its line, or holds too few.
    """
    if min_count < 1:
        raise DataError(
            f"min_count is {min_count}; it must be at least 1", fix="set data.min_count"
        )
    if tags is not None and len(set(tags)) < len(tags):
        raise DataError(f"tags {list(tags)} holds one twice", fix="set data.tags")
    columns = Columns(token_column, tag_column, skip)
    file = find_data_file(path, FORM)
    valid_file = file if valid_path is None else find_data_file(valid_path, FORM)

    def chosen(part: str, of: Path) -> Sentences:
        given = read_sentences(of, columns)
        numbers = chosen_examples(
            len(given),
            part,
            train=train,
            valid=valid,
            one_file=valid_path is None,
            split_seed=split_seed,
            where=str(of),
        )
        return given.of(numbers)

    to_train = chosen("train", file)
    used, wanted = file, to_train
    if split == "valid":
        used, wanted = valid_file, chosen("valid", valid_file)
    all_tags = read_sentences(file, columns).tags
    classes = tuple(sorted(set(all_tags))) if tags is None else tags
    where, training = str(used), str(file) if tags is None else ""
    _check_tags(wanted, classes, where, training)
    made = tagged(split, to_train, wanted, classes, lower=lower, min_count=min_count)
    if vectors is None or split != "train":  # it is the sentences to train on that a model is of
        return made
    words = made.about.vocabularies["tokens"]
    known = read_vectors(find_data_file(vectors), words)
    note = f"{vectors}: vectors of {int(known.found[1:].sum())} of {len(words) - 1} words"
    about = replace(
        made.about, vectors={"tokens": known.table(seed)}, notes=(*made.about.notes, note)
    )
    return replace(made, about=about)


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return the sentences of a file, to be tagged: of the columns trained on, or of one alone.

    What is told of a sentence: its `words`.

    Raises:
        DataError: it is wrong, with its line, or the run has no vocabulary.
    """
    given = read_sentences(file, Columns(options["token_column"], None, options["skip"]))
    return to_tag(given, vocabularies, where=str(file), lower=options["lower"])


def tagged(
    split: str,
    to_train: Sentences,
    wanted: Sentences,
    classes: Sequence[str],
    *,
    lower: bool = False,
    min_count: int = 1,
) -> Dataset:
    """Return `wanted` as examples of `tokens` and `label`, by the words of `to_train`."""
    vocabulary = Vocabulary.of(_words(to_train, lower), min_count=min_count)
    tokens = vocabulary.ids(_words(wanted, lower))
    number_of = {tag: number for number, tag in enumerate(classes)}
    label = np.array([number_of[tag] for tag in wanted.tags], np.int32)
    known = f"{len(vocabulary) - 1} words have an id; " if split == "train" else ""
    notes: tuple[str, ...] = (f"{split}: {known}{_unknown(tokens)}",)
    if split != "train" and len(label) and to_train.tags:
        # The most frequent tag of training is what one would answer without a look.
        tag = Counter(to_train.tags).most_common(1)[0][0]
        share = float((label == number_of[tag]).mean())
        notes += (f"valid: always answering {tag!r} has accuracy {share:.4f}",)
    return Dataset.from_columns(
        {"tokens": (tokens, wanted.counts), "label": (label, wanted.counts)},
        about=About({"tokens": vocabulary.words, "label": tuple(classes)}, notes),
    )


def to_tag(
    given: Sentences,
    vocabularies: Mapping[str, Sequence[str]],
    *,
    where: str,
    lower: bool = False,
    told: Mapping[str, Sequence[Any]] | None = None,
) -> Dataset:
    """Return sentences as examples of `tokens` alone, by the words of a finished run.

    Args:
        told: what else is told of each, beside its `words`.
    Raises:
        DataError: the run has no vocabulary.
    """
    vocabulary = Vocabulary(words_of(vocabularies, "tokens"))
    tokens = vocabulary.ids(_words(given, lower))
    ends = np.cumsum(given.counts).tolist()
    words = [given.words[first:end] for first, end in zip([0, *ends], ends, strict=False)]
    about = About(notes=(_unknown(tokens),), told={**(told or {}), "words": words})
    return Dataset.from_columns({"tokens": (tokens, given.counts)}, where=where, about=about)


def _unknown(tokens: Int32) -> str:
    return f"{int((tokens == 0).sum())} of {len(tokens)} words are unknown"


def _words(sentences: Sentences, lower: bool) -> list[str]:
    return [word.lower() for word in sentences.words] if lower else sentences.words


def _check_tags(given: Sentences, classes: Sequence[str], where: str, training: str) -> None:
    """Assert that all tags are known.

    Args:
        training: the file whose tags the classes are; '': they are those of the config.
    Raises:
        DataError: one is not; names file and line.
    """
    for tag, line in zip(given.tags, given.lines, strict=True):
        if tag not in classes:
            known = f"occurs in no line of {training}" if training else "is none of data.tags"
            raise DataError(
                f"tag {tag[:40]!r} {known}{nearest(tag, classes)}",
                where=f"{where}:{line}",
                fix="name all tags, also those that nothing is trained on: data.tags",
            )
