"""Completion in each shell that there is here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHOWN = {
    "bash": 'COMP_WORDS=(tarry can); COMP_CWORD=1; _tarry_completion tarry; echo "${COMPREPLY[@]}"',
    "zsh": "_arguments() { echo $*; }; _describe() { echo $*; }; compdef() { :; }; words=(tarry can); "
    'print -l "${(f)$(env _TARRY_COMPLETE_ARGS="tarry can" _TARRY_COMPLETE=complete_zsh tarry)}"',
    "fish": 'complete --do-complete "tarry can"',
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which there is `tarry`."""
    program = tmp_path / "tarry"
    program.write_text(f"#!{sys.executable}\nfrom tarry.node.__main__ import main\nmain()\n")
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", SHOWN)
def test_a_shell_completes_a_command(shell: str, path: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell} here")
    environment = {**os.environ, "PATH": path, "HOME": str(Path(path.split(":", maxsplit=1)[0]))}
    script = subprocess.run(
        ["tarry", "completion", shell], env=environment, capture_output=True, text=True, check=True
    ).stdout
    loaded = "" if shell == "zsh" else script  # zsh's needs a line editor: its question alone is asked
    done = subprocess.run(
        [found, "-c", f"{loaded}\n{SHOWN[shell]}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cancel" in done.stdout


@pytest.mark.parametrize("shell", SHOWN)
def test_a_script_asks_this_program(shell: str, path: str) -> None:
    environment = {**os.environ, "PATH": path}
    script = subprocess.run(
        ["tarry", "completion", shell], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert f"_TARRY_COMPLETE=complete_{shell}" in script
