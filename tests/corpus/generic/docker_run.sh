docker run --rm -e NOISE_MULTIPLIER=1.1 -e MAX_GRAD_NORM=1.0 -e SAMPLE_RATE=0.01 -e STEPS=1000 lab/dp-train:1
