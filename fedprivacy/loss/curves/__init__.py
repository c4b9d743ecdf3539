"""What is compared: dominating pairs of laws, one family a file."""
