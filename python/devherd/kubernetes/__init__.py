"""What devherd tells the API server, where it has access to one: Events and a condition of the node."""
