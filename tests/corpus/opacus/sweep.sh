#!/bin/bash
#SBATCH --gres=gpu:1
python train.py --noise-multiplier 1.1 --max-grad-norm 1.0 --sample-rate 0.01 --steps 1000 --target-epsilon 2 --delta 1e-5
python train.py --noise-multiplier 0.7 --max-grad-norm 1.0 --sample-rate 0.01 --steps 1000 --target-epsilon 2 --delta 1e-5
