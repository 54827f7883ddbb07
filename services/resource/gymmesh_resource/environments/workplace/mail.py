"""Mail and the company's directory."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from gymmesh_resource import Session, ToolError, tool
from gymmesh_resource.environments.workplace.office import NOW, Office, OfficeRecord
from gymmesh_resource.environments.workplace.searching import page_of, read_date, require

EmailId: TypeAlias = Annotated[str, "the email's id"]
Recipient: TypeAlias = Annotated[str, "the address to send it to"]
EmailField: TypeAlias = Annotated[
    Literal["email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body"],
    "which field",
]


class DirectoryTools:
    """The people that work here."""

    @tool(name="company_directory_find_email_address")
    def find_address(self, session: Session[Office], name: str = "") -> list[str] | str:
        """Find the email addresses of people in the company by name, in any case.

        Args:
            name: a first name, a last name, or a part of one
        """
        require(name=name)
        wanted = ".".join(name.lower().split())
        found = [address for address in session.state.data.addresses if wanted in address.lower()]
        return found or f"Nobody in the company has {name[:80]!r} in their address."


class MailTools:
    """Reading, searching, sending and deleting mail."""

    @tool(name="email_get_email_information_by_id")
    def email_field(
        self, session: Session[Office], email_id: EmailId, field: EmailField
    ) -> dict[str, Any]:
        """Read one field of an email."""
        return {field: session.state.emails.find(email_id)[field]}

    @tool(name="email_search_emails")
    def search_emails(
        self,
        session: Session[Office],
        query: str = "",
        date_min: str | None = None,
        date_max: str | None = None,
        page: int = 1,
        page_size: int = 5,
    ) -> dict[str, Any] | str:
        """Find emails, the latest first: all words must stand in subject, body or address.

        Args:
            query: words to look for
            date_min: the first day, YYYY-MM-DD
            date_max: the last day, YYYY-MM-DD
            page: which page of the results, from 1
            page_size: emails on a page
        """
        words = query.lower().split()
        earliest = read_date("date_min", date_min) if date_min else ""
        latest = read_date("date_max", date_max) if date_max else "9999"
        found = [
            email
            for email in session.state.emails
            if earliest <= (email["sent_datetime"] or "")[:10] <= latest and _has(email, words)
        ]
        found.sort(key=lambda email: email["sent_datetime"] or "", reverse=True)
        return page_of("emails", found, page, page_size)

    @tool(name="email_send_email")
    def send_email(
        self, session: Session[Office], recipient: Recipient, subject: str, body: str
    ) -> str:
        """Send an email.

        Args:
            subject: its subject
            body: its text
        """
        _send(session, recipient, subject, body)
        return "Email sent successfully."

    @tool(name="email_delete_email")
    def delete_email(self, session: Session[Office], email_id: EmailId) -> str:
        """Delete an email."""
        session.state.emails.delete(email_id)
        return "Email deleted successfully."

    @tool(name="email_forward_email")
    def forward_email(
        self, session: Session[Office], email_id: EmailId, recipient: Recipient
    ) -> str:
        """Forward an email to somebody."""
        email = session.state.emails.find(email_id)
        _send(session, recipient, f"FW: {email['subject']}", email["body"] or "")
        return "Email forwarded successfully."

    @tool(name="email_reply_email")
    def reply_email(self, session: Session[Office], email_id: EmailId, body: str) -> str:
        """Reply to an email: to its sender, or to its recipient where it was sent from here.

        Args:
            body: the reply's text
        """
        email = session.state.emails.find(email_id)
        _send(session, email["sender/recipient"] or "", f"RE: {email['subject']}", body)
        return "Email replied successfully."


def _send(session: Session[Office], recipient: str, subject: str, body: str) -> None:
    require(recipient=recipient, subject=subject, body=body)
    if "@" not in recipient or "." not in recipient:
        raise ToolError(
            f"{recipient[:80]!r} is not an email address. "
            "company_directory_find_email_address finds the addresses of colleagues."
        )
    session.state.emails.add(
        {
            "inbox/outbox": "outbox",
            "sender/recipient": recipient.lower(),
            "subject": subject,
            "sent_datetime": NOW,
            "body": body,
        }
    )


def _has(email: OfficeRecord, words: list[str]) -> bool:
    text = f"{email['subject']} {email['body']} {email['sender/recipient']}".lower()
    return all(word in text for word in words)
