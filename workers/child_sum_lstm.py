"""The LSTM cell at a node of a tree with any number of children, in no order."""

from __future__ import annotations

from dataclasses import dataclass

from workers.lstm_cell import StateCell


class ChildSumLstm(StateCell):
    """Input `x` {x: [rows, in], h: [rows, features], c: [rows, features]}, output `y` {h, c}.

    h and c are the sums over a node's children, zeros at a leaf: what a `group` with
    reduce: sum makes of the children's rows after a `forget` gate.

    Parameters: weight [in + features, 3 * features], bias [3 * features], gates in the
    order i, g, o.
    Source: Tai, Socher, Manning, arXiv:1503.00075, Child-Sum Tree-LSTM.
    """

    kind = "child_sum_lstm"
    n_before = 0

    @dataclass(frozen=True, slots=True)
    class Options:
        pass
