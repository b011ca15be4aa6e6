"""A primary with a standby that its commits wait for, and a database on them."""

from urllib.parse import urlsplit

from handrail.testing.replica import Replica


class Pair:
    """Who is `primary` and who `standby` changes with a failover; the URL does not."""

    def __init__(self, first: Replica, second: Replica) -> None:
        self.first, self.second = self.primary, self.standby = first, second
        self.database = ""

    @property
    def url(self) -> str:
        return self.first.url_with(self.second, self.database)

    @property
    def url_reversed(self) -> str:
        return self.second.url_with(self.first, self.database)

    def take_over(self) -> None:
        """The standby becomes the primary, and is content with itself."""
        self.standby.require_standby(False)
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def heal(self) -> None:
        if not self.primary.running:
            self.primary.start()
        self.primary.require_standby(False)
        if not (self.standby.running and self.standby.is_standby):
            self.standby.kill()
            self.standby.follow(self.primary)
        self.primary.require_standby(True)
        self.database = urlsplit(self.primary.create_database()).path.removeprefix("/")
