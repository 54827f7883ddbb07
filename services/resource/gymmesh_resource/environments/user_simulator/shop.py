"""A small shop: customers and their orders, and what a support agent can do with them.

Invariant: a tool that refuses changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from gymmesh_resource.errors import ToolError
from gymmesh_resource.tools import tool

_Count = Annotated[int, msgspec.Meta(ge=1, le=1000)]
_Cents = Annotated[int, msgspec.Meta(ge=0)]
_NUMBER = Annotated[str, "the order's number"]


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """Keys that are misspelt would be expectations that are never met."""


class _Customer(_Strict):
    name: str
    email: str


class _OrderLine(_Strict):
    name: str
    price_cents: _Cents
    quantity: _Count = 1
    refunded: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Order(_Strict):
    customer: str
    status: Literal["pending", "shipped", "delivered", "cancelled"]
    items: dict[str, _OrderLine]
    address: str = ""


class _ShopState(_Strict):
    customers: dict[str, _Customer] = {}
    orders: dict[str, _Order] = {}
    handed_over: list[str] = []


def shop_state(value: Any) -> dict[str, Any]:
    """A shop's state with its defaults filled in. Raises ValueError, which names the place."""
    state = msgspec.convert(value, _ShopState)
    for number, order in state.orders.items():
        if order.customer not in state.customers:
            raise ValueError(f"order {number} belongs to a customer that is not in 'customers'")
    checked: dict[str, Any] = msgspec.to_builtins(state)
    return checked


class Shop:
    """The tools over one session's state, which they change in place."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    @tool
    def find_customer(self, email: str) -> dict[str, Any]:
        """Find a customer by e-mail address."""
        for number, customer in self._state["customers"].items():
            if customer["email"].casefold() == email.strip().casefold():
                return {"customer_id": number, **customer}
        raise ToolError("No customer has that e-mail address.")

    @tool
    def list_orders(self, customer_id: str) -> list[dict[str, Any]]:
        """List a customer's orders: number and status."""
        self._customer(customer_id)
        return [
            {"order_id": number, "status": order["status"]}
            for number, order in self._state["orders"].items()
            if order["customer"] == customer_id
        ]

    @tool
    def get_order(self, order_id: _NUMBER) -> dict[str, Any]:
        """Look at one order: customer, status, items, address."""
        return {"order_id": order_id, **self._order(order_id)}

    @tool
    def cancel_order(self, order_id: _NUMBER) -> str:
        """Cancel an order that is pending; it is refunded in full."""
        order = self._order(order_id, "pending", "cancelled")
        order["status"] = "cancelled"
        cents = sum(line["price_cents"] * line["quantity"] for line in order["items"].values())
        return f"Order {order_id} is cancelled, {_money(cents)} are refunded."

    @tool
    def refund_item(self, order_id: _NUMBER, item_id: str, quantity: _Count = 1) -> str:
        """Refund items of an order that is delivered.

        Args:
            item_id: the item's key in the order
            quantity: how many of it
        """
        order = self._order(order_id, "delivered", "refunded")
        line = order["items"].get(item_id)
        if line is None:
            raise ToolError(f"The order has no {item_id!r}, only: {', '.join(order['items'])}.")
        left = line["quantity"] - line["refunded"]
        if quantity > left:
            raise ToolError(f"Only {left} of {item_id} can be refunded.")
        line["refunded"] += quantity
        return f"{_money(quantity * line['price_cents'])} are refunded."

    @tool
    def change_address(self, order_id: _NUMBER, address: str) -> str:
        """Change where an order that is pending is sent."""
        if not address.strip():
            raise ToolError("The address is empty.")
        self._order(order_id, "pending", "sent elsewhere")["address"] = address.strip()
        return f"Order {order_id} will be sent to {address.strip()}."

    @tool
    def hand_over(self, customer_id: str) -> str:
        """Hand the customer over to a person."""
        self._customer(customer_id)
        if customer_id not in self._state["handed_over"]:
            self._state["handed_over"].append(customer_id)
        return "A person will take over."

    def _customer(self, customer_id: str) -> None:
        if customer_id not in self._state["customers"]:
            raise ToolError("No customer has that id. Find the customer by e-mail address.")

    def _order(self, order_id: str, status: str = "", change: str = "") -> dict[str, Any]:
        order: dict[str, Any] | None = self._state["orders"].get(order_id)
        if order is None:
            raise ToolError("No order has that number.")
        if status and order["status"] != status:
            raise ToolError(
                f"The order is {order['status']}. Only {status} orders can be {change}."
            )
        return order


def _money(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02}"
