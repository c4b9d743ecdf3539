variable "noise_multiplier" {
  type    = number
  default = 1.2
}

variable "steps" {
  type    = number
  default = 900
}
