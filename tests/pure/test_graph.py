"""Building a graph: what comes out, and that each mistake has its own error that says where."""

from __future__ import annotations

import numpy as np
import pytest
from wirings import FIELDS, POSITION, PerExample, chain, new_graph, recurrent, zeros

from amp_runtime.errors import (
    BadNameError,
    BadOptionError,
    BranchesMeetError,
    ConfigError,
    FunctionNameError,
    GraphError,
    NoPathToLossError,
    OccupiedPortError,
    SchemaMismatchError,
    ShapeMismatchError,
    StatelessCycleError,
    UnconnectedPortError,
    UnknownKindError,
    UnknownOptionError,
    UnknownPortError,
)
from amp_runtime.graph import Graph
from amp_runtime.rows.spec import ArraySpec
from workers.registry import Registry

NEXT = "state_functions:next_step"
ODD = "state_functions:is_odd"


@pytest.fixture
def graph():
    return new_graph()


@pytest.fixture
def vector(graph):
    return graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})


def node(wiring, name):
    return wiring.nodes[wiring.number[name]]


# ----------------------------------------------------------------------- what comes out


def test_specs_and_fields_are_inferred_along_the_edges():
    wiring = recurrent(batch=5)
    assert [n.name for n in wiring.nodes] == [
        "embedding", "loop", "joined", "linear-1", "step", "more", "linear-2", "loss",
    ]  # fmt: skip
    state = "(instance:24, example:3, step:5)"
    assert str(node(wiring, "joined").outputs["y"]) == f"{{x: float64[rows, 5]}} with state {state}"
    assert str(node(wiring, "embedding").inputs["x"]) == f"{{x: int32[rows]}} with state {state}"
    assert str(node(wiring, "loop").inputs["again"]).startswith("{x: float64[rows, 3]}")
    assert node(wiring, "more").fields == ("len(tokens)",)
    assert node(wiring, "loss").fields == ("label",)
    assert wiring.fields == {
        "len(tokens)": ArraySpec((), "int32"),
        "label": ArraySpec((), "int32"),
    }


@pytest.mark.parametrize(("batch", "bits"), [(2, 1), (3, 2), (4, 2), (5, 3), (100, 7)])
def test_the_example_column_is_as_wide_as_the_batch_needs(batch, bits):
    assert chain(batch=batch).inputs[0].spec.schema.columns[1] == ("example", bits)


def test_instances_of_one_example_have_no_example_column():
    assert chain().inputs[0].spec.schema.names == ("instance", "step")


def test_floating_fields_and_zeros_take_the_dtype_of_the_run():
    graph = new_graph(dtype="float32")
    for name, source in (("vector", "vector"), ("zeros", zeros((2,)))):
        out = graph.input(name, each=PerExample, state={"step": 0}, payload={"x": source})
        graph.add("sink", f"sink-{name}", out)
    assert [i.spec.arrays["x"] for i in graph.build().inputs] == [ArraySpec((2,), "float32")] * 2


def test_an_output_drawn_more_than_once_gets_a_bcast(graph, vector):
    linear = graph.add("linear", "first", vector, features=2)
    for name in ("one", "two", "three"):
        graph.add("sink", name, linear)
    wiring = graph.build()
    bcast = node(wiring, "first-bcast")
    assert (bcast.kind, tuple(bcast.outputs)) == ("bcast", ("y0", "y1", "y2"))
    assert sum(e.source == wiring.number["first"] for e in wiring.edges) == 1


def test_two_outputs_of_one_node_that_are_drawn_twice_get_a_bcast_each(graph, vector):
    split = graph.add("cond", "split", vector, choose=ODD)
    for n, port in enumerate(("no", "yes", "no", "yes")):
        graph.add("sink", f"sink-{n}", split[port])
    assert [n.name for n in graph.build().nodes if n.kind == "bcast"] == [
        "split-no-bcast", "split-yes-bcast",
    ]  # fmt: skip


def test_an_input_drawn_twice_gets_a_bcast(graph, vector):
    graph.add("sink", "one", vector)
    graph.add("sink", "two", vector)
    assert "vector-bcast" in graph.build().number


