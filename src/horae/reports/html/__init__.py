"""Pages that need nothing but themselves: no script, no network, no other file."""
