#!/bin/bash
#SBATCH --array=0-3
SIGMAS=(0.5 0.8 1.1 1.5)
SIGMA=${SIGMAS[$SLURM_ARRAY_TASK_ID]}
srun python train_dp.py --noise-multiplier $SIGMA --max-grad-norm 1.0 --sample-rate 0.01 --steps 2000 --delta 1e-5
