#!/bin/bash
for sigma in 0.6 0.8 1.0 1.3; do
  for lr in 0.1 0.5; do
    for seed in 1 2 3; do
      python train.py --noise-multiplier $sigma --max-grad-norm 1.0 --lr $lr \
        --batch-size 256 --epochs 20 --seed $seed --delta 1e-5
    done
  done
done
