"""The words that the synthetic office is made of."""

# The colleagues that rows of NeMo Gym's workplace_assistant speak of are among them.
COLLEAGUES = (
    "aisha.chen", "akira.sato", "amir.hassan", "anya.novak", "carlos.rodriguez", "chinedu.okoro",
    "elena.rossi", "fatima.khan", "hanna.lindqvist", "jinsoo.park", "kofi.mensah", "leila.azizi",
    "lena.schmidt", "luis.ortega", "nadia.moreau", "nia.davies", "olga.petrova", "raj.patel",
    "santiago.martinez", "yuki.tanaka",
)  # fmt: skip

# Fifteen times fourteen: every one of 200 customers has a name of their own.
FIRST_NAMES = (
    "Alex", "Blake", "Casey", "Dakota", "Ellis", "Finley", "Harper", "Jordan", "Kendall", "Logan",
    "Morgan", "Parker", "Quinn", "Riley", "Taylor",
)  # fmt: skip
LAST_NAMES = (
    "Anderson", "Brown", "Clark", "Davis", "Evans", "Garcia", "Harris", "Jackson", "Lewis",
    "Miller", "Nguyen", "Robinson", "Thomas", "Wilson",
)  # fmt: skip
COMPANIES = (
    "brightfield", "cobaltworks", "deltaforge", "eastharbor", "fernhill", "granitepeak",
    "northwind", "orchardlane", "quarryside", "silverline",
)  # fmt: skip
MEETINGS = (
    "Budget review", "Customer call", "Design review", "Hiring panel", "Incident review",
    "Onboarding", "One-on-one", "Planning session", "Product demo", "Quarterly update",
    "Release check", "Risk workshop", "Sprint retrospective", "Team lunch", "Training hour",
)  # fmt: skip
CHORES = (
    "Add dark mode", "Audit access rights", "Cache search results", "Compress product images",
    "Document the billing service", "Fix checkout rounding", "Improve form errors",
    "Migrate the user table", "Redesign the settings page", "Refactor the export job",
    "Remove unused endpoints", "Shorten the sign-up flow", "Speed up the dashboard",
    "Test the payment webhook", "Translate the help pages", "Update the colour palette",
)  # fmt: skip
TOPICS = (
    "Agenda for Monday", "Contract draft", "Feedback on the demo", "Invoice question",
    "Lunch on Thursday", "Next steps", "Numbers for October", "Office move", "Password policy",
    "Questions about the roadmap", "Release notes", "Room booking", "Slides for the board",
    "Travel plans", "Workshop summary",
)  # fmt: skip
NOTES = ("Called.", "Met in person.", "Sent an offer.", "Asked for a demo.", "Wants a discount.")
