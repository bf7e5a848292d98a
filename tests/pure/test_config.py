"""A config file is checked whole, says all that is wrong, and resolves to a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_runtime.checking.rules import ConfigProblemsError
from amp_runtime.config.page import markdown, schema_text
from amp_runtime.config.schema import json_schema, load_config, sections
from amp_runtime.errors import AmpError, ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"

SHORT = """\
name: short
model: {builder: rnn, hidden: 128}
data: {source: list_reduction, train: 100, batch: 10}
training:
  optimizer: {name: adam, lr: 0.001}
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that loads a config from its text and overrides."""

    def load(text=SHORT, *overrides):
        path = tmp_path / "x.yaml"
        path.write_text(text)
        return load_config(path, overrides)

    return load


@pytest.fixture
def said(load, tmp_path):
    """Return a function that gives what is said of a bad config, without its folder."""

    def said(text=SHORT, *overrides):
        with pytest.raises(ConfigProblemsError) as raised:
            load(text, *overrides)
        assert raised.value.exit_code == 78
        assert "\n" not in raised.value.line()
        return [str(p).removeprefix(f"{tmp_path}/") for p in raised.value.problems]

    return said


# --------------------------------------------------------------------------- resolving


def test_defaults_fill_what_a_short_file_leaves_out(load, tmp_path):
    config = load()
    assert (config.seed, config.dtype, config.verify) == (0, "float32", False)
    assert (config.training.schedule, config.training.max_active_keys) == ("asynchronous", 4)
    assert (config.training.max_active_rows, config.training.update_every) == ("auto", 100)
    assert config.training.min_update_frequency == "auto"
    assert (config.training.target, config.nodes) == (None, {})
    assert (config.runtime.placement, config.runtime.runs) == ("process_per_node", "runs")
    assert config.folder == tmp_path


def test_options_that_are_passed_on_are_kept_apart_from_the_keys(load):
    config = load()
    assert (config.model.builder, config.model.options) == ("rnn", {"hidden": 128})
    assert (config.data.batch, config.data.options) == (10, {"train": 100})
    assert config.training.optimizer.options == {"lr": 0.001}


def test_whole_number_is_taken_for_a_number(load):
    assert load(SHORT, "runtime.stall_timeout_s=3").runtime.stall_timeout_s == 3.0


def test_resolved_config_loads_back_equal(load, tmp_path):
    config = load(
        SHORT,
        "nodes.linear-1.optimizer.lr=1e-05",
        "nodes.linear-1.activation='no'",
        "training.target={metric: accuracy, at_least: 0.97}",
        "model.text='1e3'",
        "model.nothing=null",
    )
    run_folder = tmp_path / "runs" / "x"
    run_folder.mkdir(parents=True)
    (run_folder / "config.yaml").write_text(config.to_yaml())
    again = load_config(run_folder / "config.yaml")
    assert again == config
    assert again.folder == tmp_path  # where the user's functions are, not the run folder
    assert again.model.options == {"hidden": 128, "text": "1e3", "nothing": None}
    assert load(SHORT) != config


def test_config_cannot_be_changed(load):
    config = load()
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1
    config.model.options["hidden"] = 1
    assert config.model.options["hidden"] == 128


def test_folder_is_relative_to_the_file_that_names_it(load, tmp_path):
    assert load(SHORT + "folder: code\n").folder == tmp_path / "code"
    assert load(SHORT + "folder: /elsewhere\n").folder == Path("/elsewhere")


def test_place_leads_back_to_the_line_or_the_override(load, tmp_path):
    config = load(SHORT, "model.hiden=3")
    assert config.place("training.optimizer.lr") == f"{tmp_path}/x.yaml:5"
    assert config.place("data.unwritten") == f"{tmp_path}/x.yaml:3"
    assert config.place("model.hiden") == "override 'model.hiden=3'"
    assert config.place("verify") == f"{tmp_path}/x.yaml"


# ---------------------------------------------------------------------------- per node


def test_nodes_get_the_training_defaults_and_only_what_was_set_for_them(load):
    config = load(
        SHORT,
        "nodes.linear-1.optimizer.lr=0.1",
        "nodes.linear-1.min_update_frequency=50",
        "nodes.linear-1.update_every=null",
        "nodes.linear-1.activation=null",
        "nodes.relu-1={}",
    )
    assert config.node_defaults() == {
        "optimizer": {"name": "adam", "lr": 0.001},
        "lr_schedule": {"name": "constant"},
        "clip": "none",
        "initializer": "own",
        "backward_weights": "live",
        "delay": 0,
        "compensation": "auto",
        "update_every": 100,
        "min_update_frequency": "auto",
        "nan_limit": 10,
        "averaging": {"name": "mean"},
        "average_every": "epoch",
    }
    assert config.node_overrides() == {
        "linear-1": {"optimizer": {"lr": 0.1}, "min_update_frequency": 50, "activation": None},
        "relu-1": {},
    }


# ------------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("override", "rule"),
    [
        ("seed='3'", "seed: must be a whole number (at least 0, at most 4294967295), not '3'"),
        ("seed=true", "not true"),
        ("seed=1.0", "not 1.0"),
        ("seed=null", "not null"),
        ("seed=-1", "(at least 0, at most 4294967295), not -1"),
        ("seed=" + "1" + "0" * 40, "does not fit in 64 bits"),
        ("verify=1", "verify: must be true or false, not 1"),
        ("verify='true'", "verify: must be true or false, not 'true'"),
        ("dtype=float16", "dtype: must be 'float32' or 'float64', not 'float16'"),
        ("name=3", "name: must be text (letters, digits, . _ and -"),
        ("name=../../x", "not '../../x'"),
        ("name=" + "x" * 65, "at most 64"),
        ('name="a\\n"', "not 'a\\n'"),
        ("name=🙂", "not '🙂'"),
        ("name=é", "not 'é'"),
        ("name=''", "not ''"),
        ("model.builder=a.b", "must be text (NAME or package.module:function), not 'a.b'"),
        ("model.builder=a:b:c", "not 'a:b:c'"),
        ("model=rnn", "model: must be a mapping, not 'rnn'"),
        ("data.batch=0", "data.batch: must be a whole number (at least 1, at most 1000000), not 0"),
        ("data.batch=2147483648", "(at least 1, at most 1000000), not 2147483648"),
        ("training.max_age=0", "must be a whole number or null (at least 1), not 0"),
        ("training.max_examples=0", "must be a whole number or null (at least 1), not 0"),
        ("training.max_minutes=0", "a number or null (above 0, at most 525600), not 0"),
        ("training.max_active_keys=0", "(at least 1, at most 1000000), not 0"),
        (
            "training.max_active_rows=few",
            "must be 'auto' or a whole number (at least 1), not 'few'",
        ),
        ("training.min_update_frequency=0", "must be 'auto' or a whole number (at least 1), not 0"),
        ("training.min_update_frequency=1.5", "not 1.5"),
        ("training.update_every=auto", "must be a whole number (at least 1), not 'auto'"),
        ("training.schedule=sync", "must be 'asynchronous' or 'synchronous', not 'sync'"),
        ("training.max_epochs=.nan", "training.max_epochs: .nan is not a finite number"),
        ("training.optimizer={lr: 1}", "training.optimizer.name: is missing"),
        ("training.target={metric: x}", "training.target: give at_least or at_most"),
        ("training.target.metric=3", "training.target.metric: must be text"),
        (
            "training.target={metric: x, at_least: '1'}",
            "at_least: must be a number or null, not '1'",
        ),
        ("nodes.a=3", "nodes.a: must be a mapping, not 3"),
        (
            "nodes.a.optimizer=sgd",
            "nodes.a.optimizer: must be a mapping or null, not 'sgd'; write it as in {name: adam,",
        ),
        (
            "training.lr_schedule=cosine",
            "training.lr_schedule: must be a mapping, not 'cosine'; write it as in {name: cosine, "
            "over: 1000000}, examples",
        ),
        (
            "training.clip=1.0",
            "training.clip: must be 'none' or a mapping, not 1.0; write it as in {norm: 1.0}",
        ),
        ("training.target=0.9", "not 0.9; write it as in {metric: accuracy, at_least: 0.97}"),
        ("training.initializer=3", "not 3; write it as in {name: normal, std: 0.01}"),
        ("nodes.a.update_every=true", "not true"),
        ("runtime.start_timeout_s=0", "(above 0, at most 86400), not 0"),
        (
            "runtime.placement=pack",
            "must be 'process_per_node' or 'packed' or a mapping, not 'pack'",
        ),
        ("folder=3", "folder: must be text, not 3"),
        ("dtyp=float32", "dtyp: unknown key (did you mean 'dtype'?)"),
        ("training.max_active_key=3", "unknown key (did you mean 'max_active_keys'?)"),
        (
            "training.target={metrik: x}",
            "training.target.metrik: unknown key (did you mean 'metric'?)",
        ),
        ("max_epochs=3", "max_epochs: unknown key here; it belongs in 'training'"),
        ("training.seed=3", "training.seed: unknown key here; it belongs at the top"),
        ("zzz=3", "zzz: unknown key (valid: name, seed, dtype, "),
    ],
)
def test_bad_value_is_refused_with_path_value_and_rule(said, override, rule):
    found = [problem for problem in said(SHORT, override) if rule in problem]
    assert len(found) == 1
    assert found[0].startswith(f"override {override!r}: ")


def test_all_that_is_wrong_is_said_at_once_each_with_its_line(said):
    text = """\
