#!/usr/bin/env bash
# msgspec: one number is an error in JSON and infinity in TOML, and infinity is written as null.
#
# 1e400 does not fit a double. msgspec.json refuses it. msgspec.toml returns inf for the same text,
# into the same float field. Written as JSON, inf becomes null, which the same type refuses to read.
# A configuration that is converted between the two formats changes meaning, or cannot be read back.
# Read with msgspec 0.22.0.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check msgspec==0.22.0
"$work/env/bin/python" - <<'PY'
import math

import msgspec


class Setting(msgspec.Struct):
    noise_multiplier: float


print("msgspec", msgspec.__version__)
try:
    print("json", msgspec.json.decode(b'{"noise_multiplier": 1e400}', type=Setting))
    raise SystemExit("JSON took it")
except msgspec.ValidationError as error:
    print("json refuses:", error)
except msgspec.DecodeError as error:
    print("json refuses:", error)
read = msgspec.toml.decode(b"noise_multiplier = 1e400", type=Setting)
print("toml", read)
written = msgspec.json.encode(read)
print("written as", written.decode())
assert math.isinf(read.noise_multiplier) and written == b'{"noise_multiplier":null}'
try:
    msgspec.json.decode(written, type=Setting)
    raise SystemExit("null was read as a float")
except msgspec.ValidationError as error:
    print("read back:", error)
PY
# Output seen: json refuses: Number out of range; toml Setting(noise_multiplier=inf);
# written as {"noise_multiplier":null}; read back: Expected `float`, got `null`
