python server.py dp.use=false dp.noise_multiplier=0.8 dp.max_grad_norm=1.0
