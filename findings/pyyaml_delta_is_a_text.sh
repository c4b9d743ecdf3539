#!/usr/bin/env bash
# PyYAML: delta: 1e-5 is a text, and delta: 1.0e-5 is a number.
#
# PyYAML reads YAML 1.1, where a number with an exponent needs a point. A configuration with
# delta: 1e-5 therefore holds the text "1e-5". A program that compares it with a number raises an
# error; one that prints it or passes it on shows no difference.
# Read with PyYAML 6.0.4 on Python 3.11.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check PyYAML==6.0.4
cd "$work"
"$work/env/bin/python" -W ignore - <<'PY'
import yaml

print("PyYAML", yaml.__version__)
read = yaml.safe_load("short: 1e-5\nlong: 1.0e-5\nlarge: 1e5\n")
print(read)
assert read == {"short": "1e-5", "long": 1e-5, "large": "1e5"}
PY
# Output seen: {'short': '1e-5', 'long': 1e-05, 'large': '1e5'}
