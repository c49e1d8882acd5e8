"""A report page taken apart, without a browser."""

import json
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "link", "img"}


class Page(HTMLParser):
    """A page taken apart: its elements, the text of some, and whether all are closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.texts = [], [], {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id", tag)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, name in self.open:
            self.texts[name] = self.texts.get(name, "") + data

    @property
    def data(self):
        return json.loads(self.texts["data"])

    @property
    def part(self):
        return self.data["reports"][0]["parts"][0]
