"""The customer relationship manager."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from gymmesh_resource import Session, ToolError, tool
from gymmesh_resource.environments.workplace.office import Office
from gymmesh_resource.environments.workplace.searching import (
    has_texts,
    page_of,
    require,
    wanted_texts,
)

CustomerId: TypeAlias = Annotated[str, "the customer's id"]
LeadStatus: TypeAlias = Literal["Qualified", "Won", "Lost", "Lead", "Proposal"]
Product: TypeAlias = Literal["Software", "Hardware", "Services", "Consulting", "Training"]
STATUSES: tuple[str, ...] = get_args(LeadStatus)
PRODUCTS: tuple[str, ...] = get_args(Product)
_ADDRESSES = ("assigned_to_email", "customer_email")


class CustomerTools:
    """Searching, adding, changing and deleting customers."""

    @tool(name="customer_relationship_manager_search_customers")
    def search_customers(
        self,
        session: Session[Office],
        customer_name: str | None = None,
        customer_email: str | None = None,
        product_interest: str | None = None,
        status: str | None = None,
        assigned_to_email: str | None = None,
        last_contact_date_min: str | None = None,
        last_contact_date_max: str | None = None,
        follow_up_by_min: str | None = None,
        follow_up_by_max: str | None = None,
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any] | str:
        """Find customers; all that is given must fit, parts of texts do.

        Args:
            customer_name: text that the name has
            customer_email: text that the customer's address has
            product_interest: the product they are interested in
            status: where the customer stands
            assigned_to_email: text that the address of the colleague in charge has
            last_contact_date_min: the earliest last contact, YYYY-MM-DD
            last_contact_date_max: the latest last contact, before the start of YYYY-MM-DD
            follow_up_by_min: the earliest follow-up, YYYY-MM-DD
            follow_up_by_max: the latest follow-up, before the start of YYYY-MM-DD
            page: which page of the results, from 1
            page_size: customers on a page
        """
        wanted = wanted_texts(
            customer_name=customer_name,
            customer_email=customer_email,
            product_interest=product_interest,
            status=status,
            assigned_to_email=assigned_to_email,
        )
        bounds = [
            ("last_contact_date", last_contact_date_min or "", last_contact_date_max or "~"),
            ("follow_up_by", follow_up_by_min or "", follow_up_by_max or "~"),
        ]
        bounds = [bound for bound in bounds if bound[1:] != ("", "~")]
        if not wanted and not bounds:
            raise ToolError("Say what to look for: give at least one of the parameters.")
        # Dates are compared as text, with their time, as NeMo Gym's tool does.
        found = [
            customer
            for customer in session.state.customers
            if has_texts(customer, wanted)
            and all(
                (date := customer[name]) is not None and low <= date <= high
                for name, low, high in bounds
            )
        ]
        return page_of("customers", found, page, page_size)

    @tool(name="customer_relationship_manager_update_customer")
    def update_customer(
        self,
        session: Session[Office],
        customer_id: CustomerId,
        field: Literal[
            "customer_name",
            "assigned_to_email",
            "customer_email",
            "customer_phone",
            "last_contact_date",
            "product_interest",
            "status",
            "notes",
            "follow_up_by",
        ],
        new_value: str,
    ) -> str:
        """Change one field of a customer.

        Args:
            field: which field
            new_value: what it is to be
        """
        session.state.customers.find(customer_id)
        require(new_value=new_value)
        if field == "status" and new_value not in STATUSES:
            raise ToolError(f"status must be one of: {', '.join(STATUSES)}.")
        if field == "product_interest" and new_value not in PRODUCTS:
            raise ToolError(f"product_interest must be one of: {', '.join(PRODUCTS)}.")
        value = new_value.lower() if field in _ADDRESSES else new_value
        session.state.customers.update(customer_id, field, value)
        return "Customer updated successfully."

    @tool(name="customer_relationship_manager_add_customer")
    def add_customer(
        self,
        session: Session[Office],
        customer_name: str,
        assigned_to_email: str,
        status: LeadStatus,
        customer_email: str | None = None,
        customer_phone: str | None = None,
        last_contact_date: str | None = None,
        product_interest: Product | None = None,
        notes: str | None = None,
        follow_up_by: str | None = None,
    ) -> str:
        """Add a customer; answers its id.

        Args:
            customer_name: the customer's name
            assigned_to_email: the address of the colleague in charge
            status: where the customer stands
            customer_email: the customer's address
            customer_phone: the customer's telephone number
            last_contact_date: the last contact, YYYY-MM-DD
            product_interest: the product they are interested in
            notes: notes
            follow_up_by: the day of the next follow-up, YYYY-MM-DD
        """
        require(customer_name=customer_name, assigned_to_email=assigned_to_email)
        return session.state.customers.add(
            {
                "assigned_to_email": assigned_to_email.lower(),
                "customer_name": customer_name,
                "customer_email": customer_email.lower() if customer_email else None,
                "customer_phone": customer_phone,
                "last_contact_date": last_contact_date,
                "product_interest": product_interest,
                "status": status,
                "follow_up_by": follow_up_by,
                "notes": notes or "",
            }
        )

    @tool(name="customer_relationship_manager_delete_customer")
    def delete_customer(self, session: Session[Office], customer_id: CustomerId) -> str:
        """Delete a customer."""
        session.state.customers.delete(customer_id)
        return "Customer deleted successfully."
