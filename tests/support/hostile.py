"""JSON that PostgreSQL stores and Python cannot read."""

DIGITS = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000
UNREADABLE = [f'{{"a": {DIGITS}}}', f"[{DIGITS}]", DEEP, f'{{"a": {DEEP}}}', DIGITS]
