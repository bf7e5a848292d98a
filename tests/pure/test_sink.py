"""sink: rows end, answered null at once."""

from __future__ import annotations

import pytest
from kinds import answered, floats, make, only, rows

from amp_runtime.errors import InvariantError
from amp_runtime.rows.message import Mode


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("n", [0, 1, 3])
def test_every_row_is_answered_null_at_once(mode, n):
    node = make("sink", floats(1))
    sent = rows([1] * n, range(n), first_slot=5, x=[[1.0]] * n or [[]][:0])
    assert answered(node.forward("x", sent, mode)) == dict.fromkeys(range(5, 5 + n))
    node.assert_drained()


def test_the_answer_brings_the_emitted_state_back_under_verify():
    node = make("sink", floats(1), verify=True)
    sent = rows(4, step=[6], first_slot=5, verify=True, x=[[1.0]])
    assert only(node.forward("x", sent, Mode.TRAIN)).return_to.tolist() == [[3, 5, 4, 6]]


def test_nothing_is_emitted_so_an_answer_is_a_bug():
    with pytest.raises(InvariantError, match="'sink-1' stamps no rows, but was answered"):
        make("sink", floats(1)).backward("y", rows(x=[1.0]).columns[:, 1], None)
