"""Labels that describe the node's devices, with the names and values of the vendors' own labellers. Pure.

`others.labels_of_node` makes them from facts and offers; `devherd.kubernetes` writes them to the node.
"""