def test_training_options_lie_over_each_other_defaults_builder_user():
    graph = new_graph(
        training={"optimizer": {"name": "adam", "lr": 0.5}, "update_every": 7},
        overrides={
            "b": {"optimizer": {"lr": 0.25}, "min_update_frequency": 3},
            "c": {"optimizer": {"name": "sgd", "lr": 1.0}, "features": 2},
        },
    )
    out = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    for name in ("a", "b", "c"):
        given = {"update_every": 9} if name == "a" else {}
        out = graph.add("linear", name, out, features=4, **given)
    graph.add("sink", "end", out)
    training = {n.name: n.training for n in graph.build().nodes}
    adam = {"name": "adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
    rest = {
        "lr_schedule": {"name": "constant", "warm_up": 0}, "clip": "none", "initializer": "own",
        "backward_weights": "live", "delay": 0, "compensation": "auto", "replicas": 1,
        "average_every": "epoch", "nan_limit": 10,
        "averaging": {"name": "mean", "optimizer_state": "averaged"},
    }  # fmt: skip
    assert training["a"] == {
        "optimizer": {**adam, "lr": 0.5}, "update_every": 9, "min_update_frequency": "auto", **rest,
    }  # fmt: skip
    assert training["b"] == {
        "optimizer": {**adam, "lr": 0.25}, "update_every": 7, "min_update_frequency": 3, **rest,
    }  # fmt: skip
    sgd = {"name": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
    assert training["c"]["optimizer"] == {**sgd, "lr": 1.0}
    assert training["end"] == {}


def test_schedule_clip_and_initializer_of_all_nodes_of_the_builder_and_of_the_user():
    graph = new_graph(
        training={
            "lr_schedule": {"name": "cosine", "over": 100},
            "clip": {"norm": 1.0},
            "initializer": "xavier_normal",
            "backward_weights": "stashed",
        },
        overrides={
            "b": {
                "lr_schedule": {"warm_up": 5},
                "initializer": "own",
                "backward_weights": "recompute",
            }
        },
    )
    out = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    a = graph.add("linear", "a", out, features=4, clip="none", initializer={"bias": "zeros"})
    b = graph.add("linear", "b", a, features=4, lr_schedule={"name": "step", "every": 9})
    graph.add("sink", "end", graph.add("layer_norm", "c", b))
    training = {n.name: n.training for n in graph.build().nodes}
    cosine = {"name": "cosine", "over": 100, "final": 0.0, "warm_up": 0}
    assert training["a"]["lr_schedule"] == training["c"]["lr_schedule"] == cosine
    step = {"name": "step", "every": 9, "factor": 0.5, "warm_up": 5}
    assert training["b"]["lr_schedule"] == step  # the user's key over the builder's schedule
    weights = {name: training[name].get("backward_weights") for name in ("a", "b", "c", "end")}
    assert weights == {"a": "stashed", "b": "recompute", "c": "stashed", "end": None}
    assert training["a"]["clip"] == "none"
    assert training["b"]["clip"] == {"norm": 1.0, "value": None}
    assert training["a"]["initializer"] == {"bias": {"name": "zeros"}}
    assert training["b"]["initializer"] == "own"
    assert training["c"]["initializer"] == {"*": {"name": "xavier_normal", "gain": 1.0}}


def test_what_a_kind_refuses_of_its_training_names_the_node():
    fields = {"tokens": ArraySpec((), "int32")}
    graph = Graph(Registry(), fields=fields, training={"optimizer": {"name": "adamw"}})
    tokens = graph.input("tokens", each="tokens", state={}, payload={"x": "tokens"})
    with pytest.raises(BadOptionError, match=r"node 'table' .kind embedding.: option 'sparse'"):
        graph.add("embedding", "table", tokens, entries=3, features=2, sparse="lazy")


def test_an_override_is_stronger_than_the_builder():
    graph = new_graph(overrides={"linear": {"features": 9}})
    out = graph.input("vector", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.add("sink", "end", graph.add("linear", "linear", out, features=4))
    assert node(graph.build(), "linear").options["features"] == 9


def test_a_kind_of_ones_own_is_named_by_its_class(graph, vector):
    graph.add("workers.sink:Sink", "end", vector)
    assert graph.build().nodes[0].kind == "workers.sink:Sink"


# ------------------------------------------------------- mistakes at the time of drawing


def test_an_unknown_kind_names_node_and_nearest(graph, vector):
    with pytest.raises(UnknownKindError, match=r"node 'a' .kind liner.*'liner' .did you mean 'lin"):
        graph.add("liner", "a", vector, features=2)
    with pytest.raises(
        UnknownKindError, match=r"'amp_runtime.rows.join:Join' is no node kind.*not deri"
    ):
        graph.add("amp_runtime.rows.join:Join", "a", vector)
    with pytest.raises(FunctionNameError, match=r"node 'a' .*no module 'no_such_module'"):
        graph.add("no_such_module:Mine", "a", vector)


def test_an_unknown_or_missing_option_names_node_and_nearest(graph, vector):
    with pytest.raises(
        UnknownOptionError, match=r"node 'a' .kind linear.: .*featurs: unknown option .*'features'"
    ):
        graph.add("linear", "a", vector, featurs=2)
    with pytest.raises(BadOptionError, match=r"node 'a' .kind linear.: features: is missing"):
        graph.add("linear", "a", vector)


@pytest.mark.parametrize("name", ["", "Linear", "a b", "-a", "a" * 42, "a.b", "ä"])
def test_a_bad_name_is_refused(graph, vector, name):
    with pytest.raises(BadNameError, match=r"is not a valid name; use 1 to 41 characters"):
        graph.add("sink", name, vector)


def test_a_name_is_taken_once_by_nodes_and_inputs_together(graph, vector):
    graph.add("sink", "end", vector)
    for name in ("end", "vector"):
        with pytest.raises(BadNameError, match=f"the name '{name}' is taken"):
            graph.add("sink", name, vector)


def test_an_unknown_port_names_node_and_nearest(graph, vector):
    split = graph.add("cond", "split", vector, choose=ODD)
    with pytest.raises(
        UnknownPortError, match=r"node 'split' .kind cond.: no output port 'yess' .*'yes'.*\['no'"
    ):
        split["yess"]
    with pytest.raises(UnknownPortError, match=r"node 'split' .*no input port 'y'.*are \['x'\]"):
        split.port("y")
    with pytest.raises(UnknownPortError, match=r"has output ports \['no', 'yes'\], so name one"):
        graph.add("sink", "end", split)


def test_more_sources_than_ports_are_refused(graph, vector):
    with pytest.raises(UnknownPortError, match=r"node 'end' .*2 inputs are drawn to its ports"):
        graph.add("sink", "end", vector, vector)


def test_a_handle_of_several_inputs_stands_for_no_port(graph, vector):
    join = graph.add("concat", "join", inputs=("a", "b"))
    with pytest.raises(
        UnknownPortError, match=r"node 'join' .*has input ports \['a', 'b'\], so na"
    ):
        graph.connect(vector, join)


def test_an_input_port_drawn_to_twice_is_refused(graph, vector):
    end = graph.add("sink", "end", vector)
    with pytest.raises(OccupiedPortError, match=r"node 'end' .*port 'x' is drawn to twice; merge"):
        graph.connect(vector, end)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"optimizer": {"name": "adm"}}, r"unknown optimizer 'adm' .did you mean 'adam'"),
        (
            {"optimizer": {"name": "sgd", "rl": 1.0}},
            r"optimizer.rl: unknown option of optimizer sgd .*'lr'",
        ),
        ({"optimizer": {"lr": -1.0}}, "optimizer.lr: must be a number .above 0"),
        ({"update_every": 0}, r"update_every: must be a whole number .at least 1., not 0"),
        ({"update_every": "auto"}, "update_every: must be a whole number .*'auto'"),
        ({"min_update_frequency": 1.5}, "min_update_frequency: must be a whole .* not 1.5"),
        ({"min_update_frequency": True}, "min_update_frequency: must be a whole .* not true"),
        ({"clip": 1.0}, r"clip: must be 'none', \{norm: NUMBER\} or \{value: NUMBER\}, not 1.0"),
        ({"clip": {"norm": 1.0, "value": 1.0}}, "clip: give norm or value, one of the two"),
        ({"clip": {}}, "clip: give norm or value, one of the two"),
        ({"clip": {"nrom": 1.0}}, "clip.nrom: unknown option of clip .did you mean 'norm'"),
        ({"clip": {"norm": 0.0}}, "clip.norm: must be a number .*above 0"),
        ({"lr_schedule": {"name": "cosin"}}, "unknown lr_schedule 'cosin' .did you mean 'cosine'"),
        ({"lr_schedule": {"name": "step"}}, "lr_schedule.every: is missing"),
        ({"lr_schedule": {"name": "step", "over": 3}}, "over: unknown option of lr_schedule step"),
        ({"lr_schedule": "cosine"}, "lr_schedule: must be a mapping with a name, not 'cosine'"),
        ({"initializer": "xavier"}, "initializer: unknown initializer 'xavier' .did you mean"),
        ({"initializer": {"weight": "nomal"}}, "initializer.weight: unknown .* mean 'normal'"),
        ({"initializer": {"weight": {"name": "normal", "sd": 1.0}}}, "sd: unknown option of init"),
        ({"initializer": {"name": "uniform", "a": 1.0}}, "initializer: a must be below b"),
        (
            {"backward_weights": "stash"},
            "backward_weights: must be live, stashed or recompute, not 'stash'",
        ),
        ({"backward_weights": None}, "backward_weights: must be live, .* not null"),
        (
            {"compensation": "best"},
            "compensation: must be auto, none, or a mapping as .predict: linear",
        ),
        (
            {"compensation": {"predict": "adam"}},
            "compensation.predict: must be 'none', 'linear', 'dec",
        ),
        ({"compensation": {"forecast": "linear"}}, "forecast: unknown option of compensation"),
        ({"compensation": {"predict": "linear", "horizon": 0.0}}, "compensation.horizon: must be"),
        (
            {"compensation": {}},
            "compensation: names no remedy: give predict, momentum, step_size or drop_b",
        ),
        (
            {"compensation": {"drop_beyond": 3, "horizon": 2.0}},
            "compensation: horizon: needs predict: linear, decaying or last_update",
        ),
        (
            {"compensation": {"drop_beyond": 3, "predict_after": 2}},
            "compensation: predict_after: needs predict",
        ),
        (
            {"compensation": {"step_size": "annealed"}},
            "compensation: step_size: annealed and anneal_over: UPDATES need each other",
        ),
        (
            {"compensation": {"step_size": "by_row", "anneal_over": 9}},
            "compensation: step_size: annealed and anneal_over: UPDATES need each other",
        ),
        (
            {"compensation": {"predict": "linear"}},
            "compensation: predict: linear goes along .* sgd without momentum keeps none; give it",
        ),
        (
            {
                "compensation": {"predict": "decaying"},
                "optimizer": {"name": "adagrad", "lr": 0.1},
            },
            "decaying goes along the optimizer's momentum, and adagrad keeps none; use predict: la",
        ),
        (
            {"compensation": {"momentum": "raised"}},
            "momentum: raised, but sgd without momentum keeps none; give it a momentum, or use ste",
        ),
        ({"initializer": 3}, "initializer: must be a name, or a mapping, not 3"),
    ],
)
def test_bad_training_options_name_node_and_option(graph, vector, given, said):
    with pytest.raises(
        (UnknownOptionError, BadOptionError), match=f"node 'a' .kind linear.*{said}"
    ):
        graph.add("linear", "a", vector, features=2, **given)


