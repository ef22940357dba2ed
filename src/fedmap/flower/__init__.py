"""Training across sites with Flower: each site keeps its data and its private state."""
