"""A file of the operator, and which programs and files are trusted: what process `source:external-<name>` writes."""

import json
import os
import time

from external_listener import PERIODIC
from not_tested import not_tested

from devherd import spool


def test_a_file_is_what_it_says_now(listener):
    """Replaced as a whole: findings that are missing are cleared; a torn or removed file has failed."""
    listener.file.write_text(
        '{"device": {"device": "a"}, "reason": "hot"}\n{"device": {"device": "b"}, "reason": "wet"}\n'
    )
    listener.listen(file=str(listener.file))
    listener.until_it_says("hot", "wet")

    spool.replace(listener.file, b'{"device": {"device": "b"}, "reason": "wet"}\n')
    listener.until_it_says("wet")
    spool.replace(listener.file, b'{"device": {"dev')
    torn = listener.until(lambda said: said.failed)
    listener.file.unlink()
    missing = listener.until(lambda said: said.failed != torn.failed)
    spool.replace(listener.file, b"")
    listener.until_it_says()

    assert torn.failed == "line 1: it is not JSON"
    assert missing.failed == "it cannot be read: No such file or directory"
    assert [finding.detail for finding in missing.findings] == ["wet"]


def test_a_file_that_nobody_writes_any_more_is_silent(listener):
    """Its writer may have died long ago."""
    listener.file.write_text('{"reason": "hot"}\n')
    hour = time.time() - 3600
    os.utime(listener.file, (hour, hour))
    listener.listen(file=str(listener.file), max_age=60.0, on_silence="drop")

    said = listener.until(lambda said: said.failed)

    assert (said.failed, said.lets_go, list(said.findings)) == ("no report for 60 s", True, [])


def test_a_fifo_in_place_of_the_file_hangs_nobody(listener):
    """Opening one waits for its writer."""
    os.mkfifo(listener.file)
    listener.listen(file=str(listener.file))

    assert listener.until(lambda said: said.failed).failed == "it is not a regular file"


def test_a_program_or_file_that_everybody_may_write_is_not_trusted(listener):
    """Whoever can write it could empty the node, or run as devherd."""
    script = listener.program("exit 1", mode=0o777)
    listener.listen(command=[str(script)], **PERIODIC)
    distrusted = listener.until(lambda said: said.failed)
    listener.file.write_text("")
    listener.file.chmod(0o666)
    listener.order(file=str(listener.file))
    assert listener.end() is not None
    listener.start()
    listener.until(lambda said: str(listener.file) in said.failed)

    assert distrusted.failed == f"everybody may write {script}; take that right away with `chmod o-w`"


def test_a_file_whose_rights_are_mended_is_read(listener):
    """It has not changed itself: only who may write it."""
    listener.file.write_text(
        json.dumps({"reason": "external", "detail": "loose cable", "device": {"device": "port-0"}})
    )
    listener.file.chmod(0o666)
    listener.listen(file=str(listener.file))
    listener.until(lambda said: "everybody may write" in said.failed)

    listener.file.chmod(0o644)

    assert [found.detail for found in listener.until(lambda said: said.findings).findings] == ["loose cable"]


def test_a_script_that_everybody_may_write_is_not_trusted_as_an_argument_either(listener):
    """Its interpreter is root's; what runs is the script."""
    script = listener.program("exit 0", mode=0o777)
    listener.listen(command=["/bin/sh", "-e", str(script), "/dev/null", str(listener.directory)], **PERIODIC)

    distrusted = listener.until(lambda said: said.failed)
    script.chmod(0o755)
    listener.until_it_says()

    assert distrusted.failed == f"everybody may write {script}; take that right away with `chmod o-w`"


def test_a_program_of_another_user_is_not_trusted(listener):
    """Nor one in another user's directory."""
    if os.geteuid() != 0:
        not_tested("only root gives files away")
    script = listener.program("exit 1")
    os.chown(script, 1234, 1234)
    listener.listen(command=[str(script)], **PERIODIC)

    assert listener.until(lambda said: said.failed).failed == f"{script} belongs to user 1234; have root own it"


def test_a_program_that_another_group_may_write_is_not_trusted(listener):
    """Its members are as good as everybody."""
    if os.geteuid() != 0:
        not_tested("only root gives files to other groups")
    script = listener.program("exit 1", mode=0o775)
    os.chown(script, 0, 1234)
    listener.listen(command=[str(script)], **PERIODIC)

    said = listener.until(lambda said: said.failed).failed
    assert said == f"group 1234 may write {script}; take that right away with `chmod g-w`"
