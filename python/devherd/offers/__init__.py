"""Offers: which devices are advertised under which resource name, shared how, preferred in which order. Pure."""
