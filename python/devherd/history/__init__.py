"""What has happened: verdicts, registrations, allocations, reloads, processes; bounded files in the run directory.

Each process writes its own (`record`), since a sandbox opens directories; whoever shows it reads all of them (`read`).
"""
