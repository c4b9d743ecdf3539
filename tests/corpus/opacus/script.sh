#!/bin/bash
set -e
source env/bin/activate
python train.py --noise-multiplier 1.1 \
  --max-grad-norm 1.0 --sample-rate 0.01 \
  --steps 1000 --delta 1e-5
