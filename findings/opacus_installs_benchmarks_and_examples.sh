#!/usr/bin/env bash
# opacus: the wheel also installs top-level packages named "benchmarks" and "examples".
#
# A project whose own folder "benchmarks" has no __init__.py can no longer import it: a regular
# package anywhere on the path comes before a folder without one, even if that folder is first.
# Read with opacus 1.6.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check --no-deps opacus==1.6.0
mkdir -p "$work/project/benchmarks"
echo "SPEED = 3" > "$work/project/benchmarks/ours.py"
cd "$work/project"
"$work/env/bin/python" - <<'PY'
from importlib.metadata import distribution, version

print("opacus", version("opacus"))
tops = {file.parts[0] for file in distribution("opacus").files}
print("installed:", ", ".join(sorted(top for top in tops if not top.endswith("info"))))
assert {"benchmarks", "examples"} <= tops
try:
    from benchmarks.ours import SPEED
except ModuleNotFoundError as error:
    print("in a project with benchmarks/ours.py:", error)
else:
    raise SystemExit(f"the project's own module is found: {SPEED}")
PY
# Output seen: installed: benchmarks, examples, opacus
#   in a project with benchmarks/ours.py: No module named 'benchmarks.ours'
