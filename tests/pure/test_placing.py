"""What a config says of placement: checked against the model and the cores, all at once."""

from __future__ import annotations

import re

import pytest

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.config.schema import load_config
from amp_runtime.placing import plan_placement
from amp_runtime.prepare import prepare
from workers.registry import Registry

HEAD = """\
name: x
model: {builder: rnn, hidden: 8, embedding: 8}
data: {source: list_reduction, train: 20, valid: 0}
training: {optimizer: {name: sgd, lr: 0.1}}
runtime:
"""
NODES = ["embedding", "loop", "joined", "linear-1", "step", "more", "linear-2", "loss"]


@pytest.fixture
def placed(tmp_path):
    def of(placement: str, *overrides: str, cores=(0, 1)):
        path = tmp_path / "x.yaml"
        path.write_text(HEAD + placement)
        prepared = prepare(load_config(path, overrides), Registry())
        return plan_placement(prepared, Registry(), list(cores))

    return of


def workers(placed) -> dict[str, tuple[list[str], tuple[int, ...]]]:
    return {w.name: ([NODES[n] for n in w.nodes], w.cores) for w in placed.placement.workers}


def test_a_process_per_node_is_the_default(placed):
    made = placed("  {}\n")
    assert list(workers(made)) == NODES
    assert made.summary() == "8 nodes, one process each"


def test_packed_has_a_worker_for_each_core_and_says_what_each_is_expected_to_do(placed):
    made = placed("  placement: packed\n")
    assert [cores for _, cores in workers(made).values()] in ([(0,), (1,)], [(1,), (0,)])
    assert made.summary() == "8 nodes in 2 workers"
    assert sum(made.shares) == pytest.approx(1)
    assert all(0.4 < share < 0.6 for share in made.shares)
    first, second = made.lines(NODES)
    assert re.fullmatch(
        r"worker-1 on core \d: embedding, .*; \d+% of the work, as estimated", first
    )
    assert second.startswith("worker-2 on core ")
    assert placed("  placement: packed\n", cores=[3]).summary() == "8 nodes in 1 worker"


def test_groups_are_as_written_and_other_nodes_have_workers_of_their_own(placed):
    made = placed(
        "  placement:\n"
        "    host:\n"
        "      - {nodes: [loop, embedding], cores: [0, 1], name: front}\n"
        "      - {nodes: [linear-1, step], cores: [1]}\n"
        "      - nodes: [loss, linear-2]\n"
    )
    got = workers(made)
    assert list(got) == ["front", "joined", "worker-1", "more", "worker-2"]
    assert got["front"] == (["embedding", "loop"], (0, 1))
    assert got["worker-1"] == (["linear-1", "step"], (1,))
    assert got["worker-2"][0] == ["linear-2", "loss"]
    assert made.summary() == "8 nodes in 5 workers"
    assert made.lines(NODES)[0].startswith("front on cores 0, 1: embedding, loop; ")


