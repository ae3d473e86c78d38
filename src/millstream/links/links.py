"""Links: everything that connects this server to others, as one part to start and stop."""

from millstream.links.exchange import Exchange
from millstream.links.leafs import Leafs
from millstream.links.mesh import Mesh
from millstream.links.terms import LeafTerms, RouteTerms


class Links:
    """The routes and leafnodes of a server; either may be absent."""

    def __init__(self, exchange: Exchange, leafs: Leafs | None, mesh: Mesh | None) -> None:
        self.exchange = exchange
        self.leafs = leafs
        self.mesh = mesh

    def listen(self, which: str) -> None:
        """Take other servers at the port of ``leafnodes`` or of ``cluster``."""
        if which == "leafnodes" and self.leafs is not None:
            self.leafs.listen()
        elif self.mesh is not None:
            self.mesh.listen()

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Return where other servers reach this one, by the words of a ports file."""
        found = {
            "leafnodes": self.leafs.address if self.leafs is not None else None,
            "cluster": self.mesh.address if self.mesh is not None else None,
        }
        return {name: at for name, at in found.items() if at is not None}

    def start(self, client_places: list[str]) -> None:
        """Call other servers; ``client_places`` is where clients reach this server."""
        if self.leafs is not None:
            self.leafs.start()
        if self.mesh is not None:
            self.mesh.start(client_places)

    def tick(self) -> None:
        """Look at deadlines; once a second is enough."""
        if self.leafs is not None:
            self.leafs.tick()
        if self.mesh is not None:
            self.mesh.tick()
        self.exchange.hub.flush()

    def renew(self) -> None:
        """Take up accounts that came since."""
        self.exchange.renew()
        if self.mesh is not None:
            self.mesh.renew()

    def change(self, leafs: LeafTerms | None, routes: RouteTerms | None) -> None:
        """Call the servers that are configured now."""
        if self.leafs is not None and leafs is not None:
            self.leafs.change(leafs)
        if self.mesh is not None and routes is not None:
            self.mesh.change(routes)

    def leave(self) -> None:
        """Tell other servers that this one goes."""
        if self.mesh is not None:
            self.mesh.leave()

    def stop(self) -> None:
        """Close every link and open no more."""
        if self.leafs is not None:
            self.leafs.stop()
        if self.mesh is not None:
            self.mesh.stop()
        self.exchange.close()
