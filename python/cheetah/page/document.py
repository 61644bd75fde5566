"""An HTML page in one file: its templates, its styles, and a Content-Security-Policy that forbids everything else.

The template engine escapes text from evidence, and `shown` makes it visible. Should that fail, the policy still runs
no style or script except those whose digests it names, and fetches nothing.
"""

import base64
import collections.abc
import hashlib
import importlib.resources
import pathlib

import jinja2

from cheetah.durable import replace
from cheetah.page import shown, svg, units


def environment(package: str) -> jinja2.Environment:
    """Returns the templates in the directory `template` of a package, with the filters that all pages use."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "template"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=units.count,
        size=units.size,
        moment=units.moment,
        evidence=shown.evidence,
        path=shown.path,
        percent=lambda part, whole: units.percent(part, whole),
    )
    made.globals.update(meter=svg.meter)
    return made


def text(templates: jinja2.Environment, name: str) -> str:
    """Returns the content of a file beside the templates."""
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0]


def style(own: str) -> str:
    """Returns the common style and a page's own."""
    common = importlib.resources.files("cheetah.page").joinpath("style.css").read_text(encoding="utf-8")
    return common + own


def policy(styles: str, scripts: collections.abc.Sequence[str] = ()) -> str:
    """Returns the page's Content-Security-Policy."""
    allowed = "".join(f" script-src {' '.join(map(_digest, scripts))};" for _ in scripts[:1])
    return f"default-src 'none'; style-src {_digest(styles)};{allowed} base-uri 'none'; form-action 'none'"


def write(target: pathlib.Path, page: str) -> None:
    """Writes the page, whole or not at all; see `durable.replace`."""
    replace(target, page.encode("utf-8", "xmlcharrefreplace"))


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
