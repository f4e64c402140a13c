"""Vocabulary of findings: sources, reasons and their ends, Xids, rules for the kernel log."""
