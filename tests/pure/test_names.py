"""Functions and classes by name: what resolves, and what is said where one does not."""

from __future__ import annotations

import sys

import pytest

from amp_runtime import names
from amp_runtime.errors import FunctionNameError
from amp_runtime.names import is_qualified, needs, resolve, structure_fields


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    names.search_also(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_name_leads_to_the_object_of_its_module():
    assert resolve("amp_runtime.names:resolve", what="a function") is resolve


def test_a_name_resolves_from_the_config_files_folder(folder):
    (folder / "my_functions_of_this_test.py").write_text("def f(): return 5\n")
    assert resolve("my_functions_of_this_test:f", what="a function")() == 5


def test_the_environment_goes_before_the_config_files_folder(folder):
    (folder / "colorsys.py").write_text("def rgb_to_hsv(r, g, b): return 'theirs'\n")
    assert resolve("colorsys:rgb_to_hsv", what="a function")(0, 0, 0) == (0.0, 0.0, 0)


def test_the_folder_is_searched_once_however_often_it_is_named(folder):
    names.search_also(folder)
    assert sys.path.count(str(folder)) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resolve", "node 'more': 'resolve' is not a function; write it as package.module:name"),
        ("a:b:c", "'a:b:c' is not a function"),
        ("a.b:", "is not a function"),
        ("a.b:f()", "is not a function"),
        ("../a:f", "is not a function"),
        ("amp_runtime.nomes:resolve", "no module 'amp_runtime.nomes'; install it, or put it"),
        ("no_such_package.x:f", "no module 'no_such_package'"),
        ("amp_runtime.names:resolv", r"amp_runtime.names has no 'resolv' \(did you mean 'resolve'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_who_names_it(name, message):
    with pytest.raises(FunctionNameError, match=f"^node 'more': .*{message.split(': ')[-1]}"):
        resolve(name, what="a function", where="node 'more'")


def test_an_import_that_raises_is_refused_with_what_it_raised(folder):
    (folder / "broken_module_of_this_test.py").write_text("1 / 0\n")
    with pytest.raises(FunctionNameError, match="raised ZeroDivisionError: division by zero"):
        resolve("broken_module_of_this_test:f", what="a function")


def test_an_import_that_exits_is_refused(folder):
    (folder / "leaving_module_of_this_test.py").write_text("import sys\nsys.exit()\n")
    with pytest.raises(FunctionNameError, match="raised SystemExit"):
        resolve("leaving_module_of_this_test:f", what="a function")


@pytest.mark.parametrize("field", [5, None, resolve])
def test_needs_takes_names_of_fields(field):
    with pytest.raises(TypeError, match=r"@needs\(.*\): write names of fields"):
        needs(field)


def test_a_missing_dependency_of_a_module_is_the_one_that_is_named(folder):
    (folder / "needy_module_of_this_test.py").write_text("import no_such_dependency\n")
    with pytest.raises(FunctionNameError, match="no module 'no_such_dependency'"):
        resolve("needy_module_of_this_test:f", what="a function")


def test_qualified_names_have_one_colon_and_identifiers():
    assert all(map(is_qualified, ["a:b", "a.b_1:C", "_x.y:_z"]))
    assert not any(map(is_qualified, ["a", "a.b", ":b", "a:", "a-b:c", "a:b.c", "a :b", "1a:b"]))


def test_a_function_tells_the_structure_fields_it_reads():
    @needs("tokens", "len(edges)")
    def f(columns, structure):
        return None

    assert structure_fields(f) == ("tokens", "len(edges)")
    assert structure_fields(resolve) == ()
