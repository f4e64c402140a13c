"""`python -m devherd` is the command `devherd`."""

from devherd.cli import main

raise SystemExit(main())
