"""`delay: {name: trace, run: RUN}`: what a node's rows had in a recorded run, read from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amp_runtime.config.schema import Config
from amp_runtime.delay.draws import WINDOWS, Window
from amp_runtime.errors import ConfigError, TraceError, UsageError
from amp_runtime.graph.wiring import NodeSpec, Wiring
from amp_runtime.output.run_folder import RunFolder
from amp_runtime.prepare import Prepared
from amp_runtime.trace.file import TraceReader
from amp_runtime.trace.staleness import updates_of, windows

_SAME = ("kind", "options")
"""What a node must have been in the recorded run; how it was trained does not matter."""


def with_recorded_delays(prepared: Prepared) -> Prepared:
    """Return a run whose nodes have the delays of the recorded runs that they name.

    Raises:
        ConfigError: there is no such run, it was not recorded, or was of another graph; its
            place is the line of the config.
        TraceError: a trace is damaged, or has no end.
    """
    wiring, nodes = prepared.wiring, []
    read: dict[str, Mapping[str, list[Window]]] = {}
    for node in wiring.nodes:
        delay = node.training.get("delay")
        if isinstance(delay, Mapping) and delay["name"] == "trace":
            key, run = _key(prepared.config, node), delay["run"]
            if run not in read:
                read[run] = _Recorded(prepared.config, key, run).windows(wiring)
            node = _with(node, delay, read[run], f"{prepared.config.place(key)}: {key}")
        nodes.append(node)
    return replace(prepared, wiring=replace(wiring, nodes=tuple(nodes))) if read else prepared


def _key(config: Config, node: NodeSpec) -> str:
    """Return the key that gives a node its delay."""
    section = config.nodes.get(node.ir_name)
    own = section is not None and section.delay is not None
    return f"nodes.{node.ir_name}.delay.run" if own else "training.delay.run"


def _with(
    node: NodeSpec, delay: Mapping[str, Any], found: Mapping[str, list[Window]], where: str
) -> NodeSpec:
    if not found[node.name]:
        raise ConfigError(
            f"node {node.name!r} had no gradient in run {delay['run']}, and so no delay",
            where=where,
            fix=f"give it one of its own: nodes.{node.ir_name}.delay",
        )
    # As a plan has them when it was read again.
    plain = json.loads(json.dumps(found[node.name]))
    return replace(node, training={**node.training, "delay": {**delay, WINDOWS: plain}})


class _Recorded:
    """A recorded run, and the key of the config that names it."""

    def __init__(self, config: Config, key: str, run: str) -> None:
        self._where = config.place(key)
        self._key = key
        if run == "last":
            raise self._wrong(
                "'last' would be another run each time", "name it: `make runs` lists all"
            )
        try:
            self._folder = RunFolder.find(run, config.runtime.runs)
            self._plan = self._folder.read_plan()
        except UsageError as error:
            raise self._wrong(error.what, error.fix.replace(", or `last`", "")) from None
        if not self._folder.trace.is_dir():
            raise self._wrong(f"run {run!r} was not recorded", "train it with runtime.record=true")

    def windows(self, wiring: Wiring) -> Mapping[str, list[Window]]:
        """Return the windows of its nodes, by name.

        Args:
            wiring: the graph that they are for.
        """
        self._check_same(wiring)
        nodes = self._plan.wiring.nodes
        found: dict[str, list[Window]] = {node.name: [] for node in nodes}
        for place in self._plan.placement.workers:
            path = self._folder.trace / place.name
            try:
                updates = updates_of(TraceReader(path, self._plan.run, place.name))
            except TraceError as error:
                raise error.at(f"{self._where}: {self._key}") from error.__cause__
            found |= {nodes[number].name: windows(some) for number, some in updates.items()}
        return found

    def _check_same(self, wiring: Wiring) -> None:
        """Assert that its graph is this one, however it was trained."""
        theirs, ours = self._plan.wiring, wiring
        before, now = ({n.name: n for n in w.nodes} for w in (theirs, ours))
        if odd := sorted(before.keys() ^ now.keys()):
            has = "had" if odd[0] in before else "had no"
            raise self._other(f"it {has} node {odd[0]!r}")
        for name, node in now.items():
            for field in _SAME:
                one, other = getattr(before[name], field), getattr(node, field)
                if one != other:
                    raise self._other(f"{field} of node {name!r} was {one}, and is {other}")
        if theirs.edges != ours.edges:
            raise self._other("its edges were others")

    def _other(self, how: str) -> ConfigError:
        return self._wrong(
            f"run {str(self._folder.path)!r} was of another graph: {how}",
            "record a run of this model",
        )

    def _wrong(self, what: str, fix: str) -> ConfigError:
        return ConfigError(f"{self._key}: {what}", where=self._where, fix=fix)
