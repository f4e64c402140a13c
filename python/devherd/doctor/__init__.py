"""The checks of `devherd doctor`: each topic reads the host in `look` and judges the result in `judge`."""
