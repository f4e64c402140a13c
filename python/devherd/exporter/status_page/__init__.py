"""The status page: an overview of the instance, and below it the state and facts of every device.

`page.py` renders the HTML of a `View` once per change, for all readers. The same HTML serves browsers without scripts
and `page.js`, which requests it every two seconds and updates the changed parts.
"""
