"""Check a built documentation site: links within it lead somewhere, and nothing is fetched."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page names: places in it, links, and files that a browser fetches by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        named = {name: value for name, value in attrs if value}
        self.places |= {named[name] for name in ("id", "name") if name in named}
        if tag == "a" and "href" in named:
            self.links.add(named["href"])
        if FETCHED.get(tag) in named:
            self.fetched.add(named[FETCHED[tag]])


def broken(site: Path) -> list[str]:
    """A line for each link that leads nowhere, and for each file that is fetched from elsewhere."""
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path.resolve(): Page(path.read_text()) for path in paths}
    found = []
    for path, page in pages.items():
        at = path.relative_to(site.resolve())
        for link in sorted(page.links | page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.scheme != "data":
                    found.append(f"{at}: fetches {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            places = pages[target].places if target in pages else {parts.fragment}
            if not target.is_file():
                found.append(f"{at}: {link} leads to no file")
            elif parts.fragment and not places & {parts.fragment, unquote(parts.fragment)}:
                found.append(f"{at}: {link} leads to no place on that page")
    return found


def main() -> None:
    """Print what is broken; end with 1 where something is."""
    site = Path(sys.argv[1])
    found = broken(site)
    if not (site / "index.html").is_file():
        found.append(f"{site}: no index.html")
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
