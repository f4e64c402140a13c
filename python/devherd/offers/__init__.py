"""Offers: the resource name of each advertised device, its sharing, and the order of preference. Pure."""
