"""The nodes of one worker: what is merged, what goes first, where it goes, what is refused."""

from __future__ import annotations

import itertools
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from wirings import PerExample, chain, new_graph, recurrent

from amp_runtime.errors import (
    InvariantError,
    MissingStructureError,
    NodeError,
    PayloadShapeError,
    VerifyError,
    WireError,
)
from amp_runtime.host.making import HostSettings
from amp_runtime.host.node_host import NodeHost
from amp_runtime.nodes.statistics import MetricSum
from amp_runtime.nodes.updates import Schedule
from amp_runtime.rows.message import Answer, Direction, Emission, Message, Mode
from amp_runtime.wire.protocol import (
    Acknowledged,
    Barrier,
    Link,
    Parameters,
    Retired,
    SendParameters,
    Structure,
)
from workers.registry import Registry
from workers.relu import Relu
from workers.sink import Sink


def host(wiring, here=None, **given: Any) -> NodeHost:
    """Return the host of the nodes `here` (names; None: of all); the others are peer 2's."""
    peer_of = [1 if here is None or n.name in here else 2 for n in wiring.nodes]
    clock = given.pop("clock", lambda: 0.0)
    settings = HostSettings(peer_of, **{"schedule": Schedule.SYNCHRONOUS, **given})
    return NodeHost(wiring, Registry(), settings, 1, clock)


def forward(wiring, node, port, instances, payload, *, mode=Mode.TRAIN, **given: Any) -> Message:
    """Return rows for a port, with slots 0, 1, ... and steps 0 of `instances`."""
    number = wiring.input_ports.index((wiring.number[node], port))
    n = len(instances)
    columns = np.zeros((n, 4), np.int32)
    columns[:, 0] = given.get("return_port", 0)
    columns[:, 1] = np.arange(n) + given.get("first_slot", 0)
    columns[:, 2] = instances
    columns[:, 3] = given.get("step", 0)
    return Message(Direction.FORWARD, mode, number, columns, payload)


def backward(wiring, node, columns, gradient, port="y") -> Message:
    number = wiring.return_ports.index((wiring.number[node], port))
    return Message(Direction.BACKWARD, Mode.TRAIN, number, np.array(columns, np.int32), gradient)


def x(*values: float) -> dict[str, np.ndarray]:
    """Return a payload of rows (v, v)."""
    return {"x": np.repeat(np.array([values], np.float64).T, 2, axis=1)}


def labels(*instances: int) -> Structure:
    n = np.ones(len(instances), np.int32)
    instances_ = np.array(instances, np.int32)
    return Structure({"instances": instances_, "n_examples": n, "label": n * 0, "#label": n})


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (None, r"structure field 'label' is missing; declared: int32\[rows\]"),
        (np.zeros(1), r"structure field 'label' is float64\[rows\]; declared: int32\[rows\]"),
        (np.zeros((1, 2), np.int32), r"'label' is int32\[rows, 2\]; declared"),
    ],
)
def test_a_structure_without_a_field_as_declared_is_refused(field, said):
    it = host(chain(), ["loss"])
    arrays = {**labels(1).arrays, "label": field}
    with pytest.raises(WireError, match=said):
        it.on_record(Structure({n: a for n, a in arrays.items() if a is not None}))
    assert it.arena.live == 0


def retired(*instances: int, n: int = 1) -> Retired:
    ids = np.array(instances, np.int32)
    return Retired({"instances": ids, "n_examples": np.full_like(ids, n)})


def worked(it: NodeHost) -> Any:
    """Return the only message of the next piece of work."""
    (out,) = it.work()
    it.settle()
    return out


# ----------------------------------------------------------------------------- merging


def test_waiting_rows_with_one_key_are_one_batch_in_order_of_arrival():
    wiring = chain()
    it = host(wiring, ["linear"])
    for n in range(3):
        it.receive(forward(wiring, "linear", "x", [n], x(n)))
    out = worked(it)
    assert out.peer == 2
    assert out.message.columns[:, 2].tolist() == [0, 1, 2]
    assert it.idle
    report = it.report().nodes["linear"]
    assert (report.rows_forward, report.batches_forward) == (3, 1)


