"""The server of ranks: processes, messages, shared memory, random states."""
