noise_multiplier <- 1.1
clip_norm <- 1.0
steps <- 1000
