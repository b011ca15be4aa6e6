"""Several statements in one round trip: libpq's pipeline, driven by hand.

psycopg's own pipeline sends and polls after every statement, which costs a small commit more than
everything else, and forgets all prepared statements at each rollback. Here statements are prepared
when the connection is made; a round trip hands all of them to libpq, sends once, and reads.
"""

import select
from collections.abc import Mapping, Sequence

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from handrail.store.postgres.binary_values import BinaryScalar, EncodedArray
from handrail.store.postgres.database import PostgresConnection

PipelineValue = EncodedArray | BinaryScalar | bytes | None
PipelineStep = tuple[str, Sequence[PipelineValue]]
"""A prepared statement and its values, where `bytes` are texts; or a command without values."""


def prepare_statements(db: PostgresConnection, statements: Mapping[str, bytes]) -> None:
    """Prepare the statements, once per connection."""
    pgconn = db.pgconn
    pgconn.enter_pipeline_mode()
    for name, text in statements.items():
        pgconn.send_prepare(name.encode(), text)
    _flush_and_read(pgconn)


def run_pipeline(db: PostgresConnection, steps: Sequence[PipelineStep]) -> list[PGresult]:
    """Return the result of each step. Raise the first error; later steps were not executed."""
    pgconn = db.pgconn
    pgconn.enter_pipeline_mode()
    for name, values in steps:
        if values:
            formats = [Format.TEXT if type(value) is bytes else Format.BINARY for value in values]
            pgconn.send_query_prepared(name.encode(), values, formats, Format.BINARY)
        else:
            pgconn.send_query_params(name.encode(), None)
    return _flush_and_read(pgconn)


def _flush_and_read(pgconn: PGconn) -> list[PGresult]:
    """Send everything, read everything."""
    pgconn.pipeline_sync()
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
    while pgconn.flush():  # not everything was sent yet
        if any(event & ~select.POLLOUT for _, event in poll.poll()):
            pgconn.consume_input()
    poll.modify(pgconn.socket, select.POLLIN)
    results: list[PGresult] = []
    while pgconn.status == ConnStatus.OK:
        while pgconn.is_busy():
            poll.poll()
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            continue  # the end of one statement's results
        if result.status == ExecStatus.PIPELINE_SYNC:
            pgconn.exit_pipeline_mode()
            break
        results.append(result)
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    if pgconn.status != ConnStatus.OK:
        raise psycopg.OperationalError("the server closed the connection")
    return results
