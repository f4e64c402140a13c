"""The exporter as a process: signals, a taken port, heartbeats whatever happens."""

import os
import signal
import socket
import time
import urllib.request
from pathlib import Path

from descriptors import none_for
from exporter_instance import eventually


def ended(instance):
    """Whether the exporter has ended: its parent reaps it, and ends with it."""
    return instance.process.poll() is not None


def test_sigterm_ends_it_at_once_also_with_a_connection_open(instance):
    """A browser's idle connection does not hold up a shutdown."""
    instance.start()
    host, port = instance.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as browser:
        browser.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert browser.recv(100).startswith(b"HTTP/1.1 503")
        started = time.monotonic()

        os.kill(instance.exporter_pid, signal.SIGTERM)
        eventually(lambda: ended(instance), "it ends")

    assert time.monotonic() - started < 5
    assert "Traceback" not in instance.log


def test_sighup_moves_it_to_the_address_now_configured(instance):
    """The new address serves, the old one is free again."""
    instance.start()
    old = instance.url
    instance.configure("127.0.0.2:0")

    os.kill(instance.exporter_pid, signal.SIGHUP)
    eventually(lambda: instance.url.startswith("http://127.0.0.2:"), "it serves at the new address")

    assert instance.ask("/readyz")[0] == 503
    host, port = old.removeprefix("http://").split(":")
    with socket.create_server((host, int(port))):
        pass


def test_sighup_without_a_change_keeps_the_address(instance):
    """A reload for another option's sake does not cut connections."""
    instance.start()
    host, port = instance.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as browser:
        before = instance.log.count("address is still")
        for reloads in range(1, 4):
            browser.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert browser.recv(4096).startswith(b"HTTP/1.1 503")
            os.kill(instance.exporter_pid, signal.SIGHUP)
            eventually(
                lambda reloads=reloads: instance.log.count("address is still") == before + reloads, "it has reloaded"
            )


def test_a_configuration_that_is_gone_changes_nothing(instance):
    """Somebody has swept the run directory: it is said, and the pages stay where they are."""
    instance.start()
    old = instance.url
    (instance.run_dir / "config.json").unlink()

    os.kill(instance.exporter_pid, signal.SIGHUP)
    eventually(
        lambda: "config.json: No such file or directory; still serving as before" in instance.log,
        "it is said",
    )

    assert instance.url == old
    assert instance.ask("/readyz")[0] == 503
    assert "Traceback" not in instance.log


def test_a_configuration_that_no_descriptor_was_left_for_is_loaded_once_there_is_one(instance):
    """Defect: it had been told to reload, and stayed with the old addresses and passwords until it was told again."""
    instance.start()
    old = instance.url
    with none_for(instance.exporter_pid):
        instance.configure("127.0.0.2:0")
        os.kill(instance.exporter_pid, signal.SIGHUP)
        eventually(lambda: "Too many open files; still serving as before" in instance.log, "it is said")
        assert instance.url == old
    eventually(lambda: instance.url.startswith("http://127.0.0.2:"), "it serves at the new address")
    assert instance.log.count("still serving as before") == 1


def test_a_restarted_exporter_serves_where_the_last_one_did(instance):
    """The supervisor has still the address of its own start; a reload has brought another one since."""
    instance.start()
    first = instance.exporter_pid
    instance.configure("127.0.0.2:0")

    os.kill(first, signal.SIGKILL)
    eventually(lambda: instance.exporter_pid != first, "it is started again")
    eventually(lambda: instance.url.startswith("http://127.0.0.2:"), "it serves at the new address")

    assert instance.ask("/readyz")[0] == 503


def test_a_taken_port_is_told_once_and_taken_when_it_is_free(make_instance):
    """Another instance, or an old one that has not quite gone, must not put an end to this one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        instance = make_instance(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        instance.start()
        eventually(lambda: "cannot listen" in instance.log, "it tells")
        time.sleep(2)
        assert instance.log.count("cannot listen") == 1
        assert "Address already in use" in instance.log
        assert not ended(instance)

    assert instance.ask("/readyz")[0] == 503


def test_it_beats_without_an_address_and_takes_one_later(make_instance):
    """`listen: ""` switches HTTP off, not the process: it stays in supervisorctl and can be switched on."""
    instance = make_instance(listen="")
    (instance.run_dir / "how-long-silent").touch()
    instance.start()
    silence = instance.run_dir / "silence"
    time.sleep(2)
    assert float(eventually(silence.exists and silence.read_text, "the silence is measured")) < 2
    assert "serving" not in instance.log

    instance.configure("127.0.0.1:0")
    os.kill(instance.exporter_pid, signal.SIGHUP)

    assert instance.ask("/readyz")[0] == 503


def test_slow_clients_do_not_keep_others_from_an_answer(instance):
    """Fifty connections that never finish their request."""
    instance.start()
    host, port = instance.url.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(50)]
    for connection in slow:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost")

    assert instance.ask("/metrics")[0] == 200

    for connection in slow:
        connection.close()


def test_localhost_and_ipv6_addresses_are_served(make_instance):
    """Every address that a name stands for; square brackets as in a URL."""
    instance = make_instance(listen="localhost:0").start()
    assert instance.ask("/readyz")[0] == 503

    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
        instance = make_instance(listen="[::1]:0").start()
        assert instance.url.startswith("http://[::1]:")
        with urllib.request.urlopen(instance.url + "/", timeout=20) as answer:
            assert answer.status == 200


def test_moving_logs_no_warning(instance):
    """A reload that moves it is nothing to worry about."""
    instance.start()
    assert instance.ask("/")[0] == 200
    instance.configure("127.0.0.2:0")

    os.kill(instance.exporter_pid, signal.SIGHUP)
    eventually(lambda: instance.url.startswith("http://127.0.0.2:"), "it serves at the new address")

    assert "thread(s) still running" not in instance.log


def test_sigterm_ends_it_also_when_it_does_not_listen(make_instance):
    """Switched off, or with its port taken: the signal is what it waits for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for listen in ("", f"127.0.0.1:{taken.getsockname()[1]}"):
            instance = make_instance().start()
            assert instance.ask("/")[0] == 200
            instance.configure(listen)
            os.kill(instance.exporter_pid, signal.SIGHUP)
            said = "cannot listen" if listen else "listening address is now ''"
            eventually(lambda instance=instance, said=said: said in instance.log, "it does not listen")

            os.kill(instance.exporter_pid, signal.SIGTERM)
            eventually(lambda instance=instance: ended(instance), "it ends")

            assert instance.process.returncode == 0
