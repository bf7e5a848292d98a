"""Node kinds by name; each class is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence

from amp_runtime import names
from amp_runtime.errors import UnknownKindError, nearest
from amp_runtime.nodes.node import Node

_KINDS = {
    "add": "workers.add:Add",
    "bcast": "workers.bcast:Bcast",
    "child_sum_lstm": "workers.child_sum_lstm:ChildSumLstm",
    "concat": "workers.concat:Concat",
    "cond": "workers.cond:Cond",
    "dropout": "workers.dropout:Dropout",
    "embedding": "workers.embedding:Embedding",
    "flatmap": "workers.flatmap:Flatmap",
    "forget": "workers.forget:Forget",
    "group": "workers.group:Group",
    "gru": "workers.gru:Gru",
    "isu": "workers.isu:Isu",
    "join": "workers.join:Join",
    "layer_norm": "workers.layer_norm:LayerNorm",
    "linear": "workers.linear:Linear",
    "lstm": "workers.lstm:Lstm",
    "multiply": "workers.multiply:Multiply",
    "pad": "workers.pad:Pad",
    "phi": "workers.phi:Phi",
    "relu": "workers.relu:Relu",
    "sigmoid": "workers.sigmoid:Sigmoid",
    "sigmoid_cross_entropy": "workers.sigmoid_cross_entropy:SigmoidCrossEntropy",
    "sink": "workers.sink:Sink",
    "softmax": "workers.softmax:Softmax",
    "softmax_cross_entropy": "workers.softmax_cross_entropy:SoftmaxCrossEntropy",
    "softmax_over_rows": "workers.softmax_over_rows:SoftmaxOverRows",
    "split": "workers.split:Split",
    "squared_error": "workers.squared_error:SquaredError",
    "take": "workers.take:Take",
    "tanh": "workers.tanh:Tanh",
    "tree_lstm_branch": "workers.tree_lstm_branch:TreeLstmBranch",
    "tree_lstm_leaf": "workers.tree_lstm_leaf:TreeLstmLeaf",
    "ungroup": "workers.ungroup:Ungroup",
}


class Registry:
    """Finds the class of a kind: one of ours by name, a user's by `package.module:Class`."""

    def names(self) -> Sequence[str]:
        return tuple(_KINDS)

    def load(self, kind: str, *, where: str = "") -> type[Node]:
        """Return the class of `kind`.

        Raises:
            UnknownKindError: no such kind, or the name leads to no node class.
            FunctionNameError: `package.module:Class` does not resolve.
        """
        qualified = _KINDS.get(kind, kind)
        if not names.is_qualified(qualified):
            raise UnknownKindError(
                f"unknown kind {kind!r}{nearest(kind, _KINDS)}",
                where=where,
                fix="`make kinds` (`python -m amp_runtime kinds`) lists all; or package.module:"
                "Class for your own",
            )
        cls = names.resolve(qualified, what="a node kind", where=where)
        if not (isinstance(cls, type) and issubclass(cls, Node)):
            raise UnknownKindError(
                f"{kind!r} is no node kind: {cls!r} does not derive from "
                "amp_runtime.nodes.node:Node",
                where=where,
            )
        return cls
