"""The status page: what an operator wants to see first, and below it all that is known of every device.

`page.py` makes the HTML of a `View`, `made_pages.py` makes it once per change and for all readers. The same HTML serves
a browser without scripts and `page.js`, which asks for it again every two seconds and takes over what has changed.
"""
