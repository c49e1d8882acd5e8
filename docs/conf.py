"""How the documentation site is built: `make docs` runs Sphinx on this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import fedgauge

project = "fedgauge"
version = release = fedgauge.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "generated",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "gallery", "auto_examples/**/*.md5"]
root_doc = "index"

myst_heading_anchors = 4  # as GitHub makes them: the same links work there and here
myst_enable_extensions = ["colon_fence"]

toc_object_entries_show_parents = "hide"
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's tables of parameters name the types
numpydoc_show_class_members = False

# Nothing on a page hangs on when, where or how fast it was built.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": "/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": float("inf"),
    "write_computation_times": False,
    "copyfile_regex": "",
    "capture_repr": (),  # what is printed, and pictures
    "thumbnail_size": (480, 360),
}

html_theme = "pydata_sphinx_theme"
html_title = f"fedgauge {release}"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_favicon = html_logo = "_static/logo.svg"
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_last_updated_fmt = None
html_theme_options = {
    "logo": {"text": "fedgauge"},
    "navigation_with_keys": False,
    "collapse_navigation": True,  # the list of all names is beside these alone
    "show_prev_next": True,
    "header_links_before_dropdown": 6,
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
