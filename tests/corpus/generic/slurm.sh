#!/bin/bash
#SBATCH --job-name=dpm
#SBATCH --mem=16G
source activate dp
python mnist.py --device=cuda -n=12 --lr=.2 --sigma=1.2 -c=1.5 -b=250
