"""Sentences whose words have a tag each, from text with a word a line, an empty one between.

EU      NNP  B-ORG        columns are parted by tabs, or by spaces
rejects VBZ  O
German  JJ   B-MISC
call    NN   O
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.choosing import chosen_examples
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.paths import find_data_file
from amp_runtime.data.tagged_lines import FORM, Columns, Sentences, read_sentences
from amp_runtime.data.vectors import read_vectors
from amp_runtime.data.vocabulary import Vocabulary, words_of
from amp_runtime.errors import DataError, nearest
from amp_runtime.rows.spec import Int64


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
    vocabulary = Vocabulary.of(_words(to_train, lower), min_count=min_count)
    tokens = vocabulary.ids(_words(wanted, lower))
    label = _numbers(wanted, classes, used, file if tags is None else None)
    notes = _notes(split, vocabulary, tokens, label, classes, to_train)
    tables = {}
    if vectors is not None and split == "train":  # it is these sentences that a model is built for
        known = read_vectors(find_data_file(vectors), vocabulary.words)
        n_found, n_words = int(known.found[1:].sum()), len(vocabulary) - 1
        notes += (f"{vectors}: vectors of {n_found} of {n_words} words",)
        tables["tokens"] = known.table(seed)
    return Dataset.from_columns(
        {"tokens": (tokens, wanted.counts), "label": (label, wanted.counts)},
        about=About({"tokens": vocabulary.words, "label": classes}, notes, tables),
    )


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
    vocabulary = Vocabulary(words_of(vocabularies, "tokens"))
    tokens = vocabulary.ids(_words(given, options["lower"]))
    ends = np.cumsum(given.counts).tolist()
    words = [given.words[first:end] for first, end in zip([0, *ends], ends, strict=False)]
    note = f"{int((tokens == 0).sum())} of {len(tokens)} words are unknown"
    about = About(notes=(note,), told={"words": words})
    return Dataset.from_columns({"tokens": (tokens, given.counts)}, where=str(file), about=about)


def _words(sentences: Sentences, lower: bool) -> list[str]:
    return [word.lower() for word in sentences.words] if lower else sentences.words


def _numbers(
    given: Sentences, classes: tuple[str, ...], file: Path, training: Path | None
) -> Int64:
    """Return the numbers of the tags.

    Args:
        training: the file whose tags the classes are; None: they are those of the config.
    Raises:
        DataError: a tag that is none of them; names file and line.
    """
    number_of = {tag: number for number, tag in enumerate(classes)}
    for tag, line in zip(given.tags, given.lines, strict=True):
        if tag not in number_of:
            known = f"occurs in no line of {training}" if training else "is none of data.tags"
            raise DataError(
                f"tag {tag[:40]!r} {known}{nearest(tag, classes)}",
                where=f"{file}:{line}",
                fix="name all tags, also those that nothing is trained on: data.tags",
            )
    return np.array([number_of[tag] for tag in given.tags], np.int64)


def _notes(
    split: str,
    vocabulary: Vocabulary,
    tokens: Any,
    label: Int64,
    classes: tuple[str, ...],
    to_train: Sentences,
) -> tuple[str, ...]:
    known = f"{len(vocabulary) - 1} words have an id; " if split == "train" else ""
    notes = (f"{split}: {known}{int((tokens == 0).sum())} of {len(tokens)} words are unknown",)
    if split == "train" or not len(label) or not to_train.tags:
        return notes
    # The most frequent tag of training is what one would answer without a look.
    tag = Counter(to_train.tags).most_common(1)[0][0]
    share = float((label == classes.index(tag)).mean())
    return (*notes, f"valid: always answering {tag!r} has accuracy {share:.4f}")
