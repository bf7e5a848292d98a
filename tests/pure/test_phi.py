"""phi: rows of every input leave by the one output, unchanged."""

from __future__ import annotations

import pytest
from kinds import SCHEMA, floats, make, only, rows

from amp_runtime.errors import InvariantError, SchemaMismatchError, ShapeMismatchError
from amp_runtime.rows.message import Mode
from amp_runtime.rows.spec import StateSchema


def phi(**given):
    return make("phi", {"start": floats(2), "again": floats(2)}, inputs=("start", "again"), **given)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_rows_pass_unchanged_from_any_port(mode, verify, n):
    node = phi(verify=verify)
    for port in ("again", "start"):
        sent = rows([4] * n, range(n), first_slot=8, verify=verify, x=[[1.0, 2.0]] * n or [[]][:0])
        (emission,) = node.forward(port, sent, mode)
        assert emission.port == "y"
        assert emission.rows is sent


def test_nothing_is_kept_so_an_answer_is_a_bug():
    node = phi()
    only(node.forward("start", rows(x=[[1.0, 2.0]]), Mode.TRAIN))
    node.assert_drained()
    with pytest.raises(InvariantError, match="'phi-1' stamps no rows, but was answered"):
        node.backward("y", rows(x=[1.0]).columns[:, 1], None)


def test_inputs_that_differ_are_refused_with_both_specs():
    with pytest.raises(ShapeMismatchError, match=r"'a' is given .*rows, 2.*but port 'b' .*rows, 3"):
        make("phi", {"a": floats(2), "b": floats(3)}, inputs=("a", "b"))
    with pytest.raises(ShapeMismatchError, match=r"'a' is given .*x: .*but port 'b' .*h: "):
        make("phi", {"a": floats(2), "b": floats(2, name="h")}, inputs=("a", "b"))
    other = StateSchema((*SCHEMA.columns, ("visit", 3)))
    with pytest.raises(SchemaMismatchError, match=r"'a' has state .*but port 'b' .*visit:3"):
        make("phi", {"a": floats(2), "b": floats(2, schema=other)}, inputs=("a", "b"))
