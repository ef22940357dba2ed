"""File formats. Each reader gives data or one FedmapError, whatever the bytes are."""