def test_training_options_are_for_nodes_with_parameters(graph, vector):
    with pytest.raises(
        UnknownOptionError, match=r"node 'end' .*'update_every' is for nodes with pa"
    ):
        graph.add("sink", "end", vector, update_every=3)


# -------------------------------------------------------------------- inputs and states


def test_state_columns_are_declared_once_and_within_their_bits(graph):
    for name in ("step", "instance", "example"):
        with pytest.raises(GraphError, match=f"state column '{name}' exists already"):
            graph.state(**{name: 3})
    for bits in (0, 32, 1.5):
        with pytest.raises(GraphError, match=f"state column 'visit': {bits} bits, not 1 to 31"):
            graph.state(visit=bits)


def test_a_state_that_does_not_fit_a_key_is_refused(graph):
    graph.state(visit=31)  # 24 + 8 + 31 = 63
    with pytest.raises(GraphError, match=r"visit:31, more:1\) takes 64 bits, more than 63"):
        graph.state(more=1)


@pytest.mark.parametrize("state", [{}, {"step": 0, "visit": 0}, {"stop": 0}])
def test_an_input_gives_every_column_and_no_other(graph, state):
    with pytest.raises(GraphError, match=r"input 'v': state columns .* do not match .*\['step'\]"):
        graph.input("v", each=PerExample, state=state, payload={"x": "vector"})


