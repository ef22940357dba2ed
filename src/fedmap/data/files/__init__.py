"""File formats: each reader refuses what does not keep its promise."""
