from __future__ import annotations

import numpy as np
from kinds import f64

from amp_runtime.remedies.weight_versions import WeightVersions, put_together, split


def i32(*values):
    return np.array(values, np.int32)


def step(versions, version, live):
    """Overwrite `live`, which is `version`, with the next one."""
    versions.keep(version, live)
    for array in live.values():
        array += 1


def test_a_version_is_copied_when_it_is_overwritten_and_only_while_rows_refer_to_it():
    live, versions = {"weight": f64([[0.0, 0.5]]), "bias": f64([0.0])}, WeightVersions(["weight"])
    step(versions, 0, live)
    assert versions.held == 0  # no row refers to version 0
    versions.refer(1, 2)
    versions.refer(1, 1)
    assert (versions.rows, versions.held) == (3, 0)
    assert versions.at(1, live)["weight"] is live["weight"]  # nothing overwrote it yet
    step(versions, 1, live)
    step(versions, 2, live)
    assert (versions.held, versions.peak) == (1, 1)
    assert {n: a.tolist() for n, a in versions.at(1, live).items()} == {"weight": [[1.0, 1.5]]}
    versions.release(i32(1, 1))
    assert (versions.rows, versions.held) == (1, 1)
    versions.release(i32(1))
    assert (versions.rows, versions.held) == (0, 0)


def test_rows_of_several_versions_are_released_together_and_the_peak_is_known():
    live, versions = {"weight": f64([1.0, 2.0])}, WeightVersions(["weight"])
    for version in range(3):
        versions.refer(version, 2)
        step(versions, version, live)
    versions.refer(3, 0)
    assert [versions.at(v, live)["weight"][0] for v in range(3)] == [1.0, 2.0, 3.0]
    versions.release(i32(2, 0, 0, 1))
    assert (versions.rows, versions.held) == (2, 2)
    versions.release(i32(1, 2))
    assert (versions.rows, versions.held) == (0, 0)
    assert (versions.peak, versions.peak_bytes) == (3, 3 * 16)


def test_weights_that_no_backward_reads_are_never_copied():
    live, versions = {"table": f64([1.0])}, WeightVersions([])
    versions.refer(0, 5)
    step(versions, 0, live)
    assert (versions.rows, versions.held, versions.peak_bytes) == (5, 0, 0)
    assert versions.at(0, live) == {}
    versions.release(i32(0, 0, 0, 0, 0))
    assert versions.rows == 0


def test_a_batch_is_split_by_version_and_its_parts_are_put_together_again():
    versions = i32(7, 3, 7, 5, 3)
    parts = [(version, places.tolist()) for version, places in split(versions)]
    assert parts == [(3, [1, 4]), (5, [3]), (7, [0, 2])]
    rows = f64([[0], [1], [2], [3], [4]])
    whole = put_together([(places, {"x": rows[places]}) for _, places in split(versions)], 5)
    assert whole["x"].tolist() == rows.tolist()
