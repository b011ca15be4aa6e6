"""A PostgreSQL and its standby: what one commits the other has, and they can change places."""

from urllib.parse import urlsplit

import psycopg

from handrail.testing.replica import Replica


def write(url: str, number: int) -> None:
    with psycopg.connect(url, target_session_attrs="read-write") as connection:
        connection.execute("create table if not exists kept (number bigint)")
        connection.execute("insert into kept values (%s)", (number,))


def read(url: str) -> list[int]:
    with psycopg.connect(url, target_session_attrs="read-write") as connection:
        return [number for (number,) in connection.execute("select number from kept order by 1")]


def test_the_standby_takes_over_and_the_old_primary_follows_it():
    with Replica(tcp=True) as first, Replica(tcp=True) as second:
        first.start()
        name = urlsplit(first.create_database()).path.removeprefix("/")
        second.follow(first)
        first.require_standby(True)
        both = first.url_with(second, name)
        write(both, 1)
        first.kill()
        second.require_standby(False)
        second.promote()
        write(both, 2)
        first.follow(second, rewind=True)
        second.require_standby(True)
        write(both, 3)
        second.crash()
        first.require_standby(False)
        first.promote()
        assert read(both) == [1, 2, 3]
        second.follow(first)
        assert second.is_standby
        assert not first.is_standby
