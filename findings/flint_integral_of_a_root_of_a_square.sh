#!/usr/bin/env bash
# python-flint: the integral of sqrt(x * x) over [-1, 1] is enclosed as 1.1547, and it is 1.
#
# acb.integral assumes an analytic integrand. It passes a flag that the integrand must hand to
# functions with branch cuts, such as sqrt(analytic=...). An integrand that ignores the flag gets a
# narrow ball around a wrong number, without a warning.
# Read with python-flint 0.9.0 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check python-flint==0.9.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
import flint
from flint import acb

print("python-flint", flint.__version__)
ignored = acb.integral(lambda x, flag: (x * x).sqrt(), -1, 1).real
heeded = acb.integral(lambda x, flag: (x * x).sqrt(analytic=flag), -1, 1).real
print("flag ignored:", ignored)
print("flag heeded:", heeded)
assert not ignored.contains(1) and ignored.rad() < 1e-10 and heeded.contains(1)
PY
# Output seen: flag ignored: [1.15470053837925 +/- 2.04e-15];
# flag heeded: a ball that holds 1