def test_rows_of_another_mode_are_not_merged():
    wiring = chain()
    it = host(wiring, ["linear"])
    it.receive(forward(wiring, "linear", "x", [1], x(1)))
    it.receive(forward(wiring, "linear", "x", [2], x(2), mode=Mode.EVALUATE))
    it.receive(forward(wiring, "linear", "x", [3], x(3)))
    assert [worked(it).message.columns[:, 2].tolist() for _ in range(2)] == [[1, 3], [2]]


def test_null_answers_and_gradients_are_batches_of_their_own():
    wiring = chain()
    it = host(wiring, ["linear"])
    it.receive(forward(wiring, "linear", "x", [0, 1, 2], x(0, 1, 2)))
    slots = worked(it).message.columns[:, 1:2]
    it.receive(backward(wiring, "linear", slots[:1], None))
    it.receive(backward(wiring, "linear", slots[1:2], x(1)))
    it.receive(backward(wiring, "linear", slots[2:], None))
    assert [worked(it).message.columns[:, 0].tolist() for _ in range(2)] == [[0, 2], [1]]


def test_the_oldest_instance_goes_first():
    wiring = recurrent()
    it = host(wiring, ["joined"])
    it.receive(forward(wiring, "joined", "token", [5], {"x": np.zeros((1, 2))}))
    it.receive(forward(wiring, "joined", "hidden", [7, 4], {"x": np.zeros((2, 3))}))
    assert it.work() == []
    assert it.report().nodes["joined"].rows_forward == 2


@pytest.mark.parametrize(
    ("schedule", "first"),
    [(Schedule.ASYNCHRONOUS, Direction.BACKWARD), (Schedule.SYNCHRONOUS, Direction.FORWARD)],
)
def test_answers_go_before_rows_but_where_none_of_them_is_late(schedule, first):
    wiring = chain()
    it = host(wiring, ["linear"], schedule=schedule)
    it.receive(forward(wiring, "linear", "x", [5], x(1)))
    slots = worked(it).message.columns[:, 1:2]
    it.receive(forward(wiring, "linear", "x", [1], x(1)))
    it.receive(backward(wiring, "linear", slots, None))
    assert worked(it).message.direction is first


def test_no_more_rows_are_merged_than_an_update_takes():
    wiring = chain(training={"min_update_frequency": 3})
    it = host(wiring, ["linear"], schedule=Schedule.ASYNCHRONOUS)
    for n in range(5):
        it.receive(forward(wiring, "linear", "x", [n], x(n)))
    it.receive(forward(wiring, "linear", "x", range(5, 10), x(*range(5))))
    assert [len(worked(it).message) for _ in range(3)] == [3, 2, 5]


# ------------------------------------------------------------------------ where it goes


def test_rows_between_nodes_of_one_worker_do_not_leave_it():
    wiring = chain()
    it = host(wiring)
    it.on_record(labels(0, 1))
    it.receive(forward(wiring, "linear", "x", [0, 1], x(0, 1), first_slot=7))
    assert it.work() == []  # to the loss
    assert it.work() == []  # back
    out = worked(it)
    assert (out.peer, out.message.port) == (0, 0)
    assert out.message.columns.tolist() == [[7], [8]]
    it.assert_invariants()


def test_answers_to_the_controller_never_carry_a_gradient():
    wiring = recurrent()
    it = host(wiring, ["joined"])
    back_of = wiring.return_ports.index((wiring.number["linear-1"], "y"))
    hidden = {"x": np.ones((2, 3))}
    # One row of `hidden` comes from the controller, one from linear-1, in one message.
    rows = forward(wiring, "joined", "hidden", [0, 1], hidden)
    rows.columns[:, 0] = [1, back_of]
    it.receive(rows)
    it.work()
    token = wiring.return_ports.index((wiring.number["embedding"], "y"))
    it.receive(
        forward(wiring, "joined", "token", [0, 1], {"x": np.ones((2, 2))}, return_port=token)
    )
    slots = worked(it).message.columns[:, 1:2]
    it.receive(backward(wiring, "joined", slots, {"x": np.arange(10.0).reshape(2, 5)}))
    sent = {(o.peer, o.message.port): o.message for o in it.work()}
    it.settle()
    assert set(sent) == {(0, 1), (2, back_of), (2, token)}
    assert sent[0, 1].payload is None
    assert sent[0, 1].columns.tolist() == [[0]]
    assert sent[2, back_of].columns.tolist() == [[1]]
    assert sent[2, back_of].payload["x"].tolist() == [[7, 8, 9]]
    assert sent[2, token].payload["x"].tolist() == [[0, 1], [5, 6]]
    it.assert_invariants()


