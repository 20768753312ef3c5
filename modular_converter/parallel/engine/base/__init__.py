"""What a sharded model needs wherever it runs: on the ranks of a session, or in a process group."""
