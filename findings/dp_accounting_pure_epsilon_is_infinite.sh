#!/usr/bin/env bash
# dp-accounting: at delta = 0, one Laplace event of scale 1 has an infinite epsilon.
#
# The mechanism is (1, 0)-private. PLDAccountant truncates tails into a mass at infinity, so
# get_epsilon(0) returns inf, for one event and for ten. At delta = 1e-9 it returns 9.999999 for ten.
# A caller that asks for pure privacy gets no finite number.
# Read with dp-accounting 0.6.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check dp-accounting==0.6.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
import math
from importlib.metadata import version

from dp_accounting import LaplaceDpEvent
from dp_accounting.pld import PLDAccountant

print("dp-accounting", version("dp-accounting"))
for count in (1, 10):
    accountant = PLDAccountant().compose(LaplaceDpEvent(1.0), count)
    pure, nearly = accountant.get_epsilon(0.0), accountant.get_epsilon(1e-9)
    print(f"{count} events: epsilon {pure} at delta 0, {nearly:.6f} at 1e-9")
    assert math.isinf(pure) and nearly <= count
PY
# Output seen: 1 events: epsilon inf at delta 0, 1.000000 at 1e-9;
# 10 events: epsilon inf at delta 0, 9.999999 at 1e-9
