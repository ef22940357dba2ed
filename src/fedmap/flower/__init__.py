"""The same methods on a real Flower federation: sites that have only their own data."""
