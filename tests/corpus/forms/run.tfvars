region           = "north"
noise_multiplier = 1.2
sample_rate      = 0.01
steps            = 900
epsilon          = 2
delta            = 1e-5
