"""What an operator keeps: the levels of assembly."""
