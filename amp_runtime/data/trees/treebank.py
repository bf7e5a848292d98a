"""Sentences as binary trees with a label at every node: the Stanford Sentiment Treebank.

data.path   a folder with train.txt, dev.txt and test.txt, each a file in PTB form:
            one tree a line, as in (3 (2 It) (4 (2 's) (4 good)))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.paths import find_data_file, find_data_path
from amp_runtime.data.trees.ptb import NO_PARENT, Trees, read_trees
from amp_runtime.data.vectors import Vectors, read_vectors
from amp_runtime.data.vocabulary import Vocabulary, words_of
from amp_runtime.errors import DataError, MissingDataError
from amp_runtime.rows.spec import Array, Int32

MOST_TOLD = 3
"""Lines that were left out, in a note."""
ORIGIN = (
    "a treebank is a folder with the files train.txt, dev.txt and test.txt, one tree a line, "
    "as in (3 (2 It) (4 (2 's) (4 good))); the Stanford Sentiment Treebank has them in "
    "trainDevTestTrees_PTB.zip, linked from its home page, https://nlp.stanford.edu/sentiment/; "
    "whether its licence allows your use is yours to check"
)


def source(
    split: str,
    seed: int,
    *,
    path: str,
    valid_file: Literal["dev", "test"] = "dev",
    train: int | None = None,
    valid: int | None = None,
    classes: int = 5,
    lower: bool = False,
    min_count: int = 1,
    max_depth: int = 20_000,
    skip_bad: int = 0,
    vectors: str | None = None,
) -> Dataset:
    """Return the trees of a split, in the order of the file.

    Nodes are numbered within a tree, children before their parent, the root last; nodes
    with a single child are left out (`ptb.py`).

    Fields, with one row for each leaf, from the left to the right:
        token   int32, id of its word: the payload of an input `each="token"`.
        leaf    int32, the node that it is: that input's state column `node`.
    Fields with one row for each node, which functions on states take by the row's `node`:
        parent      int32, -1 for the root: the key under which a group collects children.
        side        int32, 0 for a left child, 1 for a right one, 0 for the root: the
                    position within that group.
        n_children  int32, 0 or 2: how many children the group waits for.
        is_root     int32, 1 for the root: where a cond lets rows leave the loop.
        label       int32, 0 to classes - 1: of a loss at every node.
    `len(token)` and `len(parent)` are the numbers of leaves and of nodes.

    The vocabulary is that of the training trees, whichever split is asked for; id 0 is
    every other word.

    Args:
        split: `train` or `valid`.
        seed: the run's; the vectors of words that `vectors` does not hold depend on it.
        path: the folder; see `find_data_path` for relative paths.
        valid_file: which of the two other files to validate on: `test` is for the end.
        train, valid: how many trees to use, the first of their file; None: all of them.
        classes: labels are 0 to classes - 1.
        lower: whether words are told apart by their lower-case form.
        min_count: words that occur less often in the training trees are unknown. With 1,
            no training tree holds an unknown word, so that its id is never trained.
        max_depth: deeper trees are an error.
        skip_bad: so many lines of each file that are no tree may be left out; a note tells
            which. With 0 the first one is an error.
        vectors: a text file in GloVe form (`vectors.py`) of pre-trained word vectors, which
            a model's embedding of `token` begins with.
    Raises:
        MissingDataError: no such folder, or a file is not in it; says what is needed.
        DataError: an option out of range, or a file is wrong, with its line and column.
    """
    _check_at_least_1(
        classes=classes, min_count=min_count, max_depth=max_depth, train=train, valid=valid
    )
    if skip_bad < 0:
        raise DataError(f"skip_bad is {skip_bad}; it must be at least 0", fix="set data.skip_bad")
    folder = find_data_path(path, ORIGIN)
    form = _Form(classes, max_depth, skip_bad)
    training = _read(folder, "train", form, train)
    vocabulary = Vocabulary.of(_words(training, lower), min_count=min_count)
    trees = training if split == "train" else _read(folder, valid_file, form, valid)
    tokens = vocabulary.ids(_words(trees, lower))
    n_unknown = int((tokens == 0).sum())
    known = f"{len(vocabulary) - 1} words have an id; " if split == "train" else ""
    note = f"{split}: {known}{n_unknown} of {len(tokens)} words in the trees are unknown"
    notes: tuple[str, ...] = (note,)
    if trees.left_out:
        notes += (_told_of_left_out(split, trees.left_out),)
    tables = {}
    if vectors is not None and split == "train":  # it is these trees that a model is built for
        read = read_vectors(find_data_file(vectors), vocabulary.words)
        notes += (_coverage(read, tokens, vectors),)
        tables["token"] = read.table(seed)
    return Dataset.from_columns(
        {**_columns(trees, tokens), "label": (trees.label, trees.n_nodes)},
        about=About(
            {"token": vocabulary.words, "label": tuple(map(str, range(classes)))}, notes, tables
        ),
    )


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return the trees of a file in PTB form, whose labels may be missing.

    What is told of a tree: its `words`, from the left to the right.

    Raises:
        DataError: it is wrong, with its line and column, or the run has no vocabulary.
    """
    vocabulary = Vocabulary(words_of(vocabularies, "token"))
    trees = read_trees(file, classes=None, max_depth=options["max_depth"])
    tokens = vocabulary.ids(_words(trees, options["lower"]))
    note = f"{int((tokens == 0).sum())} of {len(tokens)} words in the trees are unknown"
    ends = np.cumsum(trees.n_leaves).tolist()
    words = [trees.words[first:end] for first, end in zip([0, *ends], ends, strict=False)]
    about = About(notes=(note,), told={"words": words})
    return Dataset.from_columns(_columns(trees, tokens), where=str(file), about=about)


