compute-dp-epsilon --sampling-probability 0.01 --noise-multiplier 0.8 --delta 1e-5 --num-compositions 1000
