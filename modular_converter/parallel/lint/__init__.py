"""Rules about parallel plans. Each conversion runs their checks, so they import neither torch nor the rest of ``parallel``."""
