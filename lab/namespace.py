"""Network namespaces, and running things in them."""

import os
import subprocess

NETNS_DIR = "/run/netns"


class LabError(Exception):
    """The lab could not do what was asked; says what and what to do about it."""


def run(argv):
    """Runs a command to its end and returns its output; a failure carries the command and its complaint."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise LabError(f"{' '.join(argv)}: {complaint}")
    return done.stdout


class Namespace:
    """One network namespace, named so that nobody else's can be meant."""

    def __init__(self, name):
        self.name = name
        self.path = os.path.join(NETNS_DIR, name)

    def create(self):
        """Makes it, with loopback up, no IPv6 (its chatter spoils captures) and room for long fat links."""
        run(["ip", "netns", "add", self.name])
        self.set_sysctl("net/ipv6/conf/all/disable_ipv6", "1")
        self.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        self.set_sysctl("net/ipv4/tcp_rmem", "4096 131072 33554432")
        self.set_sysctl("net/ipv4/tcp_wmem", "4096 65536 33554432")
        self.run(["ip", "link", "set", "lo", "up"])

    def remove(self):
        """Removes it; processes still inside keep their sockets but lose their links."""
        if os.path.exists(self.path):
            run(["ip", "netns", "del", self.name])

    def command(self, argv):
        """`argv` so that it runs in here. Not `ip netns exec`: that unshares mounts, and a FUSE mount made
        under it is invisible outside."""
        return ["nsenter", f"--net={self.path}", "--", *argv]

    def run(self, argv):
        """Runs a command in here to its end and returns its output."""
        return run(self.command(argv))

    def set_sysctl(self, key, value):
        """Sets a sysctl of the namespace; one the kernel does not have is passed over."""
        script = f'if [ -e /proc/sys/{key} ]; then echo "{value}" > /proc/sys/{key}; fi'
        self.run(["sh", "-c", script])
