"""The site: `python -m sphinx -b dirhtml docs build/site`, with the extra `docs`.

Sphinx with furo, because it is maintained, works offline, reads the pages as they are on a code host (MyST reads
Markdown), and reports a broken link or anchor as an error. MkDocs, which the site used before, has announced its end;
Zensical and ProperDocs are too young to be relied on.
"""
import re

project = "rmqha"
author = "The rmqha authors"
copyright = author
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["examples/testing"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # a generated part may begin at a lower level
smartquotes = False
html_theme = "furo"
html_title = "rmqha"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2b4c9b", "color-brand-content": "#2b4c9b"},
    "dark_css_variables": {"color-brand-primary": "#8fb0ff", "color-brand-content": "#8fb0ff"},
}

# The navigation has two levels: a part, and its pages. A page that no part names makes the build fail.
NAVIGATION = {
    "Getting started": ["install", "tutorials/quickstart", "tutorials/first-producer",
                        "tutorials/replication-you-can-watch", "examples", "testing", "faq", "glossary"],
    "Moving from RocketMQ 4.9": ["how-to/migrate", "how-to/replace-a-java-slave", "how-to/replace-a-java-master",
                                 "how-to/replace-the-name-server", "what-works", "reference/differences"],
    "Operating a cluster": ["clusters", "containers", "how-to/messages", "how-to/topics-and-groups",
                            "how-to/cluster-settings", "console", "how-to/monitoring", "acl", "tls", "SECURITY",
                            "how-to/automatic-failover", "how-to/failover-with-relays",
                            "how-to/failover-with-haproxy", "how-to/failover-with-a-floating-address",
                            "how-to/failover-by-hand", "controllers-at-etcd",
                            "how-to/backup-and-restore", "how-to/repair-a-slave", "how-to/upgrade",
                            "how-to/troubleshooting"],
    "Spark": ["spark/index", "spark/archives", "spark/live-clusters", "spark/streams", "spark/many-machines",
              "spark/scale"],
    "Reference": ["commands", "mqadmin", "config-keys", "metrics", "client", "reference/request-codes", "limits",
                  "performance", "reference/ha-truth-table", "reference/fast-ways", "reference/threads",
                  "reference/java-map"],
    "How it works": ["explanation/durability", "replication", "explanation/replication-inside", "failover",
                     "reliability", "explanation/decisions", "design", "CONTRIBUTING", "CODE_OF_CONDUCT"],
}


def _with_navigation(app, name: str, source: list[str]) -> None:
    """Append the navigation to the landing page, which a code host shows without it."""
    if name == "index":
        for part, pages in NAVIGATION.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n" + "\n".join(pages) + "\n```\n"


def _may_break_between_words(app, page: str, template: str, context: dict[str, object], doctree: object) -> None:
    """Let code break on a phone where a word of a name begins: broker|Cluster|Name."""
    context["body"] = re.sub(r'(?<=<span class="pre">)[^<]+', lambda code: re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])|(?<=[._/=])(?=\w)", "<wbr>", code[0]), str(context.get("body") or ""))


def setup(app) -> None:
    """Called by Sphinx at its start."""
    app.connect("source-read", _with_navigation)
    app.connect("html-page-context", _may_break_between_words)
