"""Programs that a service or a mesh starts: that they end with it, and writing to them."""

from .children import ending_with_us
from .pipes import write_to

__all__ = ["ending_with_us", "write_to"]
