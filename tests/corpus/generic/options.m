opts.noise_multiplier = 1.1;
opts.clip_norm = 1.0;
