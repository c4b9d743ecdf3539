"""What a user asks of a mechanism: one file a question."""
