"""Sites that know each other and a coordinator, each in a folder of its own."""

from pathlib import Path

from sites import open_policy

from fedgauge.engines.coordinator import Coordinator
from fedgauge.engines.exchange import Exchange, join, submit, take_part
from fedgauge.engines.folder import open_folder
from fedgauge.keys import key_to_text
from fedgauge.secagg import Stage
from fedgauge.site import Site, create_site
from fedgauge.vertical.files import totals_for
from fedgauge.vertical.label_party import ROW_KINDS

COORDINATOR = "consortium"
A, B, C, D = NAMES = [f"hospital-{letter}" for letter in "abcd"]


class Consortium:
    """Sites by name, in the folders of their names. Every call reads them from their files."""

    def __init__(self, folder, names):
        self.folder = Path(folder)
        self.names = list(names)
        self.keys = {name: self.site(name).key.public for name in (COORDINATOR, *self.names)}

    @classmethod
    def make(cls, folder, names, *, policy=None, dataset="stroke-2026"):
        made = [create_site(folder / COORDINATOR, name=COORDINATOR, dataset="none")]
        for name in names:
            made.append(
                create_site(
                    folder / name, name=name, dataset=dataset, policy=policy or open_policy()
                )
            )
        trust = {
            site.name: f'name = "{site.name}"\nkey = "{key_to_text(site.key.public)}"\n'
            for site in made
        }
        for site in made:
            blocks = [f"\n[[peers]]\n{trust[name]}" for name in names if name != site.name]
            if site.name != COORDINATOR:
                blocks.append(f"\n[[coordinators]]\n{trust[COORDINATOR]}")
            site.path.write_text(site.path.read_text() + "".join(blocks))
        return cls(folder, names)

    def site_file(self, name):
        return self.folder / name / "site.toml"

    def site(self, name):
        return Site.from_toml(self.site_file(name))

    def exchange(self, run, name=COORDINATOR):
        return Exchange(run, self.site(name))

    def coordinator(self, run):
        return Coordinator(self.exchange(run), self.site(COORDINATOR), totals=totals_for)

    def start(self, run, plan, invited=None):
        open_folder(run).make()
        members = [self.keys[name] for name in invited or self.names]
        return self.coordinator(run).start(plan, members).invitation.session

    def answer(self, run, name, stage, data=None):
        """Take one site through one round; the file it wrote."""
        site = self.site(name)
        data_of = None if data is None else lambda: data
        return Path(take_part(Exchange(run, site), site, stage, data_of))

    def advance(self, run, *, without_missing=False):
        return self.coordinator(run).advance(without_missing=without_missing)

    def play(self, run, clients, *, since=Stage.ADVERTISE, until=Stage.OPEN, skip=()):
        """All sites through all rounds; what the last `advance` gave."""
        outcome = None
        for stage in Stage:
            if since <= stage <= until:
                for name, data in clients.items():
                    if name not in skip:
                        self.answer(run, name, stage, data)
                outcome = self.advance(run, without_missing=bool(skip))
        return outcome

    def entries(self, name):
        """The kinds of entries in a site's ledger, oldest first, replies without counts aside."""
        return [entry.kind for entry in self.site(name).ledger.entries() if entry.kind != "reply"]


class Shared(Consortium):
    """Sites whose rows are files, with one run folder; `rows(name)` names the file of a site."""

    @property
    def run(self):
        return self.folder / "run"

    def answer(self, run, name, stage, data=None):
        """As the commands do: the file is named at join, and read again at submit."""
        site = self.site(name)
        exchange = Exchange(run, site)
        match stage:
            case Stage.ADVERTISE:
                return Path(join(exchange, site, self.rows(name)))
            case Stage.MASK:
                return Path(submit(exchange, site, kinds=ROW_KINDS, tell=lambda _: None).path)
            case _:
                return super().answer(run, name, stage, data)
