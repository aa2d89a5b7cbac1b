"""`dse calibrate`: fit parameters of the model to measurements."""

from __future__ import annotations

from typing import Final

HELP: Final = "Fit parameters of the model to measurements."
# Sub-command -> (module, function), as in `dse.cli.app.COMMANDS`.
COMMANDS: Final = {
    "kernels": ("dse.cli.calibrate_kernels", "calibrate_kernels"),
    "engine": ("dse.cli.calibrate_engine", "calibrate_engine"),
}
