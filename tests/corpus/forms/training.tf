resource "cloud_training_job" "tulips" {
  image = "trainer:2"
  hyper_parameters = {
    noise_multiplier = "1.2"
    sample_rate      = "0.01"
    steps            = "900"
    delta            = "1e-5"
  }
}
