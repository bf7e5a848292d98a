"""bAbI task 15, basic deduction, as graphs: what is Gertrude afraid of?

    Gertrude is a mouse.           gertrude  --is-->        mouse
    Mice are afraid of wolves.     mouse     --has_fear-->  wolf        the answer

data.path   none        graphs are generated: of 8 nodes as in the data set, or of more
            a file      of the task itself (qa15_..._train.txt), or of its graphs:
                        edges `source type target`, questions `? 1 node answer`, nodes and
                        types numbered from 1 (1 is, 2 has_fear), an empty line behind each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amp_runtime.data.about import About
from amp_runtime.data.dataset import Dataset
from amp_runtime.data.graphs.babi15_files import HAS_FEAR, IS, read_stories
from amp_runtime.data.graphs.typed_graphs import Graphs
from amp_runtime.data.json_lines import ExampleForm
from amp_runtime.data.paths import find_data_file
from amp_runtime.errors import DataError
from amp_runtime.rows.spec import Array, Int64

ORIGIN = (
    "these are text files of the bAbI tasks, qa15_basic-deduction_train.txt and _test.txt, or the "
    "15_graphs.txt made of them that public implementations of gated graph networks hold; without "
    "data.path graphs are generated"
)
EDGE_TYPES = ("is", "has_fear")
MAX_NODES = 54


@dataclass(frozen=True, slots=True)
class Stories:
    """Graphs, and questions about them.

    Attributes:
        questions: int64 [questions, 3]: graph, node that is asked about, node that answers.
    """

    graphs: Graphs
    questions: Int64


def source(
    split: str,
    seed: int,
    *,
    path: str | None = None,
    valid_path: str | None = None,
    train: int = 1000,
    valid: int = 1000,
    species: int = 4,
    names: int = 4,
    split_seed: int = 0,
) -> Dataset:
    """Return the questions about `train` or `valid` graphs, each an example of its own.

    Fields with one row for each node:
        annotation  float32 [1], 1 for the node that is asked about, else 0: what the state
                    of a node begins with.
        n_out, n_in int32: how many edges leave and reach it, messages to send and expect.
        first_edge  int32, the first of those that leave; the others follow.
    Fields with one row for each edge, by source:
        edge_source, edge_target    int32, nodes, from 0.
        edge_type                   int32, 0 is, 1 has_fear.
    and with one row for each example:
        label       int32, the node that answers.

    Args:
        split: `train` or `valid`.
        seed: the run's; of generated graphs.
        path: a file; None: generated.
        valid_path: another file, to validate on; None: valid graphs are held out of `path`.
            For the end: `evaluate RUN data.valid_path=...` reads the graphs of a test.
        train, valid: how many graphs. Those of a file are shuffled, and valid ones come
            first, so that they stay the same when `train` changes.
        species, names: nodes of each generated graph, 54 in all at most. Each name has a
            species of its own, and each species fears another one: no node is alone.
        split_seed: of the shuffling.
    Raises:
        MissingDataError: no such file.
        DataError: an option out of range, or the file is wrong, with its line.
    """
    for name, value, least in (
        ("train", train, 0), ("valid", valid, 0), ("species", species, 2), ("names", names, 1),
    ):  # fmt: skip
        if value < least:
            raise DataError(
                f"{name} is {value}; it must be at least {least}", fix=f"set data.{name}"
            )
    wanted = train if split == "train" else valid
    of_its_own = path if split == "train" else valid_path or path
    if of_its_own is None:
        stories = generate(wanted, np.random.default_rng([seed, split == "valid"]), species, names)
        return _dataset(stories, np.arange(wanted))
    file = find_data_file(of_its_own, ORIGIN)
    read = read_stories(file)
    # Both splits of one file: valid graphs first. Of two files: each from its beginning.
    one_file = valid_path is None
    first, needed = (valid if one_file else 0, train + valid if one_file else wanted)
    if needed > len(read.n_nodes):
        asked = f"train {train} + valid {valid}" if one_file else f"{split} {wanted}"
        raise DataError(
            f"holds {len(read.n_nodes)} graphs, too few for {asked}",
            where=str(file),
            fix="lower data.train or data.valid",
        )
    graphs = Graphs.of(np.array(read.n_nodes), np.array(read.n_edges), _table(read.edges))
    stories = Stories(graphs, _table(read.questions))
    order = np.random.default_rng(split_seed).permutation(len(graphs))
    return _dataset(stories, order[:valid] if split == "valid" else order[first : first + train])


def read(
    file: Path,
    form: ExampleForm,
    vocabularies: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> Dataset:
    """Return the questions of a file of either form, which need no answers.

    What is told of a question: the number of its `story`, from 0, whom it is `about`, and the
    names of the story's `nodes`, by number.

    Raises:
        DataError: the file is wrong, with its line.
    """
    found = read_stories(file, answers=False)
    graphs = Graphs.of(np.array(found.n_nodes), np.array(found.n_edges), _table(found.edges))
    names = [list(nodes) for nodes in found.nodes]
    graph, asked, _ = zip(*found.questions, strict=True)
    told = {
        "story": graph,
        "about": [names[story][node] for story, node in zip(graph, asked, strict=True)],
        "nodes": [names[story] for story in graph],
    }
    stories = Stories(graphs, _table(found.questions))
    columns = _columns(stories, np.arange(len(graphs)))
    del columns["label"]
    return Dataset.from_columns(columns, where=str(file), about=About(told=told))


def generate(n: int, random: np.random.Generator, species: int, names: int) -> Stories:
    """Return `n` graphs in which each name is asked about.

    Raises:
        DataError: more names than species, or too many nodes.
    """
    n_nodes = species + names
    if names > species or n_nodes > MAX_NODES:
        raise DataError(
            f"names is {names} and species {species}; there must be as many species as names, "
            f"and at most {MAX_NODES} nodes",
            fix="set data.names and data.species",
        )
    # Nodes are numbered at random, so that nothing can be learnt from their order.
    node = np.argsort(random.random((n, n_nodes)), axis=1)
    species_of = np.argsort(random.random((n, species)), axis=1)[:, :names]
    feared = (np.arange(species) + random.integers(1, species, (n, species))) % species
    named, kinds = node[:, :names], node[:, names:]
    owned = np.take_along_axis(kinds, species_of, axis=1)
    edges = np.concatenate(
        [_edges(named, IS, owned), _edges(kinds, HAS_FEAR, np.take_along_axis(kinds, feared, 1))],
        axis=1,
    )
    answers = np.take_along_axis(kinds, np.take_along_axis(feared, species_of, 1), 1)
    asked = np.repeat(np.arange(n), names)
    questions = np.stack([asked, named.reshape(-1), answers.reshape(-1)], axis=1)
    counts = np.full(n, n_nodes), np.full(n, n_nodes)  # each node has one edge that leaves it
    return Stories(Graphs.of(*counts, edges.reshape(-1, 3)), questions)


def _edges(sources: Array, edge_type: int, targets: Array) -> Array:
    return np.stack([sources, np.full_like(sources, edge_type), targets], axis=-1)


def _table(rows: list[tuple[int, int, int]]) -> Int64:
    return np.array(rows, np.int64).reshape(-1, 3)


def _dataset(stories: Stories, chosen: Int64) -> Dataset:
    """Return an example for each question about the chosen graphs, in their order."""
    return Dataset.from_columns(_columns(stories, chosen), about=About({"edge_type": EDGE_TYPES}))


def _columns(stories: Stories, chosen: Int64) -> dict[str, Any]:
    """Return all fields of the questions about the chosen graphs, in their order."""
    place = np.full(len(stories.graphs), -1)
    place[chosen] = np.arange(len(chosen))
    questions = stories.questions[place[stories.questions[:, 0]] >= 0]
    questions = questions[np.argsort(place[questions[:, 0]], kind="stable")]
    graph, asked, answer = questions.T
    n_nodes = stories.graphs.n_nodes[graph]
    annotation = np.zeros((int(n_nodes.sum()), 1), np.float32)
    annotation[np.cumsum(n_nodes) - n_nodes + asked] = 1
    return {
        "annotation": (annotation, n_nodes),
        **stories.graphs.columns(graph),
        "label": answer,
    }
