#!/bin/bash
#SBATCH -N 1
python server.py device="cuda" num_rounds=30 dp.use=true dp.noise_multiplier=0.8 dp.max_grad_norm=1.0 dp.poisson_sampling=true dp.sample_rate=0.02