def test_all_that_is_wrong_with_groups_is_told_at_once_each_with_its_line(placed, tmp_path):
    with pytest.raises(ConfigProblemsError) as raised:
        placed(
            "  placement:\n"
            "    host:\n"
            "      - nodes: [embeding, loop, loop]\n"
            "        cores: [2, 0, 0]\n"
            "        name: one\n"
            "      - nodes: [joined, loop]\n"
            "        name: one\n"
            "      - nodes:\n"
            "          - step\n"
            "          - more\n"
            "        name: loss\n"
        )
    at = "runtime.placement.host"
    assert [str(p).removeprefix(f"{tmp_path}/x.yaml:") for p in raised.value.problems] == [
        f"8: {at}.0.nodes.0: no node 'embeding' in the model (did you mean 'embedding'?); "
        f"its nodes: {', '.join(NODES)}",
        f"8: {at}.0.nodes.2: node 'loop' is in host.0 already",
        f"9: {at}.0.cores.0: this process may not use core 2; it may use 0, 1",
        f"9: {at}.0.cores.2: core 0 is named twice",
        f"11: {at}.1.nodes.1: node 'loop' is in host.0 already",
        f"12: {at}.1.name: 'one' is the name of host.0 already",
        f"16: {at}.2.name: 'loss' is a node: a worker of its name hosts it alone",
    ]
    assert raised.value.exit_code == 78


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{host: []}", "placement.host: must be a list, each a mapping (items at least 1), not []"),
        ("{host: [{nodes: []}]}", "host.0.nodes: must be a list, each text (items at least 1), "),
        ("{host: [{nodes: [loop], cores: []}]}", "host.0.cores: must be a list, each a whole num"),
        ("{host: [{nodes: [loop], cores: [-1]}]}", "host.0.cores.0: must be a whole number (at le"),
        ("{host: [{cores: [0]}]}", "host.0.nodes: is missing: a list, each text"),
        ("{host: [{nodes: [loop], core: 1}]}", "0.core: unknown key (did you mean 'cores'?)"),
        ("{host: [{nodes: [loop], name: A b}]}", "host.0.name: must be text or null (1 to 41 ch"),
        ("{hosts: []}", "placement.host: is missing"),
        ("spread", "placement: must be 'process_per_node' or 'packed' or a mapping, not 'spread'"),
    ],
)
def test_a_group_that_is_none_is_refused_where_it_is_written(placed, written, said):
    with pytest.raises(ConfigProblemsError) as raised:
        placed(f"  placement: {written}\n")
    assert said in str(raised.value)
    assert "x.yaml:6" in str(raised.value)


def test_an_override_is_named_where_it_is_wrong(placed):
    override = "runtime.placement={host: [{nodes: [nope]}]}"
    with pytest.raises(ConfigProblemsError, match=re.escape(f"override {override!r}: runtime.pla")):
        placed("  {}\n", override)


def test_a_config_with_groups_is_written_and_read_again_as_it_was(placed, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + "  placement: {host: [{nodes: [loop, step]}]}\n")
    config = load_config(path)
    again = tmp_path / "again.yaml"
    again.write_text(config.to_yaml())
    assert load_config(again) == config


REPLICAS = "nodes.linear-1={replicas: 2}"
WITH_REPLICAS = [*NODES[:3], "linear-1.0", "linear-1.1", *NODES[4:]]


def nodes_of(placed) -> dict[str, list[str]]:
    return {w.name: [WITH_REPLICAS[n] for n in w.nodes] for w in placed.placement.workers}


def test_replicas_have_a_process_each(placed):
    made = placed("  {}\n", REPLICAS)
    assert list(nodes_of(made)) == WITH_REPLICAS
    assert made.summary() == "8 nodes, 9 with replicas, one process each"
    packed = placed("  placement: packed\n", REPLICAS)
    assert packed.summary() == "8 nodes, 9 with replicas, in 2 workers"


@pytest.mark.parametrize(
    ("nodes", "workers"),
    [
        ("[linear-1, step]", {"worker-1": ["linear-1.0", "linear-1.1", "step"]}),
        ("[linear-1.1, step]", {"worker-1": ["linear-1.1", "step"], "linear-1.0": ["linear-1.0"]}),
    ],
)
def test_a_group_names_all_replicas_of_a_node_or_one(placed, nodes, workers):
    made = placed(f"  placement:\n    host:\n      - nodes: {nodes}\n", REPLICAS)
    assert workers.items() <= nodes_of(made).items()


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("[linear-1, linear-1.0]", "node 'linear-1.0' is in host.0 already"),
        ("[linear-1.2]", "no node 'linear-1.2' in the model (did you mean 'linear-1."),
    ],
)
def test_a_replica_that_is_placed_twice_or_is_not_there_is_refused(placed, nodes, said):
    with pytest.raises(ConfigProblemsError, match=re.escape(said)):
        placed(f"  placement:\n    host:\n      - nodes: {nodes}\n", REPLICAS)