@pytest.mark.parametrize(
    ("each", "state", "payload"),
    [
        ("tokns", POSITION, "vector"),
        ("tokens", "tokns", "vector"),
        ("tokens", POSITION, "tokns"),
        ("tokens", "len(tokns)", "vector"),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest(graph, each, state, payload):
    with pytest.raises(GraphError, match=r"input 'v': the data have no field 'tokns' .*'tokens'"):
        graph.input("v", each=each, state={"step": state}, payload={"x": payload})


def test_a_state_column_takes_whole_numbers_only(graph):
    with pytest.raises(
        ShapeMismatchError, match=r"input 'v'.*'step'.*'vector' is float64\[rows, 2"
    ):
        graph.input("v", each="tokens", state={"step": "vector"}, payload={"x": "tokens"})


def test_a_length_is_no_field_to_inject_a_row_for_each_element_of(graph):
    with pytest.raises(GraphError, match=r"input 'v'.*'len\(tokens\)' has no elements.*PerExample"):
        graph.input("v", each="len(tokens)", state={"step": 0}, payload={"x": "vector"})


# --------------------------------------------------------- mistakes seen when it is built


def test_an_override_of_no_node_names_the_nearest():
    graph = new_graph(overrides={"lineer": {"features": 2}})
    vector = graph.input("v", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.add("sink", "end", graph.add("linear", "linear", vector, features=2))
    with pytest.raises(ConfigError, match=r"nodes.lineer: no node 'lineer' .*'linear'"):
        graph.build()


def test_a_port_that_is_not_connected_is_named(graph, vector):
    join = graph.add("concat", "join", vector, inputs=("a", "b"))
    with pytest.raises(
        UnconnectedPortError, match=r"node 'join' .*nothing is drawn to input port 'b"
    ):
        graph.build()
    graph.connect(vector, join.port("b"))
    with pytest.raises(
        UnconnectedPortError, match=r"node 'join' .*output port 'y' leads nowhere; c"
    ):
        graph.build()


def test_an_input_that_leads_nowhere_is_named(graph, vector):
    with pytest.raises(UnconnectedPortError, match="input 'vector': leads nowhere"):
        graph.build()


def test_a_part_that_no_row_reaches_is_named(graph, vector):
    graph.add("sink", "end", vector)
    loop = graph.add("isu", "island", update=NEXT)
    graph.connect(loop, loop)
    with pytest.raises(
        UnconnectedPortError, match=r"node 'island' .*no row can reach input port 'x"
    ):
        graph.build()


def test_shapes_that_do_not_fit_name_the_node_and_what_it_was_given(graph):
    tokens = graph.input("tokens", each="tokens", state={"step": 0}, payload={"x": "tokens"})
    graph.add("sink", "end", graph.add("linear", "a", tokens, features=2))
    with pytest.raises(
        ShapeMismatchError,
        match=r"node 'a' .kind linear.: port 'x' takes .*float64\[rows, in, .*\{x: int32\[rows\]\}",
    ):
        graph.build()


def test_a_loop_whose_way_back_does_not_fit_shows_both_specs(graph, vector):
    loop = graph.add("phi", "loop", vector, inputs=("start", "again"))
    step = graph.add("isu", "step", graph.add("linear", "wide", loop, features=3), update=NEXT)
    split = graph.add("cond", "split", step, choose=ODD)
    graph.connect(split["yes"], loop.port("again"))
    graph.add("sink", "end", split["no"])
    with pytest.raises(
        ShapeMismatchError,
        match=r"node 'loop' .*'start' is given .*float64\[rows, 2\].*'again' .*float64\[rows, 3\]",
    ):
        graph.build()


def test_states_that_do_not_fit_show_both_schemas():
    graph = new_graph()
    one = graph.input("one", each=PerExample, state={"step": 0}, payload={"x": "vector"})
    graph.state(visit=2)
    two = graph.input(
        "two", each=PerExample, state={"step": 0, "visit": 0}, payload={"x": "vector"}
    )
    graph.add("sink", "end", graph.add("concat", "join", one, two, inputs=("a", "b")))
    with pytest.raises(
        SchemaMismatchError, match=r"node 'join' .*'a' has state \(.*step:8\), but port 'b' .*visit"
    ):
        graph.build()


def test_rows_that_can_never_end_are_refused(graph, vector):
    loop = graph.add("phi", "loop", vector, inputs=("start", "again"))
    graph.connect(graph.add("isu", "step", loop, update=NEXT), loop.port("again"))
    with pytest.raises(NoPathToLossError, match=r"node 'loop' .kind phi.: no path leads from here"):
        graph.build()


def test_a_cycle_in_which_no_state_changes_is_shown(graph, vector):
    loop = graph.add("phi", "loop", vector, inputs=("start", "again"))
    body = graph.add("linear", "body", loop, features=2)
    split = graph.add("cond", "split", body, choose=ODD)
    graph.connect(split["yes"], loop.port("again"))
    graph.add("sink", "end", split["no"])
    with pytest.raises(
        StatelessCycleError, match=r"in the cycle loop -> body -> split -> loop; put"
    ):
        graph.build()


def test_a_function_that_does_not_resolve_names_the_node(graph, vector):
    graph.add("sink", "end", graph.add("isu", "step", vector, update="state_functions:next_stop"))
    with pytest.raises(FunctionNameError, match=r"node 'step' .*has no 'next_stop' .*'next_step'"):
        graph.build()


def test_a_name_that_is_no_function_is_refused(graph, vector):
    graph.add("sink", "end", graph.add("isu", "s", vector, update="state_functions:not_a_function"))
    with pytest.raises(
        FunctionNameError, match=r"node 's' .*'state_functions:not_a_function' is not a f"
    ):
        graph.build()


def test_a_field_that_a_node_needs_and_the_data_lack_is_named(graph, vector):
    graph.add("softmax_cross_entropy", "loss", vector, label="lable")
    with pytest.raises(GraphError, match=r"node 'loss' .*no field 'lable' .did you mean 'label'"):
        graph.build()


# ------------------------------------------------------------------- branches that meet


def merged(graph, *sources, name="merge"):
    ports = tuple(f"p{n}" for n in range(len(sources)))
    return graph.add("phi", name, *sources, inputs=ports)


def joined(graph, *sources, name="join"):
    ports = tuple(f"p{n}" for n in range(len(sources)))
    return graph.add("concat", name, *sources, inputs=ports)


def diamond(graph, source, name="split"):
    split = graph.add("cond", name, source, choose=ODD)
    no = graph.add("relu", f"{name}-no", split["no"])
    return merged(graph, no, split["yes"], name=f"{name}-phi")


def test_two_branches_that_meet_in_a_phi_are_named_with_its_ports(graph, vector):
    relu = graph.add("relu", "branch", vector)
    graph.add("sink", "end", merged(graph, vector, relu))
    with pytest.raises(
        BranchesMeetError,
        match=r"node 'vector-bcast' .*branches 'y[01]' and 'y[01]' meet in phi 'merge' .*'p[01]'",
    ):
        graph.build()


def test_the_parts_of_a_split_meet_as_branches_do(graph, vector):
    split = graph.add("split", "split", vector, outputs={"a": 1, "b": 1})
    graph.add("sink", "end", merged(graph, split["a"], split["b"]))
    with pytest.raises(
        BranchesMeetError, match=r"node 'split' \(kind split\).*branches 'a' and 'b'"
    ):
        graph.build()


def test_a_branch_around_a_join_meets_what_was_joined(graph, vector):
    one = graph.add("linear", "one", vector, features=1)
    two = graph.add("linear", "two", vector, features=1)
    graph.add("sink", "end", merged(graph, joined(graph, one, two), vector))
    with pytest.raises(BranchesMeetError, match=r"'y[012]' and 'y[012]' meet in phi 'merge'"):
        graph.build()


def test_branches_that_are_joined_may_pass_a_choice_together(graph, vector):
    one = graph.add("linear", "one", vector, features=1)
    graph.add("sink", "end", diamond(graph, joined(graph, one, vector)))
    graph.build()


def test_each_branch_may_have_a_choice_of_its_own(graph, vector):
    one, two = diamond(graph, vector, "first"), diamond(graph, vector, "second")
    graph.add("sink", "end", diamond(graph, joined(graph, one, two), "third"))
    graph.build()


def test_a_branch_with_another_state_may_meet_the_first(graph, vector):
    other = graph.add("isu", "step", graph.add("relu", "relu", vector), update=NEXT)
    graph.add("sink", "end", merged(graph, vector, graph.add("relu", "after", other)))
    graph.build()


def test_a_residual_loop_is_no_meeting_of_branches(graph, vector):
    loop = graph.add("phi", "loop", vector, inputs=("start", "again"))
    deep = graph.add("linear", "deep", loop, features=2)
    body = graph.add("linear", "body", joined(graph, loop, deep), features=2)
    split = graph.add("cond", "split", graph.add("isu", "step", body, update=NEXT), choose=ODD)
    graph.connect(split["yes"], loop.port("again"))
    graph.add("sink", "end", split["no"])
    graph.build()


# ------------------------------------------------------ rows that fan out and come together


def looped(graph, vector):
    """Return a phi, its edges by a flatmap, and the sum of these, announced by the phi."""
    loop = graph.add("phi", "loop", vector, inputs=("start", "again"))
    many = graph.add("flatmap", "many", loop, count=2, state=NEXT)
    sums = graph.add("group", "sums", many, loop, reduce="sum", key=NEXT, count=2, announced=True)
    return loop, sums


def test_a_loop_through_the_members_of_a_group_changes_the_state(graph, vector):
    loop = graph.add("phi", "loop", vector, inputs=("start", "again"))
    pair = graph.add("group", "pair", loop, reduce="mean", key=NEXT, count=2)
    odd = graph.add("cond", "odd", pair, choose=ODD)
    graph.connect(odd["no"], loop.port("again"))
    graph.add("sink", "end", odd["yes"])
    graph.build()


def test_a_loop_through_the_announcement_of_a_group_needs_another_change(graph, vector):
    loop, sums = looped(graph, vector)
    odd = graph.add("cond", "odd", sums, choose=ODD)
    graph.connect(odd["no"], loop.port("again"))
    graph.add("sink", "end", odd["yes"])
    with pytest.raises(StatelessCycleError, match=r"loop -> loop-bcast -> sums -> odd -> loop"):
        graph.build()


def test_a_loop_with_a_change_may_fan_out_and_come_together(graph, vector):
    loop, sums = looped(graph, vector)
    step = graph.add("isu", "step", joined(graph, sums, loop), update=NEXT)
    odd = graph.add("cond", "odd", graph.add("linear", "l", step, features=2), choose=ODD)
    graph.connect(odd["no"], loop.port("again"))
    graph.add("sink", "end", odd["yes"])
    graph.build()


def test_what_a_group_was_announced_by_meets_its_other_branch(graph, vector):
    many = graph.add("flatmap", "many", vector, count=2, state=NEXT)
    sums = graph.add("group", "sums", many, vector, reduce="sum", key=NEXT, count=2, announced=True)
    graph.add("sink", "end", merged(graph, sums, vector))
    with pytest.raises(BranchesMeetError, match=r"branches 'y\d' and 'y\d' meet in phi 'merge'"):
        graph.build()


def test_states_may_have_other_columns_from_a_fan_out_on(graph, vector):
    edges = {"state": "state_functions:edges", "columns": {"edge": 5}}
    many = graph.add("flatmap", "many", vector, count=2, **edges)
    graph.add("sink", "end", graph.add("relu", "relu", many))
    wiring = graph.build()
    schema = wiring.nodes[wiring.number["relu"]].outputs["y"].schema
    assert schema.names == ("instance", "edge")


def test_fields_of_the_data_are_copied():
    fields = dict(FIELDS)
    graph = Graph(Registry(), fields=fields)
    fields.clear()
    assert graph.fields == FIELDS


def test_the_name_of_an_inserted_bcast_gives_way_to_one_that_is_taken(graph, vector):
    graph.add("sink", "vector-bcast", vector)
    graph.add("sink", "other", vector)
    wiring = graph.build()
    assert wiring.nodes[wiring.number["vector-bcast"]].kind == "sink"
    assert wiring.nodes[wiring.number["vector-bcast-2"]].kind == "bcast"


# ---------------------------------------------------------- what a builder may get wrong


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"payload": None}, "its payload is None, not a dict by name"),
        ({"payload": {5: "vector"}}, "its payload is {5: 'vector'}, not a dict by name"),
        ({"payload": {"x": 5}}, "5 is no field: a field is text"),
        ({"payload": {"x": zeros((0,))}}, r"array 'x' is float64\[rows, 0\]; the shape of a row"),
        ({"payload": {"x": zeros((-1,))}}, r"array 'x' is float64\[rows, -1\]"),
        ({"payload": {"x": zeros("ab")}}, r"array 'x' is float64\[rows, a, b\]"),
        ({"payload": {"x": zeros((4.0,))}}, r"array 'x' is float64\[rows, 4.0\]"),
        ({"state": None}, "its state is None, not a dict by name"),
        ({"state": {"step": 1.5}}, "state column 'step' is given 1.5; give a field, POSITION or"),
        ({"state": {"step": True}}, "state column 'step' is given True"),
        ({"each": 5}, "5 is no field: a field is text"),
    ],
)
def test_an_input_of_the_wrong_form_is_refused_by_name(graph, given, said):
    right = {"each": PerExample, "state": {"step": 0}, "payload": {"x": "vector"}}
    with pytest.raises(GraphError, match=f"^input 'vector': {said}"):
        graph.input("vector", **{**right, **given})


