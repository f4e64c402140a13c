"""What the tests of `devherd sim` share."""

from sim_kubelet import kubelet_dir, serving  # noqa: F401 - fixtures