nam: x
seed: "3"
verify: no
model: {hidden: 1}
data: {source: pixels, batch: true}
training:
  max_active_keys: 4
  max_active_keys: 8
  optimizer: {name: sgd, lr: .nan}
"""
    assert said(text, "training.max_epochs=0") == [
        "x.yaml:1: nam: unknown key (did you mean 'name'?)",
        "x.yaml:2: seed: must be a whole number (at least 0, at most 4294967295), not '3'",
        "x.yaml:3: verify: no is true or false to some readers: write that, or quote it",
        "x.yaml:4: model.builder: is missing: text (NAME or package.module:function) is required",
        "x.yaml:5: data.batch: must be a whole number (at least 1, at most 1000000), not true",
        "x.yaml:8: training.max_active_keys: duplicate key, first on line 7",
        "x.yaml:9: training.optimizer.lr: .nan is not a finite number",
        "x.yaml: name: is missing: text (letters, digits, . _ and -, at most 64, "
        "a letter or digit first) is required",
        "override 'training.max_epochs=0': training.max_epochs: "
        "must be a whole number (at least 1), not 0",
    ]


@pytest.mark.parametrize("text", ["- a\n- b\n", "text\n", "3\n"])
def test_file_that_is_no_mapping_is_refused(said, text):
    (problem,) = said(text)
    assert "must be a mapping of keys to values" in problem


def test_error_lists_all_problems_and_ends_in_one_line(load):
    with pytest.raises(ConfigError) as raised:
        load(SHORT, "seed=-1", "dtype=x", "verify=3")
    error = raised.value
    assert str(error).splitlines()[0] == "3 problems in the configuration:"
    assert len(str(error).splitlines()) == 4
    assert error.line().startswith("AMP-E201: override 'seed=-1': seed: must be a whole number")
    assert error.line().endswith("(and 2 more problems, listed above)")
    assert len(error.at("run 3").problems) == 3


def test_error_with_one_problem_is_one_line(load):
    with pytest.raises(ConfigError) as raised:
        load(SHORT, "seed=-1")
    assert f"AMP-E201: {raised.value}" == raised.value.line()


def test_error_crosses_processes_as_a_config_error(load):
    with pytest.raises(ConfigError) as raised:
        load(SHORT, "seed=-1", "dtype=x")
    again = AmpError.from_record(raised.value.to_record())
    assert type(again) is ConfigError
    assert again.line() == raised.value.line()


# ----------------------------------------------------------------------------- teaching


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_committed_config_loads_and_is_named_like_its_file(path):
    assert load_config(path).name == path.stem


def test_configs_readme_is_what_the_schema_says():
    assert (CONFIGS / "README.md").read_text() == markdown(), "run `make docs`"


def test_configs_schema_for_editors_is_what_the_schema_says():
    assert (CONFIGS / "schema.json").read_text() == schema_text(), "run `make docs`"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_committed_config_names_its_schema_for_editors(path):
    first, *_ = path.read_text().splitlines()
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert (CONFIGS / named).samefile(CONFIGS / "schema.json")


def test_every_key_has_a_meaning_and_stands_on_the_page():
    page = markdown()
    assert set(sections()) == {
        "",
        "model",
        "data",
        "training",
        "training.optimizer",
        "training.lr_schedule",
        "training.averaging",
        "training.target",
        "nodes.<name>",
        "runtime",
        "runtime.placement",
        "runtime.placement.host[]",
        "checkpoint",
        "checkpoint.every",
    }
    for section in sections().values():
        for key, schema in section["properties"].items():
            assert f"| `{key}` | {schema['description']} |" in page


def test_json_schema_refuses_unknown_keys_and_lets_options_pass():
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["ModelSection"]["additionalProperties"] is True
    assert schema["required"] == ["name", "model", "data", "training"]
