#!/usr/bin/env bash
# torch: the CPU generator uses only the low 32 bits of a seed.
#
# torch.manual_seed takes 64 bits and initial_seed() returns all of them, but two seeds that differ
# only above bit 31 give the same stream. Seeds drawn from the operating system (torch.seed()) have
# 53 bits or more, so a program that relies on their length has at most 2^32 different streams.
# Read with torch 2.13.0, CPU build.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$work/env/bin/python" - <<'PY'
import torch

print("torch", torch.__version__)


def stream(seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator.initial_seed(), torch.randn(4, generator=generator)


(small, first), (large, second) = stream(7), stream(7 + 5 * 2**32)
print("initial seeds", small, large)
print("same stream", torch.equal(first, second))
print("streams of 7 and 8 differ", not torch.equal(first, stream(8)[1]))
assert small != large and torch.equal(first, second) and not torch.equal(first, stream(8)[1])
PY
# Output seen: initial seeds 7 21474836487; same stream True; streams of 7 and 8 differ True
