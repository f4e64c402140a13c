// NVIDIA's own nvml.h is in this module: test_nvml_header.py compiles against it. Nothing of it is copied or built.
module devherd/tests/nvml/header

go 1.26

require github.com/NVIDIA/go-nvml v0.13.4-1
