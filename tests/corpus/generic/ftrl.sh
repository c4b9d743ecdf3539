python run.py --noise_multiplier=4.0 --clip_norm=0.3 --total_rounds=1600 --clients_per_round=100 --aggregator_method=dp_ftrl --restart_frequency=128
