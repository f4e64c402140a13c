"""Sources that run in separate processes, because they can hang or need a library.

A source runs while there is a request for it in `<run-dir>/requests`. It writes facts to `<run-dir>/facts` and findings
to `<run-dir>/findings`; no other process waits for it.
"""
