"""Words in, lines out: one file per noun; no decision is taken here."""
