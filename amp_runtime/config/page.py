"""`configs/README.md`: every key of a config, made from the schema that checks it."""

from __future__ import annotations

import json
from typing import Any

from amp_runtime.checking.rules import Schema, range_words, shown, type_words
from amp_runtime.config.schema import json_schema, sections

HEAD = """\
# Configs

One YAML file describes one run. `make run CONFIG=configs/list_reduction.yaml` trains it;
`SET='training.max_active_keys=8 seed=1'` sets keys for one run: the key's path with
dots, `=`, and a value written as in the file (`'nodes.linear-1.optimizer={lr: 0.1}'` sets
a whole mapping). The last setting of a key wins.

All that is wrong with a file is reported at once, each with its line. An unknown key is
an error. Values are taken as they are written: `"3"` is text, `1.0` is no whole number,
and what YAML readers disagree about (`no`, `010`, `1e3`, `1:30`) is refused until it is
quoted or written plainly.

What `model`, `data`, an optimizer and `nodes.<name>` take beside the keys below:
`make kinds` lists all models, data sources, optimizers and node kinds, and `make kinds
NAME=adam` the options of one, with types, limits and defaults. `make check CONFIG=...`
resolves a config, shows its graph and its placement, and rehearses one instance; `make graph
CONFIG=...` draws it. What is said of broken configs stands in
[docs/broken_configs.md](../docs/broken_configs.md).

An editor with a YAML language server completes and checks a file that begins with
`# yaml-language-server: $schema=schema.json` (the path of [schema.json](schema.json)).

This page is made from the schema in `amp_runtime/config/schema.py` by `make docs`.
"""


def markdown() -> str:
    """Return the page: an introduction, then a table for each section of a config."""
    return "\n".join([HEAD, *(_section(*named) for named in sections().items())])


def schema_text() -> str:
    """Return the JSON schema of a config, for editors; `configs/schema.json` holds it."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "made from amp_runtime/config/schema.py by `make docs`",
    }
    return json.dumps({**head, **json_schema()}, indent=1) + "\n"


def _section(name: str, schema: Schema) -> str:
    rows = [
        _row(key, key in schema.get("required", ()), value)
        for key, value in schema["properties"].items()
    ]
    return "\n".join(
        [
            f"## {f'`{name}`' if name else 'Top level'}\n",
            f"{schema['description'].split(chr(10))[0]}\n",
            "| key | meaning | type | unit | range | default |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _row(key: str, required: bool, schema: Schema) -> str:
    root = json_schema()
    kind = type_words(schema, root).replace("a ", "").replace("'", "`").removesuffix(" or null")
    default = "**required**" if required else _default(schema.get("default"))
    cells = [key, schema["description"], kind, schema.get("unit", ""), range_words(schema, root)]
    return f"| {' | '.join([f'`{cells[0]}`', *cells[1:], default])} |"


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "as below" if value else "empty"
    return f"`{value if isinstance(value, str) else shown(value)}`"
