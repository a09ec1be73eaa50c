"""Reading topics and receipts again, and comparing them with the log."""
