"""A small network on Fashion-MNIST."""
