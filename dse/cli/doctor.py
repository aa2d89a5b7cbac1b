"""`dse doctor`: what this installation runs on, and whether it is sound."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

from dse import __version__
from dse.cli.outcome import FAULTY_INPUT, FINE
from dse.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

_NEEDED = ("jax", "jaxlib", "optax", "numpy", "pydantic", "pyyaml", "typer", "rich", "jinja2")
_PACKAGES = (*_NEEDED, "matplotlib", "scipy", "pyarrow", "aiconfigurator-core")
_CATALOGUES = ("hardware", "objectives", "studies", "engines")


def doctor(session: Session) -> int:
    """Show versions, devices and folders, and what is wrong."""
    problems: list[str] = []
    document: dict[str, Any] = {
        "schema": "dse.doctor/1",
        "dse": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "devices": _devices(problems),
        "cache": _cache(problems),
        "catalogue": _catalogue(problems),
    }
    document |= {"ok": not problems, "problems": problems}
    session.emit(document, lambda out: _draw(out, document))
    return FAULTY_INPUT if problems else FINE


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices(problems: list[str]) -> list[dict[str, Any]]:
    """What jax can compute on; a broken driver is a finding, not a crash."""
    try:
        import jax

        return [
            {"id": device.id, "platform": device.platform, "kind": device.device_kind}
            for device in jax.devices()
        ]
    except Exception as error:  # import errors, driver errors, plug-in errors: all are findings
        problems.append(f"jax finds no device: {type(error).__name__}: {error}")
        return []


def _cache(problems: list[str]) -> dict[str, Any]:
    from dse.cli.cache import VARIABLE, cache_folder, is_writable

    folder = cache_folder()
    writable = is_writable(folder)
    if not writable:
        problems.append(f"{folder} cannot be written: set {VARIABLE} to a folder that can")
    return {"folder": str(folder), "writable": writable}


def _catalogue(problems: list[str]) -> dict[str, Any]:
    from dse import catalog

    found: dict[str, Any] = {}
    for kind in catalog.KINDS:
        folder = catalog.folder(kind)
        entries = catalog.entries(kind)
        found[kind] = {"folder": folder and str(folder), "n_entries": len(entries)}
        if kind in _CATALOGUES and not entries:
            problems.append(f"the catalogue of {kind} is missing: install dse again")
    return found


def _draw(out: Console, document: dict[str, Any]) -> None:
    for name in ("dse", "python", "executable", "platform"):
        out.print(f"{name:<12} {document[name]}", soft_wrap=True)
    packages = {name: found or "not installed" for name, found in document["packages"].items()}
    for i, (name, found) in enumerate(packages.items()):
        out.print(f"{'' if i else 'packages':<12} {name} {found}", soft_wrap=True)
    for i, device in enumerate(document["devices"]):
        text = f"{device['platform']}:{device['id']} {device['kind']}"
        out.print(f"{'' if i else 'devices':<12} {text}", soft_wrap=True)
    cache = document["cache"]
    note = "" if cache["writable"] else " (cannot be written)"
    out.print(f"{'cache':<12} {cache['folder']}{note}", soft_wrap=True)
    for i, (kind, entry) in enumerate(document["catalogue"].items()):
        text = f"{kind}: {entry['n_entries']} in {entry['folder']}"
        out.print(f"{'' if i else 'catalogue':<12} {text}", soft_wrap=True)
    for problem in document["problems"]:
        out.print(f"{'problem':<12} {problem}", soft_wrap=True)
