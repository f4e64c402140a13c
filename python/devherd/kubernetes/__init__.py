"""What devherd and the API server tell each other, where there is access to one.

It tells of devices by Events, a condition and labels of the node; it asks for the label that chooses the configuration.
"""
