"""Labels of the node that say what devices it has: names and values as the vendors' own labellers have them. Pure.

`made.labels_of` makes them of facts and offers; how they reach the node is in `devherd.kubernetes`.
"""
