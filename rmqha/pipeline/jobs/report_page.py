"""The page of the job `report`: one file that needs nothing from elsewhere, drawn by the reader's browser.

Its style and its script lie beside this module in `page/`; what they show is the report as JSON within the page. The
page's own rules forbid it to ask the network for anything.
"""
import html
import json
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING

from rmqha import __version__

if TYPE_CHECKING:
    from rmqha.pipeline.jobs.report import Report

_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def render(found: "Report") -> str:
    """The page."""
    page = files("rmqha.pipeline.jobs").joinpath("page")
    style, script = (page.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    title = f"Report on {html.escape(_text(found.store))}"
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>{title}</title>\n<style>\n{style}</style></head>\n<body>'
            f'<noscript><h1>{title}</h1><p>{found.messages:,} messages of {found.topicCount:,} topics, {found.bytes:,} '
            'bytes. The rest of this page is drawn by JavaScript, which is switched off.</p></noscript>'
            f'\n<script type="application/json" id="data">{_for_script(found)}</script>\n<script>\n{script}</script>'
            '</body></html>\n')


def _for_script(found: "Report") -> str:
    """JSON that can't end the element it stands in."""
    return json.dumps({"version": __version__, **asdict(found)}, ensure_ascii=True).replace("<", "\\u003c")


def _text(value: str) -> str:
    """Without what UTF-8 can't say: names of files may be any bytes."""
    return value.encode("utf-8", "replace").decode()
