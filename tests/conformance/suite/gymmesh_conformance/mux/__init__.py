"""The suite for servers that offer the mux: cases as frames on an Exchange stream."""
