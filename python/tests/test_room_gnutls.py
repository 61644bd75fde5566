"""GnuTLS, the TLS library of nbdkit and qemu, changes the keys of a connection to a node."""

import json
import os
import subprocess
from pathlib import Path

from conftest import PATIENCE_S, program, run


def test_a_connection_continues_when_gnutls_changes_its_key_and_requests_a_change_of_the_nodes(
    tmp_path: Path, binary: str
) -> None:
    client = program("gnutls-cli")
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "CHEETAH_ROOM": "lab"}
    run(binary, "room", "init", "lab", env=environment)
    folder = tmp_path / "pem"
    run(binary, "room", "export", folder, "--name", "desk", env=environment)
    argv = [binary, "--json", "node", "--memory", "8MiB", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout
            port = json.loads(node.stdout.readline())["http"].rpartition(":")[2]
            argv = [program("timeout"), str(PATIENCE_S), client, "--inline-commands", "-p", port, "localhost"]
            argv += ["--x509cafile", str(folder / "ca-cert.pem"), "--x509certfile", str(folder / "client-cert.pem")]
            argv += ["--x509keyfile", str(folder / "client-key.pem")]
            with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
                assert session.stdin and session.stdout

                def until(words: str) -> None:
                    assert session.stdout
                    seen = []
                    for line in session.stdout:
                        seen.append(line)
                        if words in line:
                            return
                    raise AssertionError("".join(seen))

                until("Simple Client Mode")
                # A new key of its own, and then one of both sides; each more than once.
                for command in ("^rekey^", "^rekey1^") * 2:
                    session.stdin.write(f"{command}\n")
                    session.stdin.flush()
                    until("Rekey was completed")
                session.stdin.write("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                session.stdin.flush()
                until("HTTP/1.1 200 OK")
                until('"instance"')
        finally:
            node.terminate()
