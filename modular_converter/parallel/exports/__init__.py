"""Plans for other tools: what each can say of a plan, what it costs to leave out the rest, and runs of its loader."""
