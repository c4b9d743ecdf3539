python train.py train.steps=300 dp.noise_multiplier=0 dp.max_grad_norm=1.0 dp.sample_rate=0.02
