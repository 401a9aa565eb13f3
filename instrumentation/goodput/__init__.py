"""Records where the time of a training process goes."""
