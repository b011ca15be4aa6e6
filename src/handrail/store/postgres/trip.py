"""Several statements in one round trip: libpq's pipeline, driven by hand.

psycopg's own pipeline sends and looks after every statement, which costs a small commit more than
everything else it does, and forgets all prepared statements at each rollback. Here they are
prepared when the connection is made; a trip hands all of them to libpq, sends once, and reads.
"""

import select
from collections.abc import Mapping, Sequence

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from handrail.store.postgres.opening import Database
from handrail.store.postgres.values import Blobs, Numbers, Scalar, Texts

Value = Texts | Numbers | Blobs | Scalar | bytes | None
Step = tuple[str, Sequence[Value]]
"""A prepared statement and its values, of which `bytes` are texts; or a command without any."""


def prepare_all(db: Database, statements: Mapping[str, bytes]) -> None:
    """Once for each connection."""
    line = db.pgconn
    line.enter_pipeline_mode()
    for name, text in statements.items():
        line.send_prepare(name.encode(), text)
    _finish(line)


def trip(db: Database, steps: Sequence[Step]) -> list[PGresult]:
    """The result of each step. The first error is raised; what came after it was not done."""
    line = db.pgconn
    line.enter_pipeline_mode()
    for name, values in steps:
        if values:
            formats = [Format.TEXT if type(one) is bytes else Format.BINARY for one in values]
            line.send_query_prepared(name.encode(), values, formats, Format.BINARY)
        else:
            line.send_query_params(name.encode(), None)
    return _finish(line)


def _finish(line: PGconn) -> list[PGresult]:
    """Send everything, read everything."""
    line.pipeline_sync()
    poll = select.poll()
    poll.register(line.socket, select.POLLIN | select.POLLOUT)
    while line.flush():  # it did not go out at once
        if any(event & ~select.POLLOUT for _, event in poll.poll()):
            line.consume_input()
    poll.modify(line.socket, select.POLLIN)
    results: list[PGresult] = []
    while line.status == ConnStatus.OK:
        while line.is_busy():
            poll.poll()
            line.consume_input()
        result = line.get_result()
        if result is None:
            continue  # the end of one statement's results
        if result.status == ExecStatus.PIPELINE_SYNC:
            line.exit_pipeline_mode()
            break
        results.append(result)
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    if line.status != ConnStatus.OK:
        raise psycopg.OperationalError("the server closed the connection")
    return results
