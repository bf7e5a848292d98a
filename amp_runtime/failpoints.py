"""Named places where a test makes a process fail. In a run, nothing happens there.

    failpoints.hit("worker.after_receive")

`processes/failing.py` says what a test can make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

FAILPOINTS: Mapping[str, str] = {
    "worker.before_ready": "its nodes are made and its sockets bound, and nobody knows",
    "worker.in_reset": "it was told to begin anew, and has not yet",
    "worker.after_receive": "rows from another process are queued",
    "worker.before_forward": "a batch of rows was taken from the queues",
    "worker.after_forward": "a node has worked on them, and nothing was sent",
    "worker.before_backward": "a batch of answers was taken from the queues",
    "worker.before_send": "what a node made is about to be sent",
    "worker.after_answers": "answers were sent, and their gradients are not summed",
    "worker.after_apply": "a node has made an update",
    "worker.before_barrier": "it was told of a barrier, and has not acknowledged it",
    "worker.before_shard": "it was told to write its shards of a checkpoint, and has not",
    "worker.after_shard": "they are written, and it has not said so",
    "controller.before_inject": "rows of an instance are about to be sent",
    "controller.after_retire": "an instance is done, and no node was told",
    "controller.at_barrier": "all workers have acknowledged a barrier",
    "ckpt.before_manifest": "all shards of a checkpoint are written, and no manifest",
    "ckpt.before_rename": "all is written, under a temporary name",
    "ckpt.before_latest": "it has its name, and LATEST names the one before",
}
"""What is true at each of them."""


def _nothing(name: str) -> None:
    """Do nothing."""


hit: Callable[[str], None] = _nothing
"""Called with the name of a place when a process is there."""
