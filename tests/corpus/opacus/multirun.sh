python -m src.train -m dp.noise_multiplier=0.8,1.0,1.2 dp.max_grad_norm=1.0 dp.sample_rate=0.01 dp.steps=1000
