"""What `devherd doctor` checks: each topic reads the host in one function and judges what it read in another."""