def test_what_is_sent_is_read_only():
    wiring = chain()
    it = host(wiring, ["linear"])
    it.receive(forward(wiring, "linear", "x", [1], x(1)))
    message = worked(it).message
    with pytest.raises(ValueError, match="read-only"):
        message.columns[0, 0] = 9
    with pytest.raises(ValueError, match="read-only"):
        message.payload["x"][0, 0] = 9


# -------------------------------------------------------------------------- structure


def test_rows_wait_for_their_structure():
    wiring = chain()
    it = host(wiring, ["loss"])
    return_port = wiring.return_ports.index((wiring.number["linear"], "y"))
    it.on_record(labels(1))
    it.receive(forward(wiring, "loss", "x", [1, 3], x(1, 2), return_port=return_port))
    it.receive(forward(wiring, "loss", "x", [1], x(1), first_slot=5, return_port=return_port))
    assert (it.parked_rows, it.queued_rows) == (2, 3)
    assert worked(it).message.columns.tolist() == [[5]]
    assert it.work() is None
    it.on_record(labels(2))
    assert it.idle
    it.on_record(labels(3))
    assert it.parked_rows == 0
    assert worked(it).message.columns.tolist() == [[0], [1]]


def test_structure_is_freed_when_its_instance_retires():
    wiring = chain()
    it = host(wiring, ["loss"])
    it.on_record(labels(1, 2))
    assert it.report().live_structures == 2
    it.on_record(retired(1))
    assert it.report().live_structures == 1
    it.receive(forward(wiring, "loss", "x", [1], x(1), return_port=1))
    with pytest.raises(MissingStructureError, match=r"\(instance 1, .*no structure here"):
        it.work()


# ------------------------------------------------------------------- updates and barriers


def trained(wiring, it, instance=0):
    it.receive(forward(wiring, "linear", "x", [instance], x(1)))
    slots = worked(it).message.columns[:, 1:2]
    it.receive(backward(wiring, "linear", slots, x(1)))
    return it.work()


def test_the_gradient_is_added_when_the_answers_were_sent():
    wiring = chain()
    it = host(wiring, ["linear"])
    (linear,) = it.parameterised()
    trained(wiring, it)
    assert not linear.gradients["weight"].any()
    it.settle()
    assert linear.gradients["weight"].tolist() == [[1, 1], [1, 1]]
    it.settle()
    assert linear.gradients["weight"].tolist() == [[1, 1], [1, 1]]


def test_a_barrier_takes_the_synchronous_step_and_reports_after_it():
    wiring = chain()
    it = host(wiring, ["linear"])
    (linear,) = it.parameterised()
    before = linear.parameters["weight"].copy()
    trained(wiring, it)
    it.settle()
    (reply,) = it.on_record(Barrier(4, step_examples=2))
    assert isinstance(reply, Acknowledged)
    assert (reply.worker, reply.barrier) == (0, 4)
    np.testing.assert_allclose(before - linear.parameters["weight"], 0.1 / 2)
    node = reply.report.nodes["linear"]
    assert (node.updates, node.gradient_rows, node.staleness) == (1, 0, [1])


def test_left_overs_are_applied_when_the_barrier_says_so():
    wiring = chain(training={"min_update_frequency": 4})
    it = host(wiring, ["linear"], schedule=Schedule.ASYNCHRONOUS)
    (linear,) = it.parameterised()
    before = linear.parameters["weight"].copy()
    trained(wiring, it)
    it.settle()
    it.on_record(Barrier(1))
    assert linear.version == 0
    it.on_record(Barrier(2, apply_left_over=True))
    np.testing.assert_allclose(before - linear.parameters["weight"], 0.1 / 4)


