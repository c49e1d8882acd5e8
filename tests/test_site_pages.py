"""The documentation site names all there is, without building it; and the check of a built one."""

import re
import runpy
from pathlib import Path

import pytest

import fedgauge as fg

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
generated = runpy.run_path(str(DOCS / "_ext" / "generated.py"))
broken = runpy.run_path(str(ROOT / "tools" / "check_site.py"))["broken"]


def pages():
    return {page.stem: page.read_text() for page in DOCS.glob("*.md")}


def test_every_page_is_in_one_table_of_contents():
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", "\n".join(pages().values()), re.DOTALL)
    entries = [line for block in blocks for line in block.splitlines()]
    named = [line for line in entries if line and not line.startswith(":")]
    assert sorted([*named, "index"]) == sorted([*pages(), "auto_examples/index"])


def test_every_public_name_is_in_the_reference():
    named = re.findall(r"^   (\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(fg.__all__)


def test_every_public_name_has_an_example():
    """Which runs: all docstrings are doctests."""
    assert [name for name in fg.__all__ if ">>>" not in getattr(fg, name).__doc__] == []


def test_every_command_and_option_is_in_the_reference():
    text = generated["fill"]((DOCS / "commands.md").read_text())
    contexts = list(generated["every_command"]())[1:]
    assert len(contexts) > 40
    for context in contexts:
        assert f"# {context.command_path}\n" in text
    shown = text.split("## fedgauge plan\n")[1].split("\n## ")[0]
    assert "$ fedgauge plan --examples 50000 --positive-rate 0.1" in shown
    assert "| `--clients` `INTEGER` | How many clients will take part. Required. |" in shown
    assert "`[sa\\|ddp\\|ldp]`" in shown
    assert "Default: `ddp`." in shown
    assert "`PATH`" in shown
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert re.findall(r"(?<!-)--[a-z][a-z-]*", prose) == []  # Sphinx would make a dash of them
    broken_at = re.findall(r" \\\n    (\S+)", text)
    assert len(broken_at) > 10
    assert all(re.match("--?[a-z]", each) for each in broken_at)  # never before an option's value


def test_every_error_is_in_the_index():
    text = generated["fill"]((DOCS / "errors.md").read_text())
    kinds = [name for name in fg.__all__ if isinstance(getattr(fg, name), type)]
    raised = [name for name in kinds if issubclass(getattr(fg, name), Exception)]
    assert re.findall(r"`~fedgauge\.(\w+)`", text) == raised
    assert "A saved result that cannot be read. | `FedgaugeError`, `ValueError` | 1 |" in text


def test_links_of_files_beside_the_pages_are_rebased():
    text = generated["fill"]((DOCS / "contributing.md").read_text())
    assert text.startswith("# Contributing\n")
    assert "](architecture.md)" in text
    app = generated["fill"]((DOCS / "flower-app.md").read_text())
    assert "](flower.md)" in app
    assert "](../examples/flower-app/hospitals/task.py)" in app
    assert "](contributing.md)" in generated["fill"]((DOCS / "architecture.md").read_text())


def test_the_gallery_has_its_examples():
    assert len(list((DOCS / "gallery").glob("plot_*.py"))) == 10


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<a href="other.html#here"></a><a href="#top" id="top"></a>', []),
        ('<a href="gone.html">', ["index.html: gone.html leads to no file"]),
        (
            '<a href="other.html#gone">',
            ["index.html: other.html#gone leads to no place on that page"],
        ),
        ('<script src="https://a.example/x.js">', ["index.html: fetches https://a.example/x.js"]),
        ('<a href="https://a.example/">', []),
    ],
)
def test_a_built_site_is_checked(text, told, tmp_path):
    (tmp_path / "index.html").write_text(text)
    (tmp_path / "other.html").write_text('<p id="here">')
    assert broken(tmp_path) == told


def test_toggles_of_the_theme_get_a_name(tmp_path):
    (tmp_path / "api.html").write_text('<summary><span class="toctree-toggle"></span></summary>')
    (tmp_path / "other.html").write_text("<summary>Open</summary>")
    generated["name_toggles"](tmp_path)
    assert '<summary aria-label="Pages in this section">' in (tmp_path / "api.html").read_text()
    assert (tmp_path / "other.html").read_text() == "<summary>Open</summary>"
