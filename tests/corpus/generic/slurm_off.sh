#!/bin/bash
#SBATCH --time=1:00:00
python mnist.py --device=cuda --disable-dp -n=12 --sigma=1.2 -c=1.5 -b=250