def _columns(trees: Trees, tokens: Int32) -> dict[str, tuple[Array, Array]]:
    """Return all fields but the labels."""
    n_children = np.full(len(trees.parent), 2, np.int32)
    first_node = np.cumsum(trees.n_nodes) - trees.n_nodes
    n_children[np.repeat(first_node, trees.n_leaves) + trees.leaf] = 0
    return {
        "token": (tokens, trees.n_leaves),
        "leaf": (trees.leaf, trees.n_leaves),
        "parent": (trees.parent, trees.n_nodes),
        "side": (trees.side, trees.n_nodes),
        "n_children": (n_children, trees.n_nodes),
        "is_root": (trees.parent == NO_PARENT, trees.n_nodes),
    }


def _check_at_least_1(**options: int | None) -> None:
    for name, value in options.items():
        if value is not None and value < 1:
            raise DataError(f"{name} is {value}; it must be at least 1", fix=f"set data.{name}")


def _coverage(read: Vectors, tokens: Int32, name: str) -> str:
    """Return how many words have a vector, by entries of the vocabulary and by occurrence."""
    found, n_words = int(read.found[1:].sum()), len(read.found) - 1
    n_tokens = int(read.found[tokens].sum())
    return (
        f"{name}: vectors of {read.values.shape[1]} numbers for {found} of {n_words} words "
        f"({found / n_words:.1%}), {n_tokens} of {len(tokens)} in the trees "
        f"({n_tokens / len(tokens):.1%})"
    )


def _words(trees: Trees, lower: bool) -> list[str]:
    return [word.lower() for word in trees.words] if lower else trees.words


@dataclass(frozen=True, slots=True)
class _Form:
    """What a file may hold: the options of `read_trees`."""

    classes: int
    max_depth: int
    skip_bad: int


def _told_of_left_out(split: str, left_out: Sequence[str]) -> str:
    n = len(left_out)
    which = "; ".join([*left_out[:MOST_TOLD], *([f"and {n - MOST_TOLD} more"] * (n > MOST_TOLD))])
    were = "lines that are no trees were" if n > 1 else "line that is no tree was"
    return f"{split}: {n} {were} left out: {which}"


def _read(folder: Path, name: str, form: _Form, n_trees: int | None = None) -> Trees:
    """Read a file of the folder, as far as it is wanted: the first `n_trees`, or all."""
    file = folder / f"{name}.txt"
    if not file.is_file():
        what = f"{folder} has no {name}.txt" if folder.is_dir() else f"{folder} is no folder"
        raise MissingDataError(what, fix=ORIGIN)
    stat = file.stat()
    trees = _read_once(file, form, (stat.st_mtime_ns, stat.st_size))
    if n_trees is None:
        return trees
    if n_trees > len(trees):
        option = "train" if name == "train" else "valid"
        raise DataError(
            f"holds {len(trees)} trees, too few for {option} {n_trees}",
            where=str(file),
            fix=f"lower data.{option}",
        )
    return trees.first(n_trees)


@lru_cache(maxsize=1)
def _read_once(file: Path, form: _Form, signature: tuple[int, int]) -> Trees:
    """Read a file; the second split need not parse training trees again.

    Args:
        signature: changes when the file is written anew.
    """
    return read_trees(file, classes=form.classes, max_depth=form.max_depth, skip_bad=form.skip_bad)
