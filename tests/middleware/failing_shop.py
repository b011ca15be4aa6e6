"""A shop in which everything fails, each function in its own way, with the key of the request in
what it says. Two keys are the same bug, two functions are two."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal

PRICES = {"apple": 3}


class OutOfStockError(Exception):
    pass


class Invoice:
    def __init__(self, key: str) -> None:
        self.key = key
        self.customer = None

    def total(self) -> Decimal:
        return self.customer.discount * Decimal(1)  # type: ignore[attr-defined] - that is the bug


def missing_price(key: str) -> object:
    return PRICES[key]


def unknown_customer(key: str) -> object:
    raise LookupError(f"customer {key} not found")


def bad_number(key: str) -> object:
    return int(f"#{key}")


def no_customer(key: str) -> object:
    return Invoice(key).total()


def refused(key: str) -> object:
    raise OutOfStockError(f"{len(key)} of '{key}' left, {hash(key)} wanted at 0x{id(key):x}")


def refused_by_the_warehouse(key: str) -> object:
    try:
        return missing_price(key)
    except KeyError as error:
        raise OutOfStockError(f"no price of {key}") from error


def unreadable(key: str) -> object:
    return json.loads(f"{{{key}: ")


def unreadable_again(key: str) -> object:
    return json.loads(f"[{key}")


def too_deep(key: str) -> object:
    return descend(len(key) * 7 + 3, key)


def descend(left: int, key: str) -> object:
    return descend(left - 1, key) if left else PRICES[key]


def duplicate(key: str) -> object:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f'insert into "orders {key}" values (1)')
    finally:
        connection.close()
    return None


async def several_at_once(key: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fail_soon(key))
        group.create_task(fail_soon(f"{key}{key}"))


async def fail_soon(key: str) -> None:
    raise OutOfStockError(key)


def in_a_group(key: str) -> object:
    asyncio.run(several_at_once(key))
    return None


def wrong_sum(key: str) -> object:
    assert sum(map(ord, key)) == 0, f"the sum of {key} is {sum(map(ord, key))}"
    return None


FAILURES: dict[str, Callable[[str], object]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        missing_price,
        unknown_customer,
        bad_number,
        no_customer,
        refused,
        refused_by_the_warehouse,
        unreadable,
        unreadable_again,
        too_deep,
        duplicate,
        in_a_group,
        wrong_sum,
    )
}
