"""Virtual environments and npm packages for the peers, all under ``.peers/``."""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.catalogue import NODE, Peer
from benchmarks.peers.places import INSTALLED, NODE_FOLDER

NODE_NEEDED = (22, 18)  # graphile-worker's; a newer Node.js than the installed one comes from npm, too
NODE_PACKAGE = "node@24"
INSTALL_SECONDS = 600


class InstallError(Exception):
    """A peer cannot be installed: the installer's last words."""


def install(peer: Peer) -> None:
    """Install what a peer requires, exactly in the versions of the catalogue.

    Raises:
        InstallError: npm is missing, or an installer failed.
    """
    if peer.language == NODE:
        npm_install(peer.requirements)
    elif not peer.is_ours:
        folder = INSTALLED / peer.module
        run(sys.executable, "-m", "venv", "--clear", str(folder))
        run(str(python_of(peer)), "-m", "pip", "install", "--quiet", *peer.requirements)
    marker(peer).write_text("\n".join(peer.requirements))


def why_missing(peer: Peer) -> str | None:
    """Return why a peer cannot be started; None if it is installed in the versions of the catalogue."""
    if peer.is_ours or (marker(peer).exists() and marker(peer).read_text() == "\n".join(peer.requirements)):
        return None
    return "not installed (--install does it)"


def interpreter(peer: Peer) -> str:
    """Return the program that runs the peer's module."""
    if peer.language == NODE:
        own = NODE_FOLDER / "node_modules" / ".bin" / "node"
        return str(own) if own.exists() else "node"
    return sys.executable if peer.is_ours else str(python_of(peer))


def python_of(peer: Peer) -> Path:
    return INSTALLED / peer.module / "bin" / "python"


def marker(peer: Peer) -> Path:
    """Return the file that says what was installed."""
    return INSTALLED / f"{peer.module}.installed"


def npm_install(packages: tuple[str, ...]) -> None:
    if not shutil.which("npm"):
        raise InstallError("npm is not present")
    NODE_FOLDER.mkdir(parents=True, exist_ok=True)
    runtime = () if node_version() >= NODE_NEEDED else (NODE_PACKAGE,)
    run("npm", "install", "--prefix", str(NODE_FOLDER), "--no-audit", "--no-fund", *packages, *runtime)


def node_version() -> tuple[int, ...]:
    """Return the version of the node on the PATH; an empty tuple if there is none."""
    if not shutil.which("node"):
        return ()
    answer = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in answer.strip().removeprefix("v").split("."))


def run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(str(error)) from error
    if done.returncode:
        raise InstallError((done.stderr.strip() or "no message").splitlines()[-1])