def test_whole_numbers_of_numpy_and_one_axis_of_zeros_are_taken(graph):
    graph.state(node=np.int64(3))
    out = graph.input(
        "z", each=PerExample, state={"step": np.int32(1), "node": 2}, payload={"x": zeros(4)}
    )
    graph.add("sink", "end", graph.add("linear", "wide", out, features=np.int64(2)))
    wiring = graph.build()
    assert wiring.inputs[0].state == {"step": 1, "node": 2}
    assert type(wiring.inputs[0].state["step"]) is int
    assert wiring.inputs[0].spec.arrays["x"].shape == (4,)
    assert node(wiring, "wide").options["features"] == 2


def test_a_state_column_may_not_be_called_as_ours(graph):
    with pytest.raises(GraphError, match="'@position': names with @ are ours"):
        graph.state(**{"@position": 3})


@pytest.mark.parametrize("end", [None, "vector", 5])
def test_an_edge_from_or_to_what_is_no_port_is_refused(graph, end):
    with pytest.raises(GraphError, match=f"{end!r} is no such end; draw from what graph.input"):
        graph.add("relu", "relu", end)
    with pytest.raises(GraphError, match=f"{end!r} is no such end"):
        graph.connect(graph.add("tanh", "tanh"), end)


def test_an_edge_to_another_graph_is_refused(graph, vector):
    with pytest.raises(GraphError, match="is of another graph"):
        graph.connect(vector, new_graph().add("relu", "relu"))


