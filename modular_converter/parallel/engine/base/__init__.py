"""Parts that a sharded model needs both on the ranks of a session and in a process group."""
