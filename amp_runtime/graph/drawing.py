"""A graph as Mermaid or DOT text: ports, shapes and state on the edges, ways back dashed.

Replicas of a node are drawn as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from amp_runtime.graph.wiring import CONTROLLER_NODE, Edge, NodeSpec, Wiring

MERMAID_SHAPES = {
    "parameterised": ('["', '"]'),
    "plain": ('("', '")'),
    "transparent": ('{{"', '"}}'),
    "end": ('(["', '"])'),
    "input": ('[/"', '"/]'),
}
DOT_SHAPES = {
    "parameterised": "box, style=bold",
    "plain": "box, style=rounded",
    "transparent": "hexagon",
    "end": "doublecircle",
    "input": "cds",
}


def mermaid(wiring: Wiring) -> str:
    """Return a Mermaid flowchart; nodes with parameters are square, those without round."""
    lines = ["flowchart LR"]
    for name, shape, title in _boxes(wiring):
        opening, closing = MERMAID_SHAPES[shape]
        lines.append(f"  {name}{opening}{'<br/>'.join(map(_mermaid_text, title))}{closing}")
    for edge, goes_back in _edges(wiring):
        arrow = "-.->" if goes_back else "-->"
        label = "<br/>".join(map(_mermaid_text, _label(wiring, edge)))
        source, target = _name_of(wiring, edge), f"n{edge.target}"
        lines.append(f'  {source} {arrow}|"{label}"| {target}')
    return "\n".join(lines)


def dot(wiring: Wiring) -> str:
    """Return a DOT digraph."""
    lines = ["digraph model {", "  rankdir=LR;"]
    for name, shape, title in _boxes(wiring):
        text = "\\n".join(map(_dot_text, title))
        lines.append(f'  {name} [shape={DOT_SHAPES[shape]}, label="{text}"];')
    for edge, goes_back in _edges(wiring):
        label = "\\n".join(map(_dot_text, _label(wiring, edge)))
        style = ", style=dashed" if goes_back else ""
        source, target = _name_of(wiring, edge), f"n{edge.target}"
        lines.append(f'  {source} -> {target} [label="{label}"{style}];')
    return "\n".join([*lines, "}"])


def _boxes(wiring: Wiring) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (name in the drawing, shape, lines of the title)."""
    for number, spec in enumerate(wiring.inputs):
        each = "one row an example" if spec.each.startswith("@") else f"one row per {spec.each}"
        yield f"i{number}", "input", [spec.name, each]
    for number, node in enumerate(wiring.nodes):
        if not node.replica:
            times = f", {node.replicas} replicas" if node.replicas > 1 else ""
            yield f"n{number}", _shape(node), [node.ir_name, f"{node.kind}{times}"]


def _shape(node: NodeSpec) -> str:
    if node.is_end:
        return "end"
    if node.parameterised:
        return "parameterised"
    return "transparent" if node.transparent else "plain"


def _name_of(wiring: Wiring, edge: Edge) -> str:
    if edge.source != CONTROLLER_NODE:
        return f"n{edge.source}"
    return f"i{[spec.name for spec in wiring.inputs].index(edge.source_port)}"


def _label(wiring: Wiring, edge: Edge) -> list[str]:
    """Return the ports, then the arrays, then the state."""
    spec = wiring.nodes[edge.target].inputs[edge.target_port]
    source = "" if edge.source == CONTROLLER_NODE else f"{edge.source_port} to "
    arrays = ", ".join(f"{name}: {array}" for name, array in spec.arrays.items())
    return [f"{source}{edge.target_port}", arrays, str(spec.schema)]


def _edges(wiring: Wiring) -> Iterator[tuple[Edge, bool]]:
    """Yield each edge, and whether it leads back to a node before it.

    The edges of one replica stand for those of all.
    """
    place = {node: at for at, node in enumerate(_order(wiring))}
    drawn = {number for number, node in enumerate(wiring.nodes) if not node.replica}
    for edge in wiring.edges:
        if not {edge.source, edge.target} <= drawn | {CONTROLLER_NODE}:
            continue
        forward = edge.source == CONTROLLER_NODE or place[edge.source] < place[edge.target]
        yield edge, not forward


def _order(wiring: Wiring) -> list[int]:
    """Return the nodes, each behind those before it; a loop begins where rows enter it."""
    sources: dict[int, set[int]] = {number: set() for number in range(len(wiring.nodes))}
    for edge in wiring.edges:
        sources[edge.target].add(edge.source)
    order: list[int] = []
    while sources:
        placed = {CONTROLLER_NODE, *order}
        ready = [node for node, before in sources.items() if before <= placed]
        # A phi lets rows into a loop: it waits for some of its inputs only.
        entered = [n for n, b in sources.items() if wiring.nodes[n].transparent and b & placed]
        node = (ready or entered or list(sources))[0]
        del sources[node]
        order.append(node)
    return order


def _mermaid_text(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;")


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
