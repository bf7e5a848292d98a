"""The folder that MNIST, Fashion-MNIST and their kin come in: four IDX files.

train-images-idx3-ubyte  train-labels-idx1-ubyte      zipped (.gz) or not;
t10k-images-idx3-ubyte   t10k-labels-idx1-ubyte       also written train-images.idx3-ubyte
"""

from __future__ import annotations

from pathlib import Path

from amp_runtime.errors import MissingDataError

_PART = {"train": "train", "valid": "t10k"}
"""What the files of a split are called: the official test images are validated on."""


def files_of(folder: Path, split: str) -> tuple[Path, Path]:
    """Return the file of images and the file of labels of one split.

    Raises:
        MissingDataError: names all of the four files that are not there.
    """
    found = {
        (part, what): _find(folder, f"{part}-{what}", f"idx{dimensions}-ubyte")
        for part in _PART.values()
        for what, dimensions in (("images", 3), ("labels", 1))
    }
    missing = [f"{part}-{what}-idx*-ubyte" for (part, what), file in found.items() if file is None]
    images, labels = found[_PART[split], "images"], found[_PART[split], "labels"]
    if missing or images is None or labels is None:
        there = sorted(path.name for path in folder.iterdir())
        raise MissingDataError(
            f"lacks {', '.join(missing)} (.gz or not); it holds {', '.join(there[:6]) or 'nothing'}"
            f"{', ...' if len(there) > 6 else ''}",
            where=str(folder),
            fix="put the four IDX files there, or set data.path to one file",
        )
    return images, labels


def _find(folder: Path, name: str, kind: str) -> Path | None:
    for between in "-.":
        for zipped in (".gz", ""):
            if (path := folder / f"{name}{between}{kind}{zipped}").is_file():
                return path
    return None
