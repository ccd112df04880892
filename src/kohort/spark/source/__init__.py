"""The streaming source ``format("kohort")``: driver, plans, read tasks."""
