"""Other projects' capture gateways, as the gateway suite sees them."""
