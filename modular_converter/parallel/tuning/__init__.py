"""Settings tried on the machine: the first that runs for ``layout="auto"``."""
