"""DBOS queue workers: tasks of one step are put on a queue, and so many work on it at once.
`python -m benchmarks.http.dbos_queue FOLDER WORKERS TASKS` prints one JSON line."""

import json
import sys
import time

from dbos import DBOS, DBOSConfig

FOLDER, WORKERS, TASKS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


@DBOS.step()
def step(number: int) -> int:
    return number + 1


@DBOS.workflow()
def task(number: int) -> int:
    return step(number)


def main() -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{FOLDER}/dbos.db",
        "log_level": "ERROR",
        "max_executor_threads": WORKERS + 16,
    }
    DBOS(config=config)
    DBOS.launch()
    queue = DBOS.register_queue("work", worker_concurrency=WORKERS, polling_interval_sec=0.05)
    try:
        start, used = time.perf_counter(), time.process_time()
        handles = [queue.enqueue(task, number) for number in range(TASKS)]
        assert [handle.get_result() for handle in handles] == list(range(1, TASKS + 1))
        seconds, cpu = time.perf_counter() - start, time.process_time() - used
    finally:
        DBOS.destroy()
    print(json.dumps({"steps_per_s": TASKS / seconds, "cpu_ms_per_step": 1000 * cpu / TASKS}))


if __name__ == "__main__":
    main()
