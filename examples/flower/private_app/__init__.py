"""A linear classifier of images on Flower, private at the level of clients."""
