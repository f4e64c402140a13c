#!/usr/bin/env bash
# The supervisor's tests and ten faults on the Python of the container image, besides the one of .venv: users run it, and
# forks, signals and imports depend on it. Says so loudly where that Python is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^ARG PYTHON_IMAGE=.*python:\([0-9]*\.[0-9]*\).*/\1/p' deploy/Containerfile)
found=
for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
    if command -v "$candidate" >/dev/null && "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
        found=$candidate
    fi
done
if [ -z "$found" ]; then
    echo "NOT TESTED: Python $version, which the container image has, is not installed here"
    exit 0
fi

environment=.tools/python-$version
if [ ! -e "$environment/installed" ] || [ pyproject.toml -nt "$environment/installed" ] || [ constraints.txt -nt "$environment/installed" ]; then
    echo "installing Python packages into $environment"
    "$found" -m venv "$environment"
    # shellcheck disable=SC2046 - one argument for each requirement
    "$environment/bin/pip" install --quiet --constraint constraints.txt $(.venv/bin/python tests/requirements.py pytest hypothesis jsonschema)
    packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$PWD/python" >"$packages/devherd.pth" # the native module has the stable interface: one for every Python
    cp -r .venv/lib/python*/site-packages/devherd-*.dist-info "$packages"
    touch "$environment/installed"
fi
"$environment/bin/python" -m pytest tests/supervisor tests/faults/test_ten_faults.py