def test_retired_instances_teach_a_node_its_rows_per_example_and_may_make_a_step_due():
    wiring = chain(training={"update_every": 1})
    it = host(wiring, ["linear"], schedule=Schedule.ASYNCHRONOUS)
    (linear,) = it.parameterised()
    trained(wiring, it)
    it.settle()
    assert linear.version == 0
    it.on_record(retired(0))
    assert linear.version == 1


def test_metrics_start_anew_behind_the_report_of_a_stage():
    wiring = chain()
    it = host(wiring, ["loss"])
    it.on_record(labels(1))
    it.receive(forward(wiring, "loss", "x", [1], x(1), return_port=1))
    it.work()
    for reset in (False, True):
        (reply,) = it.on_record(Barrier(1, reset_metrics=reset))
        metrics = reply.report.nodes["loss"].metrics
        assert metrics["train"]["accuracy"] == MetricSum(1.0, 1)
    (reply,) = it.on_record(Barrier(1))
    assert reply.report.nodes["loss"].metrics == {}


def test_a_barrier_refuses_rows_that_are_left():
    wiring = chain()
    it = host(wiring, ["linear"])
    it.receive(forward(wiring, "linear", "x", [1], x(1)))
    with pytest.raises(InvariantError, match="1 rows are queued though nothing is in flight"):
        it.on_record(Barrier(1))
    it.work()
    with pytest.raises(InvariantError, match=r"node 'linear' .*1 rows are still in the stash"):
        it.on_record(Barrier(1))


def test_every_node_sends_its_own_parameters():
    it = host(recurrent(), ["embedding", "loop", "linear-2"])
    replies = it.on_record(SendParameters())
    assert all(isinstance(r, Parameters) and r.worker == 0 for r in replies)
    assert {r.node: {n: a.shape for n, a in r.arrays.items()} for r in replies} == {
        "embedding": {"table": (10, 2)},
        "linear-2": {"weight": (3, 4), "bias": (4,)},
    }


def test_the_report_counts_rows_batches_and_time():
    wiring, ticks = chain(), itertools.count()
    it = host(wiring, ["linear"], clock=lambda: float(next(ticks)))
    trained(wiring, it)
    it.settle()
    it.receive(forward(wiring, "linear", "x", [1, 2], x(1, 2)))
    it.work()
    node = it.report().nodes["linear"]
    assert (node.rows_forward, node.rows_backward, node.batches) == (3, 1, 3)
    assert (node.stash_used, node.stash_peak) == (2, 2)
    assert node.busy_s == 4.0  # three pieces of work and one accumulate


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"port": 1}, WireError, "port 1 of a FORWARD message is not here"),
        ({"port": 99}, WireError, "port 99 of a FORWARD message"),
        ({"port": -1}, WireError, "port -1 of a FORWARD message"),
        ({"columns": np.zeros((0, 4), np.int32)}, WireError, "'linear', port 'x': a message with"),
        ({"columns": np.zeros((1, 5), np.int32)}, PayloadShapeError, "5 integer columns; .*: 4"),
        ({"payload": None}, PayloadShapeError, "forward rows without a payload"),
        ({"payload": {}}, PayloadShapeError, "array x is missing"),
        (
            {"payload": {"x": np.zeros((1, 3))}},
            PayloadShapeError,
            r"'x' is float64\[rows, 3\]; .*, 2",
        ),
        ({"payload": {"x": np.zeros((1, 2), np.float32)}}, PayloadShapeError, "is float32"),
        ({"payload": {**x(1), "y": np.zeros(1)}}, PayloadShapeError, "array 'y' is .*only x"),
    ],
)
def test_rows_that_do_not_fit_the_port_are_refused_by_node_and_port(change, error, said):
    wiring = chain()
    good = forward(wiring, "linear", "x", [1], x(1))
    fields = {n: getattr(good, n) for n in ("direction", "mode", "port", "columns", "payload")}
    with pytest.raises(error, match=said):
        host(wiring, ["linear"]).receive(Message(**{**fields, **change}))


