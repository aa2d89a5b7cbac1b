"""Fits of one engine on several vendors' chips as one file.

python -m dse.report.merging NVIDIA.yaml HUAWEI.yaml AMD.yaml --out vllm.yaml
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from dse.calibrate.engine.document import as_yaml
from dse.calibrate.engine.merging import merged
from dse.report.atomic import write_text
from dse.spec.deployments import read_deployments


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line. Raises DseError where files do not belong together."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="fits of deployments of one engine")
    parser.add_argument("--out", type=Path, required=True, help="the file of all their levels")
    given = parser.parse_args(arguments)
    whole = merged([read_deployments(path).spec for path in given.files])
    write_text(given.out, as_yaml(whole))


if __name__ == "__main__":
    main()
