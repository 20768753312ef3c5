"""Rules about parallel plans. Each conversion runs their checks, so nothing here imports torch or the rest of the wing."""