def test_answers_that_do_not_fit_are_refused():
    wiring = chain()
    it = host(wiring, ["linear"])
    with pytest.raises(WireError, match="port 0 of a BACKWARD message is not here"):
        it.receive(Message(Direction.BACKWARD, Mode.TRAIN, 0, np.zeros((1, 1), np.int32), None))
    with pytest.raises(
        PayloadShapeError, match=r"'linear', port 'y': array 'x' is float64\[rows, 3"
    ):
        it.receive(backward(wiring, "linear", [[0]], {"x": np.zeros((1, 3))}))
    with pytest.raises(PayloadShapeError, match="2 integer columns; declared: 1"):
        it.receive(backward(wiring, "linear", [[0, 1]], None))


def test_under_verify_an_answer_brings_back_the_state_that_was_emitted():
    wiring = chain()
    it = host(wiring, ["linear"], verify=True)
    rows = forward(wiring, "linear", "x", [1, 2], x(1, 2))
    columns = np.concatenate([rows.columns, rows.columns[:, 2:]], axis=1)
    it.receive(Message(rows.direction, rows.mode, rows.port, columns, rows.payload))
    sent = worked(it).message.columns
    assert sent.shape == (2, 6)
    it.receive(backward(wiring, "linear", [[sent[0, 1], 1, 0]], None))
    assert worked(it).message.columns.tolist() == [[0, 1, 0]]
    it.receive(backward(wiring, "linear", [[sent[1, 1], 1, 0]], None))
    with pytest.raises(
        VerifyError, match=r"node 'linear': an answer brings back state \[1, 0\], b"
    ):
        it.work()


def test_a_record_for_the_loop_is_not_for_the_nodes():
    with pytest.raises(WireError, match="record 'link' is not for the nodes of a worker"):
        host(chain()).on_record(Link([0]))


def test_a_node_that_raises_is_the_one_that_was_worked_on():
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    broken = graph.add("cond", "broken", vector, choose="state_functions:raises")
    for port in ("no", "yes"):
        graph.add("sink", port, broken[port])
    wiring = graph.build()
    it = host(wiring)
    it.receive(forward(wiring, "broken", "x", [1], x(1)))
    with pytest.raises(Exception, match=r"node 'broken' .*raised KeyError"):
        it.work()
    assert it.working_on == "broken"


class SumsWithNumpy(Sink):
    def take_metrics(self, mode):
        return {"m": MetricSum(np.float32(0.5), np.int64(3))}


def test_metrics_summed_with_numpy_are_reported_as_plain_numbers():
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.add(f"{__name__}:SumsWithNumpy", "end", vector)
    report = host(graph.build()).report().nodes["end"]
    assert report.metrics["train"] == {"m": MetricSum(0.5, 3)}
    assert [type(n) for n in astuple(report.metrics["train"]["m"])] == [float, int]


# ------------------------------------------------------- what a kind must not return


class Odd(Relu):
    """Returns from `forward` what `returns` makes of what it should return."""

    returns: Any = None

    def forward(self, port, rows, mode):
        emissions = super().forward(port, rows, mode)
        return type(self).returns(emissions, rows)


def answer(return_to) -> list[Answer]:
    return [Answer(np.array(return_to, np.int32), None)]


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (lambda out, rows: None, "returned None, not a list of Emissions and Answers"),
        (lambda out, rows: [("y", rows)], r"returned \('y', .*, neither an Emission nor an Answer"),
        (lambda out, rows: [Emission("z", rows)], "rows at port 'z'; its output ports are: 'y'"),
        (lambda out, rows: answer([[7, 0]]), "answered to return port 7, which no row came with"),
        (lambda out, rows: answer([[-1, 0]]), "answered to return port -1, which no row"),
        (lambda out, rows: answer([0, 0]), r"answered to addresses \[2\], not \[rows, 2\]"),
    ],
)
def test_what_a_kind_may_not_return_is_refused_by_node_and_kind(monkeypatch, returns, said):
    monkeypatch.setattr(Odd, "returns", staticmethod(returns))
    graph = new_graph()
    vector = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.add("sink", "end", graph.add(f"{__name__}:Odd", "odd", vector))
    wiring = graph.build()
    it = host(wiring)
    it.receive(forward(wiring, "odd", "x", [1], x(1)))
    with pytest.raises(NodeError, match=rf"node 'odd' \(kind Odd\): .*{said}"):
        it.work()
