"""The dashboard and the alerts: of metrics that a node has, and loaded into a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import MIB, PATIENCE_S, ROOT, noise, run

MONITORING = ROOT / "packaging/monitoring"
RULES, DASHBOARD = MONITORING / "cheetah-alerts.yml", MONITORING / "cheetah-dashboard.json"
METRIC = re.compile(r"\bcheetah_[a-z_]+\b")


def tool(name: str) -> str:
    """A program of Prometheus; skips the test without it. `make test` unpacks its package without installing it."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{ROOT / 'target/prometheus/usr/bin'}")
    if path is None:
        pytest.skip(f"needs {name} (make test fetches it)")
    return path


@pytest.fixture
def node(binary: str) -> Iterator[dict[str, Any]]:
    """A node."""
    argv = [binary, "--json", "node", "--memory", "32MiB", "--listen", "127.0.0.1:0"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        yield json.loads(child.stdout.readline())
    finally:
        child.terminate()
        child.wait(PATIENCE_S)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def expressions() -> list[str]:
    """The expressions of the dashboard's panels and of its variables."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return found + [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]


def test_every_metric_of_the_dashboard_and_the_alerts_is_one_that_a_node_has(
    binary: str, node: dict[str, Any], tmp_path: Path
) -> None:
    image = tmp_path / "disk.raw"
    image.write_bytes(noise(MIB, 3))
    run(binary, "create", tmp_path / "case.drive", "--nodes", node["nbd"], "--from", image)
    page = get(f"http://{node['http']}/metrics")
    exported = {line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE ")}
    # A family without a sample would leave its panel empty.
    sampled = {METRIC.match(line)[0] for line in page.splitlines() if line.startswith("cheetah_")}  # type: ignore[index]
    assert exported == sampled
    wanted = set(METRIC.findall("\n".join(expressions()))) | set(METRIC.findall(RULES.read_text()))
    assert len(wanted) > 10 and wanted <= exported, wanted - exported
    counters = {line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE ") and "counter" in line}
    assert all(name.endswith("_total") for name in counters)


def test_panels_of_the_dashboard_do_not_overlap_and_each_has_its_own_number() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_promtool_accepts_the_alerts_and_each_of_their_tests_passes() -> None:
    promtool = tool("promtool")
    run(promtool, "check", "rules", RULES)
    run(promtool, "test", "rules", MONITORING / "cheetah-alerts-test.yml")


def test_a_real_prometheus_collects_a_node_and_evaluates_each_expression(node: dict[str, Any], tmp_path: Path) -> None:
    prometheus = tool("prometheus")
    shutil.copy(RULES, tmp_path)
    settings = (MONITORING / "prometheus.yml").read_text()
    # As its comment says for nodes without a room.
    settings = re.sub(r"(?s)    scheme: https\n.*?(?=    static_configs)", "", settings).replace("15s", "1s")
    settings = re.sub(
        r"          - 10.0.0.7:10810\n          - 10.0.0.8:10810\n", f"          - {node['http']}\n", settings
    )
    (tmp_path / "prometheus.yml").write_text(settings)
    run(tool("promtool"), "check", "config", tmp_path / "prometheus.yml")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"
    argv = [prometheus, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen([*argv, f"--web.listen-address={at}"], stdout=log, stderr=log)
    try:
        begun = time.monotonic()
        while query(at, 'up{job="cheetah"} == 1 and on() cheetah_memory_lent_bytes') == []:
            assert time.monotonic() < begun + PATIENCE_S, (tmp_path / "log").read_text()[-2000:]
            time.sleep(0.2)
        for expression in expressions():
            text = expression.replace("$node", ".*")
            if not text.startswith("label_values"):
                query(at, text)
        loaded = json.loads(get(f"http://{at}/api/v1/rules"))["data"]["groups"][0]["rules"]
        named = re.findall(r"alert: (\w+)", RULES.read_text())
        assert [rule["name"] for rule in loaded] == named and not any(rule.get("lastError") for rule in loaded)
    finally:
        child.terminate()
        child.wait(PATIENCE_S)


def query(at: str, expression: str) -> list[Any] | None:
    """The result of an expression; `[]` also while Prometheus starts."""
    try:
        answer = get(f"http://{at}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    except (ConnectionError, urllib.error.URLError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code == 400:
            raise
        return []
    result = json.loads(answer)["data"]["result"]
    return list(result)
