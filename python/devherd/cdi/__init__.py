"""CDI specs: their text (`spec`), and the directory that holds them (`directory`)."""