@pytest.mark.parametrize("kind", [None, 5, Graph])
def test_a_kind_that_is_no_text_is_refused(graph, vector, kind):
    with pytest.raises(UnknownKindError, match=r"^node 'it' .*a kind is text, not "):
        graph.add(kind, "it", vector)


def test_a_model_without_nodes_is_refused():
    with pytest.raises(GraphError, match=r"the model has no nodes; let its builder call"):
        new_graph().build()


def test_a_function_on_states_of_another_form_is_refused(graph, vector):
    cond = graph.add("cond", "cond", vector, choose="math:sqrt")
    for port in ("yes", "no"):
        graph.add("sink", port, cond[port])
    with pytest.raises(
        FunctionNameError, match=r"node 'cond' .*'math:sqrt' cannot be called with \(columns, str"
    ):
        graph.build()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"weight": [[np.inf, 0.0]]}, "begins with a 'weight' that holds a value not finite"),
        ({"weight": "abc"}, "begins with a 'weight' that is no array of numbers"),
    ],
)
def test_what_a_node_begins_with_is_finite_numbers(graph, vector, arrays, said):
    linear = graph.add("linear", "linear", vector, features=2)
    with pytest.raises(GraphError, match=rf"^node 'linear' .*{said}"):
        graph.begin(linear, **arrays)
    with pytest.raises(GraphError, match=r"node 'relu' .*has no parameters to begin with"):
        graph.begin(graph.add("relu", "relu", linear), **arrays)


@pytest.mark.parametrize(
    ("kind", "features", "options", "said"),
    [
        ("softmax_cross_entropy", 2, {"label": "vector"}, r"'label': field 'vector' is float64\["),
        ("squared_error", 3, {"target": "vector"}, "a target of 2 features, but rows of 3; give"),
        ("sigmoid_cross_entropy", 2, {"target": "label"}, "a target of 1 features, but rows of 2"),
        (
            "softmax_over_rows", 1, {"index": "step", "count": "vector"},
            r"'count': field 'vector' is float64\[rows, 2\], not int32\[rows\]",
        ),
    ],
)  # fmt: skip
def test_fields_that_do_not_fit_a_loss_are_refused(graph, vector, kind, features, options, said):
    graph.add(kind, "loss", graph.add("linear", "linear", vector, features=features), **options)
    with pytest.raises(ShapeMismatchError, match=rf"^node 'loss' .*{said}"):
        graph.build()
