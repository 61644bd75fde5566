"""A page as one file: its templates, its styles, and a policy that lets nothing else in.

What others wrote is escaped by the template engine and made visible by `shown`. Should that ever fail, the page's own
policy still lets no style and no script run but those whose digests it names, and nothing be fetched.
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
    """The templates in the folder `template` of a package, with the filters that all pages use."""
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
    """A file beside the templates, as it is."""
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0]


def style(own: str) -> str:
    """The style of all pages, and what one of them adds."""
    common = importlib.resources.files("cheetah.page").joinpath("style.css").read_text(encoding="utf-8")
    return common + own


def policy(styles: str, scripts: collections.abc.Sequence[str] = ()) -> str:
    """What goes into the page's Content-Security-Policy."""
    allowed = "".join(f" script-src {' '.join(map(_digest, scripts))};" for _ in scripts[:1])
    return f"default-src 'none'; style-src {_digest(styles)};{allowed} base-uri 'none'; form-action 'none'"


def write(target: pathlib.Path, page: str) -> None:
    """Puts the page there, whole or not at all; see `durable.replace`."""
    replace(target, page.encode("utf-8", "xmlcharrefreplace"))


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
