"""What `make` changes is in the checkout, whatever environment is active in the shell."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_installs_into_its_own_environment_also_where_another_one_is_active(tmp_path):
    """Maturin takes the environment that these variables name: a developer's other one had devherd in it."""
    active = {"VIRTUAL_ENV": str(tmp_path / "other"), "CONDA_PREFIX": str(tmp_path / "conda")}
    shown = "--eval=shown: ; @printenv VIRTUAL_ENV; printenv CONDA_PREFIX || echo none"
    command = ["make", "--no-print-directory", shown, "shown"]
    seen = subprocess.run(command, cwd=ROOT, env=os.environ | active, capture_output=True, text=True, check=True).stdout
    assert seen.splitlines() == [str(ROOT / ".venv"), "none"]
